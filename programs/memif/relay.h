// The packets of one worker between a frame port of the bridge and the switch's shm port. Frames go
// into the send ring, and descriptors of the receive ring go out as frames. The relay checks only
// the parts of the protocol that keep the rings safe.
#pragma once

#include <array>
#include <span>

#include "fragments/engine.h"
#include "fragments/transport.h"
#include "io/port.h"

namespace ina::memif {

struct RelayCounters {
  uint64_t to_switch = 0;       ///< messages
  uint64_t to_worker = 0;       ///< messages that the port took; its counters have later losses
  uint64_t send_ring_full = 0;  ///< times that frames had to wait for room
  DropCounters drops;           ///< of the worker's messages
};

/// Used by one thread. On this path nothing allocates, locks, throws or logs.
template <io::SwitchPort Port>
class Relay {
 public:
  explicit Relay(Port& port) : port_(port) {}

  /// From now on `endpoint` of the port speaks to the switch by `transport`, whose rings have
  /// `lanes` and rows of `slot_bytes`.
  void attach(io::EndpointIndex endpoint, client::Transport& transport, uint32_t lanes,
              uint32_t slot_bytes) {
    endpoint_ = endpoint;
    transport_ = &transport;
    lanes_ = lanes;
    slot_bytes_ = slot_bytes;
  }
  /// Frames under way are lost.
  void detach() {
    port_.rx_release();
    begin_ = end_ = 0;
    transport_ = nullptr;
  }
  bool attached() const { return transport_ != nullptr; }
  io::EndpointIndex endpoint() const { return endpoint_; }

  /// One burst each way. True if there was a packet. attached() only.
  bool poll() {
    const bool up = to_switch();
    const bool down = to_worker();
    port_.tx_flush();
    return up || down;
  }
  const RelayCounters& counters() const { return counters_; }

 private:
  static constexpr size_t kBurst = client::Engine::kBurst;

  /// No frame is taken from the port before all of the last burst are in the send ring: a worker
  /// that is faster than the switch finds its own ring full, and nothing is lost.
  bool to_switch() {
    if (begin_ == end_ && !receive()) return false;
    const size_t sent = transport_->tx_burst(std::span(waiting_).subspan(begin_, end_ - begin_));
    counters_.to_switch += sent;
    begin_ += sent;
    if (begin_ == end_)
      port_.rx_release();
    else
      ++counters_.send_ring_full;
    return sent != 0;
  }

  /// True if there is something for the switch.
  bool receive() {
    const size_t count = port_.rx_burst(from_worker_);
    begin_ = end_ = 0;
    for (const io::RxPacket& packet : std::span(from_worker_).first(count)) {
      // The transport indexes its rings by the lane, and copies the payload into a row.
      if (packet.message.lane >= lanes_)
        counters_.drops.add(DropReason::kWrongLane);
      else if (const auto invalid =
                   wire::validate(packet.message, packet.payload_bytes, slot_bytes_))
        counters_.drops.add(*invalid);
      else
        waiting_[end_++] = {packet.message, packet.payload, packet.payload_bytes};
    }
    if (end_ == 0) port_.rx_release();
    return end_ != 0;
  }

  bool to_worker() {
    const size_t count = transport_->rx_burst(from_switch_);
    for (const client::RxPacket& packet : std::span(from_switch_).first(count))
      if (port_.tx(endpoint_, packet.message, {packet.payload, packet.payload_bytes}))
        ++counters_.to_worker;
    if (count == 0) return false;
    port_.tx_flush();  // it reads the payloads, which may go now
    transport_->rx_release();
    return true;
  }

  Port& port_;
  client::Transport* transport_ = nullptr;
  io::EndpointIndex endpoint_ = 0;
  uint32_t lanes_ = 0;
  uint32_t slot_bytes_ = 0;
  // Members, because filling fresh ones with zeros would take longer than a poll.
  std::array<io::RxPacket, kBurst> from_worker_{};
  std::array<client::RxPacket, kBurst> from_switch_{};
  // Taken from the port and not yet by the transport; payloads lie in the port's buffers.
  std::array<client::TxPacket, kBurst> waiting_{};
  size_t begin_ = 0;
  size_t end_ = 0;
  RelayCounters counters_;
};

}  // namespace ina::memif
