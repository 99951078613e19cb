// The learning switch for all frames that are not for the switch itself. The bridge decides to
// which ports a frame goes.
//
// The decision depends on the two MAC addresses and the VLAN of the tag alone (IEEE 802.1Q without
// spanning tree; each VLAN learns for itself). It neither moves nor changes frames; see
// switchd/lanes/forwarding.h.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "io/bridge/loop_guard.h"
#include "io/bridge/loop_probe.h"
#include "io/bridge/mac_table.h"
#include "wire/drop_reason.h"

namespace ina::bridge {

struct BridgeConfig {
  uint32_t mac_entries = 8192;
  Nanos ageing_ns = 300'000'000'000;
  /// Broadcast, multicast and unknown destinations that a port may send a second; 0: no limit. A
  /// tenth of it may come at once.
  uint32_t storm_limit_frames_per_s = 10'000;
  uint64_t unprobed = 0;  ///< ports, as bits, that lead nowhere: no loop is looked for there
  /// By port: the VLANs whose frames may come in and go out; none: all of them.
  std::vector<std::vector<VlanId>> vlans{};
  uint64_t hash_seed = 0;  ///< from a random source, so that nobody can fill one set of the table
  bool loop_protection = true;
  wire::SipKey probe_key = {};  ///< of the ports, too (ProbeFrames)
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

  /// A frame that came in at `ingress` and is not for the switch. Learns its source, unless the
  /// frame is dropped. A frame for somebody behind the same port has arrived already, and counts as
  /// passed on.
  Decision decide(const Addresses& frame, PortIndex ingress, Nanos now);

  /// A frame that came in at `ingress` and was for the switch itself.
  void learn(const Addresses& frame, PortIndex ingress, Nanos now);

  /// A probe of the switch's own that came in at `ingress`.
  void probe_returned(const LoopProbe& probe, PortIndex ingress, Nanos now);
  /// Makes the probes that are to be sent now: `send(port, frame)`.
  template <class Send>
  void send_probes(Nanos now, Send&& send) {
    if (!config_.loop_protection || now < next_probe_) return;
    next_probe_ = now + kProbeEveryNs;
    ++probe_round_;
    std::array<VlanId, kProbedVlans> vlans{};
    const size_t count = choose_vlans(vlans);
    for (uint32_t port = 0; port < ports(); ++port)
      for (size_t i = 0; i < count; ++i)
        if (const auto at = static_cast<PortIndex>(port);
            link_up(at) && is_member(at, vlans[i]) && is_probed(at))
          send(at, frames_.make({at, probe_round_}, own_[port], vlans[i]));
  }

  /// Nothing is sent to a port whose link is down; its learned addresses are forgotten.
  void set_link(PortIndex port, bool up);
  /// The port has another device, with this address.
  void set_own(PortIndex port, const wire::MacAddress& mac) { own_[port] = mac; }
  bool link_up(PortIndex port) const { return (up_ >> port & 1) != 0; }
  /// Ports with a link that frames of `vlan` may leave by, but `ingress`, as bits.
  uint64_t others_up(PortIndex ingress, VlanId vlan) const {
    return up_ & ~loops_.blocked() & ports_of_[vlan] & ~(uint64_t{1} << ingress);
  }

  /// Lets addresses expire, some at a time; to be called often.
  void tick(Nanos now);

  uint32_t ports() const { return static_cast<uint32_t>(own_.size()); }
  const MacTable& table() const { return table_; }
  const LoopGuard& loops() const { return loops_; }

 private:
  static constexpr Nanos kProbeEveryNs = 200'000'000;
  /// In a round: frames without a tag, and some of the VLANs, in turn.
  static constexpr size_t kProbedVlans = 1 + 16;
  /// A probe of so many rounds ago has waited in a queue; an older one is somebody's record.
  static constexpr uint64_t kRecentRounds = 10;

  bool is_own(const wire::MacAddress& mac) const;
  bool is_member(PortIndex port, VlanId vlan) const { return (ports_of_[vlan] >> port & 1) != 0; }
  bool is_probed(PortIndex port) const { return (config_.unprobed >> port & 1) == 0; }
  Decision destination_of(const Addresses& frame, PortIndex ingress, Nanos now);
  Decision flood(PortIndex ingress, VlanId vlan, Nanos now);
  void remember(const Addresses& frame, PortIndex ingress, Nanos now);
  void note_echo(const Addresses& frame, PortIndex ingress, Nanos now);
  size_t choose_vlans(std::span<VlanId> vlans);

  BridgeConfig config_;
  std::vector<wire::MacAddress> own_;
  MacTable table_;
  LoopGuard loops_;
  ProbeFrames frames_;
  uint64_t up_ = 0;                 ///< ports whose link is up
  std::vector<uint64_t> ports_of_;  ///< by VLAN
  /// By port: when a steady stream at the limit would have sent what came so far (GCRA, ITU-T
  /// I.371).
  std::array<Nanos, kMaxPorts> storm_time_{};
  Nanos storm_step_ns_ = 0;                         ///< between two frames at the limit
  Nanos storm_tolerance_ns_ = 0;                    ///< the lead that a port may have over that
  std::array<uint64_t, kVlans / 64> used_vlans_{};  ///< bits: listed, or seen in a frame
  VlanId last_probed_vlan_ = 0;
  uint64_t probe_round_ = 0;
  Nanos next_probe_ = 0;
  Nanos next_sweep_ = 0;
  Nanos sweep_interval_ns_;
};

}  // namespace ina::bridge
