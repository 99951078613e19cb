// A channel's engine and the transport that carries its packets to the switch and back.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "fragments/engine.h"
#include "fragments/transport.h"
#include "transport/bulk_copy.h"

namespace ina::client {

/// Under the lock of Progress once the channel runs, unless it says otherwise.
class Link {
 public:
  /// `world_size`: of the job.
  Link(int copy_threads, uint32_t world_size) : copier_(copy_threads, world_size) {}

  // As the channel joins.
  /// Makes frames the transport, before there is an engine: connect() follows.
  void open(std::unique_ptr<Transport> frames) { transport_ = std::move(frames); }
  void make_engine(const EngineConfig& config) { engine_ = std::make_unique<Engine>(config); }
  /// `transport`: nullptr where open() has made it.
  void connect(std::unique_ptr<Transport> transport);

  bool has_engine() const { return engine_ != nullptr; }
  bool is_complete() const { return engine_ && transport_; }
  Engine& engine() { return *engine_; }
  const Engine& engine() const { return *engine_; }
  Transport& transport() { return *transport_; }
  BulkCopier& copier() { return copier_; }

  /// Receives a burst and sends one. False: there was nothing to do.
  bool turn(Nanos now);
  /// Receives only. Returns how many packets.
  size_t receive(Nanos now);
  /// Somebody drives: packets need not be announced.
  void set_busy() { transport_->set_idle(false); }
  /// Nobody drives any more: the switch is to call if something comes. True: not yet, since
  /// something has come already, or is still to be sent.
  bool set_idle() { return transport_->set_idle(true) || !all_sent_; }
  /// Goes on with the transport that `made` makes of the old one.
  using Made = std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport> old)>;
  void replace(const Made& made);
  /// Goes on with another one, whose counters begin at zero. Returns the old one.
  std::unique_ptr<Transport> replace(std::unique_ptr<Transport> transport);
  /// Sums over all transports that there were.
  TransportCounters counters() const;

  /// From any thread. The driving thread may be asleep in the transport, which may be replaced
  /// meanwhile.
  void wake();
  /// Transport::idle_poll_ns(). From any thread.
  Nanos idle_poll_ns() const { return idle_poll_ns_; }

 private:
  BulkCopier copier_;
  std::mutex transport_mutex_;            ///< taken last
  std::unique_ptr<Transport> transport_;  ///< replaced under transport_mutex_, too
  std::unique_ptr<Engine> engine_;
  TransportCounters lost_counters_;  ///< of transports that were replaced
  Nanos idle_poll_ns_ = 0;           ///< as it joined
  bool all_sent_ = true;             ///< by the last turn()
  // Members, since making 64 of each takes longer than a turn with nothing to do.
  std::array<RxPacket, Engine::kBurst> received_;
  std::array<TxPacket, Engine::kBurst> to_send_;
};

}  // namespace ina::client
