// Carries out the bridge's decisions: it takes the frames that a port received for others, and
// hands them to their ports.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "io/bridge/bridge.h"

namespace ina::switchd {

// clang-format off
/// A port whose frames can leave by another port of the same type. P::Transit holds `addresses` and
/// `buffer`, which is null where there is nothing to forward: then there is a sender to learn of, or
/// a `probe` of the switch's own that came back.
template <class P>
concept BridgedPort = requires(P port, const typename P::Transit& frame, DropReason reason,
                               uint16_t ports, std::span<const std::byte> probe) {
  { port.transit() } -> std::same_as<std::span<const typename P::Transit>>;
  { frame.addresses } -> std::convertible_to<bridge::Addresses>;
  { frame.probe } -> std::convertible_to<std::optional<bridge::LoopProbe>>;
  { port.drop_transit(frame, reason) };
  { port.hand_over(frame) };
  { port.hand_over_to_all(frame, ports) };
  { port.send_transit(frame) };
  { port.send_probe(probe) };
  { port.link_up() } -> std::same_as<bool>;
  { port.address().mac } -> std::convertible_to<wire::MacAddress>;
};
// clang-format on

/// The bridge of a lane over its ports. Used by the lane's thread.
template <BridgedPort Port>
class Forwarding {
 public:
  Forwarding(const bridge::BridgeConfig& config, const std::vector<Port*>& ports)
      : ports_(ports), bridge_(config, own_addresses(ports)) {}

  /// Before the ports are polled: looks after links and addresses, each from time to time.
  void tick(Nanos now) {
    bridge_.tick(now);
    if (now >= next_link_check_) {
      next_link_check_ = now + kLinkCheckNs;
      for (uint32_t i = 0; i < bridge_.ports(); ++i)
        bridge_.set_link(static_cast<bridge::PortIndex>(i), ports_[i]->link_up());
    }
    bridge_.send_probes(now, [this](bridge::PortIndex port, const auto& frame) {
      ports_[port]->send_probe(frame.span());
    });
  }

  /// After a burst of port `ingress`; the frames go with each port's next tx_flush(). Returns how
  /// many there were.
  size_t forward(bridge::PortIndex ingress, Nanos now) {
    Port& from = *ports_[ingress];
    const auto frames = from.transit();
    for (const typename Port::Transit& frame : frames) {
      if (frame.buffer) [[likely]]
        carry_out(bridge_.decide(frame.addresses, ingress, now), frame, ingress);
      else if (frame.probe)
        bridge_.probe_returned(*frame.probe, ingress, now);
      else
        bridge_.learn(frame.addresses, ingress, now);
    }
    return frames.size();
  }

  /// The port has another device.
  void renew(bridge::PortIndex port) { bridge_.set_own(port, ports_[port]->address().mac); }

  const bridge::Bridge& bridge() const { return bridge_; }

 private:
  /// Some drivers ask the kernel, so not in every round.
  static constexpr Nanos kLinkCheckNs = 100'000'000;

  static std::vector<wire::MacAddress> own_addresses(const std::vector<Port*>& ports) {
    std::vector<wire::MacAddress> own;
    for (Port* port : ports) own.push_back(port->address().mac);
    return own;
  }

  void carry_out(const bridge::Decision& decision, const typename Port::Transit& frame,
                 bridge::PortIndex ingress) {
    using To = bridge::Decision::To;
    Port& from = *ports_[ingress];
    switch (decision.to) {
      case To::kNowhere:
        from.drop_transit(frame, decision.reason);
        break;
      case To::kPort:
        from.hand_over(frame);
        ports_[decision.port]->send_transit(frame);
        break;
      case To::kAllOthers: {
        uint64_t to = bridge_.others_up(ingress, frame.addresses.vlan);
        from.hand_over_to_all(frame, static_cast<uint16_t>(std::popcount(to)));
        for (; to != 0; to &= to - 1)
          ports_[static_cast<size_t>(std::countr_zero(to))]->send_transit(frame);
        break;
      }
    }
  }

  std::vector<Port*> ports_;
  bridge::Bridge bridge_;
  Nanos next_link_check_ = 0;
};

}  // namespace ina::switchd
