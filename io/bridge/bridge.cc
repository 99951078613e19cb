#include "io/bridge/bridge.h"

#include <algorithm>
#include <cstring>

#include "io/bridge/vlan_tags.h"

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
  if (frame.size() < kTaggedBytes || load16(frame, 12) != kEthertypeVlan) return 0;
  return load16(frame, 14) % kVlans;
}

Bridge::Bridge(const BridgeConfig& config, std::vector<wire::MacAddress> own)
    : config_(config),
      own_(std::move(own)),
      table_(config.mac_entries, config.ageing_ns, config.hash_seed),
      loops_(config.hash_seed),
      frames_(config.probe_key),
      ports_of_(kVlans),
      // All sets are swept twice in the ageing time.
      sweep_interval_ns_(config.ageing_ns / 2 / table_.sweeps()) {
  own_.resize(std::min<size_t>(own_.size(), kMaxPorts));
  config_.vlans.resize(own_.size());
  for (size_t port = 0; port < own_.size(); ++port) {
    const std::vector<VlanId>& members = config_.vlans[port];
    for (const VlanId vlan : members) {
      ports_of_[vlan] |= uint64_t{1} << port;
      used_vlans_[vlan / 64] |= uint64_t{1} << vlan % 64;
    }
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
  if (loops_.is_blocked(ingress)) {
    note_echo(frame, ingress, now);
    return drop(DropReason::kBlocked);
  }
  const Decision decision = destination_of(frame, ingress, now);
  if (decision.to == Decision::To::kNowhere && decision.reason != DropReason::kSamePort)
    return decision;
  remember(frame, ingress, now);
  return loops_.is_blocked(ingress) ? drop(DropReason::kBlocked) : decision;
}

Decision Bridge::destination_of(const Addresses& frame, PortIndex ingress, Nanos now) {
  if (is_link_local(frame.destination)) return drop(DropReason::kLinkLocal);
  if (is_group(frame.destination)) return flood(ingress, frame.vlan, now);
  if (is_own(frame.destination)) return drop(DropReason::kNotIna);
  if (frame.destination == frame.source) return drop(DropReason::kSamePort);
  const auto port = table_.find(frame.destination, frame.vlan, now);
  if (!port) return flood(ingress, frame.vlan, now);
  if (*port == ingress) return drop(DropReason::kSamePort);
  return {.to = Decision::To::kPort, .port = *port};
}

void Bridge::learn(const Addresses& frame, PortIndex ingress, Nanos now) {
  if (is_member(ingress, frame.vlan) && !is_own(frame.source) && !loops_.is_blocked(ingress))
    remember(frame, ingress, now);
}

void Bridge::remember(const Addresses& frame, PortIndex ingress, Nanos now) {
  if (!link_up(ingress)) return;
  used_vlans_[frame.vlan / 64] |= uint64_t{1} << frame.vlan % 64;
  const auto from = table_.learn(frame.source, frame.vlan, ingress, now);
  if (!from || !config_.loop_protection) return;
  const uint64_t station = MacTable::station_of(frame.source, frame.vlan);
  // While there was a loop, addresses were seen at its ends that are elsewhere.
  if (loops_.address_moved(station, *from, ingress, now)) table_.forget_all();
}

/// At a blocked port nothing is learned. What is seen elsewhere at the same time still comes by a
/// loop.
void Bridge::note_echo(const Addresses& frame, PortIndex ingress, Nanos now) {
  const auto last = table_.last_sighting(frame.source, frame.vlan, now);
  if (last && last->port != ingress && now - last->seen < LoopGuard::kEchoNs)
    loops_.echo_seen(ingress, now);
}

void Bridge::probe_returned(const LoopProbe& probe, PortIndex ingress, Nanos now) {
  if (!config_.loop_protection || probe.port >= ports() ||
      probe.number + kRecentRounds < probe_round_)
    return;
  if (loops_.probe_returned(probe.port, ingress, now)) table_.forget_all();
}

/// No tag, and the VLANs that come next. Returns how many.
size_t Bridge::choose_vlans(std::span<VlanId> vlans) {
  size_t count = 1;  // the first is 0
  for (uint32_t step = 1; step < kVlans && count < vlans.size(); ++step) {
    const auto vlan = static_cast<VlanId>((last_probed_vlan_ + step) % kVlans);
    if (vlan != 0 && (used_vlans_[vlan / 64] >> vlan % 64 & 1) != 0) vlans[count++] = vlan;
  }
  if (count > 1) last_probed_vlan_ = vlans[count - 1];
  return count;
}

void Bridge::set_link(PortIndex port, bool up) {
  if (port >= own_.size() || link_up(port) == up) return;
  up_ ^= uint64_t{1} << port;
  if (!up) table_.forget(port);
  next_probe_ = 0;  // a cable that was plugged in may close a loop
}

void Bridge::tick(Nanos now) {
  if (loops_.blocked() != 0) loops_.tick(now);
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
