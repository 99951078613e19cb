// The learning switch for all frames that are not for the switch itself. The bridge decides to
// which ports a frame goes.
//
// The decision depends on the two MAC addresses and the VLAN of the tag alone (IEEE 802.1Q without
// spanning tree; each VLAN learns for itself). It neither moves nor changes frames; see
// switchd/forwarding.h.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "io/bridge/mac_table.h"
#include "wire/drop_reason.h"

namespace ina::bridge {

struct BridgeConfig {
  uint32_t mac_entries = 8192;
  Nanos ageing_ns = 300'000'000'000;
  /// Broadcast, multicast and unknown destinations that a port may send a second; 0: no limit. A
  /// tenth of it may come at once.
  uint32_t storm_limit_frames_per_s = 10'000;
  /// By port: the VLANs whose frames may come in and go out; none: all of them.
  std::vector<std::vector<VlanId>> vlans{};
  uint64_t hash_seed = 0;  ///< from a random source, so that nobody can fill one set of the table
};

/// The destination of a frame.
struct Decision {
  enum class To : uint8_t { kNowhere, kPort, kAllOthers };
  To to = To::kNowhere;
  PortIndex port = 0;   ///< kPort
  DropReason reason{};  ///< kNowhere
};

/// Destination, source and VLAN, as they stand at the front of a frame.
struct Addresses {
  wire::MacAddress destination{};
  wire::MacAddress source{};
  VlanId vlan = 0;
};
/// `frame` has at least an Ethernet header.
Addresses addresses_of(std::span<const std::byte> frame);
/// VLAN of its outermost tag, if that is an 802.1Q one (0x8100), else 0.
VlanId vlan_of(std::span<const std::byte> frame);

/// Used by one thread. Allocates in the constructor only.
class Bridge {
 public:
  /// `own`: the MAC address of each port of the switch; at most kMaxPorts. All links are down.
  Bridge(const BridgeConfig& config, std::vector<wire::MacAddress> own);

  /// A frame that came in at `ingress` and is not for the switch. Learns its source.
  Decision decide(const Addresses& frame, PortIndex ingress, Nanos now);

  /// A frame that came in at `ingress` and was for the switch itself.
  void learn(const Addresses& frame, PortIndex ingress, Nanos now);

  /// Nothing is sent to a port whose link is down; its learned addresses are forgotten.
  void set_link(PortIndex port, bool up);
  bool link_up(PortIndex port) const { return (up_ >> port & 1) != 0; }
  /// Ports with a link that frames of `vlan` may leave by, but `ingress`, as bits.
  uint64_t others_up(PortIndex ingress, VlanId vlan) const {
    return up_ & ports_of_[vlan] & ~(uint64_t{1} << ingress);
  }

  /// Lets addresses expire, some at a time; to be called often.
  void tick(Nanos now);

  uint32_t ports() const { return static_cast<uint32_t>(own_.size()); }
  const MacTable& table() const { return table_; }

 private:
  bool is_own(const wire::MacAddress& mac) const;
  bool is_member(PortIndex port, VlanId vlan) const { return (ports_of_[vlan] >> port & 1) != 0; }
  Decision flood(PortIndex ingress, VlanId vlan, Nanos now);

  BridgeConfig config_;
  std::vector<wire::MacAddress> own_;
  MacTable table_;
  uint64_t up_ = 0;                 ///< ports whose link is up
  std::vector<uint64_t> ports_of_;  ///< by VLAN
  /// By port: when a steady stream at the limit would have sent what came so far (GCRA, ITU-T
  /// I.371).
  std::array<Nanos, kMaxPorts> storm_time_{};
  Nanos storm_step_ns_ = 0;       ///< between two frames at the limit
  Nanos storm_tolerance_ns_ = 0;  ///< the lead that a port may have over that
  Nanos next_sweep_ = 0;
  Nanos sweep_interval_ns_;
};

}  // namespace ina::bridge
