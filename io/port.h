// The interface between a packet loop and its ports.
//
// A lane calls its ports through templates (switchd::Lane<FramePort>, aggregator::serve), so no
// call on the packet path is virtual. A port object belongs to one lane. Lanes share nothing of a
// port except what the port's own documentation names.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "aggregator/packet.h"
#include "io/port_counters.h"
#include "wire/message.h"

namespace ina::io {

using aggregator::JobIndex;
using aggregator::RxPacket;
/// Index of a worker's endpoint within its port; the port gives it out when the worker is bound.
using EndpointIndex = uint16_t;

// clang-format off
template <class P>
concept SwitchPort = requires(P port, std::span<RxPacket> burst, EndpointIndex endpoint,
                              const wire::Message& message, std::span<const std::byte> payload) {
  /// Fills `burst` from the front with validated packets of bound workers; returns how many. Their
  /// payloads stay readable until rx_release().
  { port.rx_burst(burst) } -> std::same_as<size_t>;
  /// Gives the memory of the last burst's payloads back to the senders.
  { port.rx_release() };
  /// Queues a message to one worker. A payload that lies in the job's result ring stays as it is
  /// until the job's window has passed it; any other may change when tx() has returned. False: no
  /// room; counted, and the worker will ask again.
  { port.tx(endpoint, message, payload) } -> std::same_as<bool>;
  /// Sends what was queued and wakes receivers that sleep.
  { port.tx_flush() };
  { port.counters() } -> std::same_as<const PortCounters&>;
};
// clang-format on

}  // namespace ina::io
