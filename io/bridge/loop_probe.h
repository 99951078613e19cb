// The switch's own frames that look for loops. A port that gets one of them back is part of a loop.
//
// A probe goes to a group that other switches pass on. It names the port that sent it, and carries
// a hash that only this switch can make, so that no host can have another host's port blocked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "io/bridge/mac_table.h"
#include "wire/frame.h"
#include "wire/siphash.h"

namespace ina::bridge {

/// Locally administered, so that no other protocol has it: 03, "INA".
inline constexpr wire::MacAddress kProbeGroup = {0x03, 0x49, 0x4e, 0x41, 0x00, 0x01};

struct LoopProbe {
  PortIndex port = 0;   ///< that sent it
  uint64_t number = 0;  ///< of the round in which it was sent
};

class ProbeFrames {
 public:
  static constexpr size_t kMostBytes = 64;
  struct Frame {
    std::array<std::byte, kMostBytes> bytes{};
    size_t size = 0;
    std::span<const std::byte> span() const { return std::span(bytes).first(size); }
  };

  /// `key`: from a random source, of one switch.
  explicit ProbeFrames(const wire::SipKey& key) : key_(key) {}

  /// `source`: address of the port. `vlan`: of the tag; 0: none.
  Frame make(const LoopProbe& probe, const wire::MacAddress& source, VlanId vlan) const;

  /// Nothing: it is no probe, or another switch's. Other switches may have changed its tags.
  std::optional<LoopProbe> read(std::span<const std::byte> frame) const;

 private:
  wire::SipKey key_;
};

}  // namespace ina::bridge
