// The way of the client engine to the switch. One virtual call moves a burst of packets. An
// implementation may live in a library of its own, which is loaded when its URL asks for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/message.h"

namespace ina::client {

/// A packet to send: the payload is a view of memory that stays until tx_burst has returned, or,
/// in registered memory, until its operation has completed.
using TxPacket = wire::Outgoing;

/// A packet received: the payload is readable until rx_release().
struct RxPacket {
  wire::Message message;
  const std::byte* payload = nullptr;
  uint32_t payload_bytes = 0;
};

struct TransportCounters {
  uint64_t sleeps = 0;
  uint64_t dropped = 0;       ///< packets dropped on receipt
  uint64_t bytes_copied = 0;  ///< payload that was not sent from where it lay
};

/// Used by one thread at a time (the context's lock), except wake().
class Transport {
 public:
  virtual ~Transport() = default;
  /// Takes a prefix of `packets` and returns its length. Payloads are copied out before it returns,
  /// unless they lie in registered memory.
  virtual size_t tx_burst(std::span<const TxPacket> packets) = 0;
  /// Fills `packets` from the front with validated packets from the switch; returns how many.
  virtual size_t rx_burst(std::span<RxPacket> packets) = 0;
  /// The payloads of the last rx_burst have been consumed.
  virtual void rx_release() = 0;
  /// Sleeps in the kernel until a packet may have arrived, wake() was called, or the time has
  /// passed. May return early.
  virtual void wait(Nanos timeout_ns) = 0;
  /// Ends a wait() in progress, from any thread.
  virtual void wake() = 0;
  /// Says that nobody drives the engine (or that somebody does again): packets are then announced
  /// on the control connection. True: packets have come already, and will not be announced.
  virtual bool set_idle(bool) { return false; }
  /// How often an idle transport must be looked at because nothing announces its packets; 0: never.
  virtual Nanos idle_poll_ns() const { return 0; }
  /// The switch reads `memory` under this number from now on, or no more if it is empty.
  virtual void set_registered(uint32_t, std::span<const std::byte>) {}
  /// The job's result buffers hold `memory` from this unit on, or nothing any more if it is empty.
  virtual void set_result_buffer(uint32_t, std::span<const std::byte>) {}
  virtual TransportCounters counters() const = 0;
};

}  // namespace ina::client
