#include "io/bridge/loop_probe.h"

#include <algorithm>
#include <cstring>

#include "io/bridge/vlan_tags.h"

namespace ina::bridge {
namespace {

constexpr size_t kAddressesBytes = 12;
constexpr size_t kShortestFrameBytes = 60;    // without FCS
constexpr uint16_t kEthertypeProbe = 0x88b6;  // IEEE 802: local experiments
constexpr std::array<char, 8> kMagic = {'I', 'N', 'A', 'l', 'o', 'o', 'p', '1'};

/// Behind the ethertype, in the byte order of this machine: no other reads it.
struct Body {
  std::array<char, 8> magic = kMagic;
  uint64_t port = 0;
  uint64_t number = 0;
  uint64_t hash = 0;
};
constexpr size_t kHashedBytes = offsetof(Body, hash);

uint64_t hash_of(const wire::SipKey& key, const Body& body) {
  return wire::siphash(key, std::as_bytes(std::span(&body, 1)).first(kHashedBytes));
}

}  // namespace

ProbeFrames::Frame ProbeFrames::make(const LoopProbe& probe, const wire::MacAddress& source,
                                     VlanId vlan) const {
  Frame frame;
  const auto put = [&frame](const void* data, size_t bytes) {
    std::memcpy(frame.bytes.data() + frame.size, data, bytes);
    frame.size += bytes;
  };
  const auto put16 = [&put](uint16_t number) {
    const uint8_t bytes[] = {static_cast<uint8_t>(number >> 8), static_cast<uint8_t>(number)};
    put(bytes, sizeof bytes);
  };
  put(kProbeGroup.data(), kProbeGroup.size());
  put(source.data(), source.size());
  if (vlan != 0) {
    put16(kEthertypeVlan);
    put16(vlan);
  }
  put16(kEthertypeProbe);
  Body body{.port = probe.port, .number = probe.number};
  body.hash = hash_of(key_, body);
  put(&body, sizeof body);
  frame.size = std::max(frame.size, kShortestFrameBytes + (vlan != 0 ? kTagBytes : 0));
  return frame;
}

std::optional<LoopProbe> ProbeFrames::read(std::span<const std::byte> frame) const {
  if (frame.size() < kShortestFrameBytes ||
      std::memcmp(frame.data(), kProbeGroup.data(), kProbeGroup.size()) != 0)
    return std::nullopt;
  const size_t at = behind_tags(frame, kAddressesBytes);
  if (frame.size() < at + 2 + sizeof(Body) || load16(frame, at) != kEthertypeProbe)
    return std::nullopt;
  Body body;
  std::memcpy(&body, frame.data() + at + 2, sizeof body);
  if (body.magic != kMagic || body.port >= kMaxPorts || body.hash != hash_of(key_, body))
    return std::nullopt;
  return LoopProbe{static_cast<PortIndex>(body.port), body.number};
}

}  // namespace ina::bridge
