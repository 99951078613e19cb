// An in-process network for tests: virtual time, seeded faults, real frames. Everything that
// travels is encoded and parsed by the wire codec, so corruption meets the CRC as it would on a
// wire.
#pragma once

#include <cstdint>
#include <map>
#include <queue>
#include <random>
#include <vector>

#include "client/src/transport.h"
#include "io/port.h"
#include "wire/frame.h"

namespace ina::io::sim {

struct Faults {
  double loss = 0;       ///< probability that a frame vanishes
  double duplicate = 0;  ///< probability that a frame arrives twice
  double reorder = 0;    ///< probability that a frame is late by up to reorder_delay_ns
  double corrupt = 0;    ///< probability that one bit flips
  Nanos delay_ns = 10'000;
  Nanos reorder_delay_ns = 500'000;
};

/// Hosts are numbered; host 0 is the switch, host 1 + n a worker.
class SimNetwork {
 public:
  SimNetwork(uint64_t seed, const Faults& faults) : random_(seed), faults_(faults) {}

  static wire::Address address_of(uint32_t host);

  Nanos now() const { return now_; }
  /// Moves time to the next arrival or to `limit`, whichever comes first.
  void advance(Nanos limit);
  /// Nothing is under way.
  bool quiet() const { return in_flight_.empty(); }
  void set_faults(const Faults& faults) { faults_ = faults; }

  void send(const wire::Envelope& envelope, const wire::Message& message,
            std::span<const std::byte> payload);
  /// Next frame that has arrived at `host`, or nothing.
  bool receive(uint32_t host, std::vector<std::byte>& frame);

  uint64_t sent() const { return sent_; }
  uint64_t lost() const { return lost_; }

 private:
  struct Flying {
    Nanos arrival;
    uint64_t order;  ///< breaks ties, so that a run depends on its seed alone
    uint32_t host;
    std::vector<std::byte> frame;
    bool operator>(const Flying& other) const {
      return arrival != other.arrival ? arrival > other.arrival : order > other.order;
    }
  };
  bool happens(double probability) {
    return std::uniform_real_distribution<>(0, 1)(random_) < probability;
  }
  void launch(uint32_t host, std::vector<std::byte> frame);

  std::mt19937_64 random_;
  Faults faults_;
  Nanos now_ = 0;
  uint64_t order_ = 0;
  uint64_t sent_ = 0;
  uint64_t lost_ = 0;
  std::priority_queue<Flying, std::vector<Flying>, std::greater<>> in_flight_;
};

/// The switch's port on the network.
class SimPort {
 public:
  SimPort(SimNetwork& network, uint32_t slot_bytes) : network_(network), slot_bytes_(slot_bytes) {}

  EndpointIndex bind(uint32_t host, JobId job_id, uint64_t job_key, JobIndex job, Rank rank);

  size_t rx_burst(std::span<RxPacket> burst);
  void rx_release() { frames_.clear(); }
  bool tx(EndpointIndex endpoint, const wire::Message& message, std::span<const std::byte> payload);
  void tx_flush() {}
  const PortCounters& counters() const { return counters_; }

 private:
  struct Binding {
    uint32_t host;
    JobId job_id;
    uint64_t job_key;
    JobIndex job;
    Rank rank;
  };
  SimNetwork& network_;
  uint32_t slot_bytes_;
  std::vector<Binding> bindings_;
  std::vector<std::vector<std::byte>> frames_;  ///< of the last burst
  PortCounters counters_;
};

/// A worker's transport on the network.
class SimTransport final : public client::Transport {
 public:
  SimTransport(SimNetwork& network, uint32_t host, JobId job, uint64_t job_key,
               uint32_t slot_bytes);

  size_t tx_burst(std::span<const client::TxPacket> packets) override;
  size_t rx_burst(std::span<client::RxPacket> packets) override;
  void rx_release() override { frames_.clear(); }
  void wait(Nanos) override {}
  void wake() override {}
  client::TransportCounters counters() const override { return counters_; }

 private:
  SimNetwork& network_;
  uint32_t host_;
  wire::Envelope envelope_;
  uint32_t slot_bytes_;
  std::vector<std::vector<std::byte>> frames_;
  client::TransportCounters counters_;
};

}  // namespace ina::io::sim
