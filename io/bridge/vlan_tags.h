// VLAN tags at the front of a frame: 802.1Q, 802.1ad, and those of older switches, also several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ina::bridge {

inline constexpr uint16_t kEthertypeVlan = 0x8100;
inline constexpr uint16_t kEthertypeProviderVlan = 0x88a8;
inline constexpr size_t kTagBytes = 4;

inline uint16_t load16(std::span<const std::byte> bytes, size_t at) {
  return static_cast<uint16_t>(std::to_integer<uint32_t>(bytes[at]) << 8 |
                               std::to_integer<uint32_t>(bytes[at + 1]));
}

constexpr bool is_tag(uint16_t ethertype) {
  return ethertype == kEthertypeVlan || ethertype == kEthertypeProviderVlan ||
         ethertype == 0x9100 || ethertype == 0x9200;
}

/// The place of the ethertype behind all tags that begin at `at`, as far as the frame has them.
inline size_t behind_tags(std::span<const std::byte> frame, size_t at) {
  while (frame.size() >= at + kTagBytes + 2 && is_tag(load16(frame, at))) at += kTagBytes;
  return at;
}

}  // namespace ina::bridge
