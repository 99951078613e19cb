// A simulated host's network interface: the client's own engine, its transport, and when they are
// to be looked at again. The host forwards arrivals and timers to it.
#pragma once

#include <algorithm>
#include <span>

#include "fragments/engine.h"
#include "sim/fabric.h"

namespace ina::sim {

class Nic final {
 public:
  /// Timers of the host; its own ones begin with kOthers.
  enum Timer : uint64_t { kPump, kDeadline, kOthers };

  /// `host`: of the fabric, at the switch `switch_host`.
  Nic(Fabric& fabric, uint32_t host, const client::EngineConfig& config, JobId job,
      uint64_t job_key, uint32_t switch_host = 0);

  client::Engine& engine() { return engine_; }
  const client::Engine& engine() const { return engine_; }

  /// Takes in frames that have arrived. pump() is to follow.
  void receive();
  /// One of its own timers. True: pump() is to be called.
  bool on_timer(uint64_t argument);
  /// Sends what the engine has, no faster than the link takes it. `permitted(packets)`: how many of
  /// them may leave now; a caller that permits fewer calls wake_at().
  template <class Permitted>
  void pump(Permitted&& permitted) {
    client::TxPacket packets[kBurst];
    while (const size_t room = room_on_link()) {
      const size_t count =
          engine_.prepare(std::span(packets).first(std::min(room, kBurst)), fabric_.now());
      const size_t leaving = permitted(std::span<const client::TxPacket>(packets, count));
      transport_.tx_burst(std::span(packets).first(leaving));
      engine_.sent(leaving, fabric_.now());
      if (leaving == 0 || leaving < count) break;
    }
    watch_deadline();
  }
  void pump() {
    pump([](std::span<const client::TxPacket> packets) { return packets.size(); });
  }
  void wake_at(Nanos at);

 private:
  static constexpr size_t kBurst = 16;
  // The most frames before the wire: a NIC's ring, short so that answers do not wait long.
  static constexpr uint64_t kRingFrames = 8;
  static constexpr Nanos kPatienceNs = 10'000;

  /// Frames that the link takes now; 0: it wakes the host once it takes some.
  size_t room_on_link();
  void watch_deadline();

  Fabric& fabric_;
  const uint32_t host_;
  client::Engine engine_;
  io::sim::SimTransport transport_;
  Nanos wake_at_ = INT64_MAX;
  Nanos deadline_at_ = INT64_MAX;
};

}  // namespace ina::sim
