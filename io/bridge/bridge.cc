#include "io/bridge/bridge.h"

#include <algorithm>
#include <cstring>

namespace ina::bridge {
namespace {

constexpr Nanos kSecondNs = 1'000'000'000;

/// 01:80:c2:00:00:00 .. 0f: spanning tree, pause frames, LLDP and others that are for the neighbour
/// on the wire only (IEEE 802.1D, table 7-10).
bool is_link_local(const wire::MacAddress& mac) {
  return (to_number(mac) & ~uint64_t{0xf}) == 0x0180c2000000;
}

Decision drop(DropReason reason) {
  return {.to = Decision::To::kNowhere, .reason = reason};
}

}  // namespace

Addresses addresses_of(std::span<const std::byte> frame) {
  Addresses addresses;
  std::memcpy(addresses.destination.data(), frame.data(), 6);
  std::memcpy(addresses.source.data(), frame.data() + 6, 6);
  addresses.vlan = vlan_of(frame);
  return addresses;
}

VlanId vlan_of(std::span<const std::byte> frame) {
  constexpr size_t kTaggedBytes = 18;
  if (frame.size() < kTaggedBytes || frame[12] != std::byte{0x81} || frame[13] != std::byte{0})
    return 0;
  return static_cast<VlanId>(std::to_integer<uint32_t>(frame[14] & std::byte{0x0f}) << 8 |
                             std::to_integer<uint32_t>(frame[15]));
}

Bridge::Bridge(const BridgeConfig& config, std::vector<wire::MacAddress> own)
    : config_(config),
      own_(std::move(own)),
      table_(config.mac_entries, config.ageing_ns, config.hash_seed),
      ports_of_(kVlans),
      // All sets are swept twice in the ageing time.
      sweep_interval_ns_(config.ageing_ns / 2 / table_.sweeps()) {
  own_.resize(std::min<size_t>(own_.size(), kMaxPorts));
  config_.vlans.resize(own_.size());
  for (size_t port = 0; port < own_.size(); ++port) {
    const std::vector<VlanId>& members = config_.vlans[port];
    for (const VlanId vlan : members) ports_of_[vlan] |= uint64_t{1} << port;
    if (!members.empty()) continue;
    for (uint64_t& ports : ports_of_) ports |= uint64_t{1} << port;
  }
  ports_of_[kVlans - 1] = 0;  // reserved: never passed on
  if (const int64_t limit = config.storm_limit_frames_per_s; limit != 0) {
    storm_step_ns_ = std::max<Nanos>(kSecondNs / limit, 1);
    storm_tolerance_ns_ = storm_step_ns_ * std::max<Nanos>(limit / 10 - 1, 0);
  }
}

Decision Bridge::decide(const Addresses& frame, PortIndex ingress, Nanos now) {
  if (!is_member(ingress, frame.vlan)) return drop(DropReason::kVlan);
  // A port that hears the switch itself is part of a loop, or a host takes the switch's address.
  if (is_group(frame.source) || to_number(frame.source) == 0 || is_own(frame.source))
    return drop(DropReason::kBadMac);
  if (link_up(ingress)) table_.learn(frame.source, frame.vlan, ingress, now);
  if (is_link_local(frame.destination)) return drop(DropReason::kLinkLocal);
  if (is_group(frame.destination)) return flood(ingress, frame.vlan, now);
  if (is_own(frame.destination)) return drop(DropReason::kNotIna);
  const auto port = table_.find(frame.destination, frame.vlan, now);
  if (!port) return flood(ingress, frame.vlan, now);
  if (*port == ingress) return drop(DropReason::kSamePort);
  return {.to = Decision::To::kPort, .port = *port};
}

void Bridge::learn(const Addresses& frame, PortIndex ingress, Nanos now) {
  if (link_up(ingress) && is_member(ingress, frame.vlan) && !is_own(frame.source))
    table_.learn(frame.source, frame.vlan, ingress, now);
}

void Bridge::set_link(PortIndex port, bool up) {
  if (port >= own_.size() || link_up(port) == up) return;
  up_ ^= uint64_t{1} << port;
  if (!up) table_.forget(port);
}

void Bridge::tick(Nanos now) {
  if (now < next_sweep_) return;
  table_.sweep(now);
  next_sweep_ = now + sweep_interval_ns_;
}

bool Bridge::is_own(const wire::MacAddress& mac) const {
  return std::ranges::find(own_, mac) != own_.end();
}

Decision Bridge::flood(PortIndex ingress, VlanId vlan, Nanos now) {
  if (others_up(ingress, vlan) == 0) return drop(DropReason::kNoPort);
  if (config_.storm_limit_frames_per_s != 0) {
    Nanos& time = storm_time_[ingress];
    if (time > now + storm_tolerance_ns_) return drop(DropReason::kStorm);
    time = std::max(time, now) + storm_step_ns_;
  }
  return {.to = Decision::To::kAllOthers};
}

}  // namespace ina::bridge
