// An in-process network for tests: virtual time, seeded faults, real frames. The wire codec encodes
// and parses every message, so corruption meets the CRC as on a wire.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <queue>
#include <random>
#include <vector>

#include "fragments/transport.h"
#include "io/port.h"
#include "wire/frame.h"

namespace ina::io::sim {

struct Faults {
  double loss = 0;   ///< probability that a frame vanishes
  double burst = 0;  ///< probability that a burst of losses begins with this frame
  uint32_t burst_frames = 20;
  double duplicate = 0;  ///< probability that a frame arrives twice
  double reorder = 0;    ///< probability that a frame is late by up to reorder_delay_ns
  double corrupt = 0;    ///< probability that one bit flips
  double spike = 0;      ///< probability that a frame is late by spike_ns: a zombie
  Nanos delay_ns = 10'000;
  Nanos reorder_delay_ns = 500'000;
  Nanos spike_ns = 20'000'000;
};

struct NetworkCounters {
  uint64_t sent = 0;
  uint64_t lost = 0;
  uint64_t duplicated = 0;
  uint64_t corrupted = 0;
};

/// A network that carries frames between hosts, which are numbered from 0: the one below, or one
/// that ns-3 simulates (sim/).
class Network {
 public:
  virtual ~Network() = default;
  static wire::Address address_of(uint32_t host);
  virtual void send(const wire::Envelope& envelope, const wire::Message& message,
                    std::span<const std::byte> payload) = 0;
  /// Next frame that has arrived at `host`, or nothing.
  virtual bool receive(uint32_t host, std::vector<std::byte>& frame) = 0;
};

/// The first hosts are the switch's lanes.
class SimNetwork final : public Network {
 public:
  SimNetwork(uint64_t seed, const Faults& faults, uint32_t hosts)
      : random_(seed), faults_(faults), inbox_(hosts), cuts_(size_t{hosts} * hosts, 0) {}

  Nanos now() const { return now_; }
  /// Moves time to the next arrival or to `limit`, whichever comes first.
  void advance(Nanos limit);
  /// Nothing is under way.
  bool quiet() const { return in_flight_.empty() && waiting_ == 0; }
  void set_faults(const Faults& faults) { faults_ = faults; }
  /// Frames from one host to another vanish until then.
  void cut(uint32_t from, uint32_t to, Nanos until) { cut_of(from, to) = until; }

  void send(const wire::Envelope& envelope, const wire::Message& message,
            std::span<const std::byte> payload) override;
  bool receive(uint32_t host, std::vector<std::byte>& frame) override;
  bool has_frame(uint32_t host) const { return !inbox_[host].empty(); }
  /// Forgets what has arrived at a host that is down.
  void discard(uint32_t host);

  const NetworkCounters& counters() const { return counters_; }

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
    return probability > 0 && static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
  }
  Nanos up_to(Nanos most) {
    return static_cast<Nanos>(random_() % static_cast<uint64_t>(most + 1));
  }
  Nanos& cut_of(uint32_t from, uint32_t to) { return cuts_[from * inbox_.size() + to]; }
  void launch(uint32_t host, std::vector<std::byte> frame);

  std::mt19937_64 random_;
  Faults faults_;
  Nanos now_ = 0;
  uint64_t order_ = 0;
  uint32_t burst_left_ = 0;
  NetworkCounters counters_;
  std::priority_queue<Flying, std::vector<Flying>, std::greater<>> in_flight_;
  std::vector<std::deque<std::vector<std::byte>>> inbox_;  ///< arrived, by host
  size_t waiting_ = 0;                                     ///< frames in inboxes
  std::vector<Nanos> cuts_;
};

/// One lane's port on the network.
class SimPort {
 public:
  SimPort(Network& network, uint32_t host, uint32_t slot_bytes)
      : network_(network), host_(host), slot_bytes_(slot_bytes) {}

  EndpointIndex bind(uint32_t host, JobId job_id, uint64_t job_key, JobIndex job, Rank rank);
  void unbind(EndpointIndex endpoint);

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
  const Binding* find(uint32_t host, JobId job_id) const;

  Network& network_;
  uint32_t host_;
  uint32_t slot_bytes_;
  std::vector<std::optional<Binding>> bindings_;
  std::vector<std::vector<EndpointIndex>> by_host_;  ///< a switch is a member of several jobs
  std::vector<std::vector<std::byte>> frames_;  ///< of the last burst
  PortCounters counters_;
};

/// A worker's, or a fallback server's, transport on the network: message.lane says to which lane's
/// host a packet goes, counted from `first_lane`.
class SimTransport final : public client::Transport {
 public:
  SimTransport(Network& network, uint32_t host, JobId job, uint64_t job_key, uint32_t slot_bytes,
               uint32_t first_lane = 0);

  size_t tx_burst(std::span<const client::TxPacket> packets) override;
  size_t rx_burst(std::span<client::RxPacket> packets) override;
  void rx_release() override { frames_.clear(); }
  void wait(Nanos) override {}
  void wake() override {}
  client::TransportCounters counters() const override { return counters_; }

 private:
  Network& network_;
  uint32_t host_;
  wire::Envelope envelope_;
  uint32_t slot_bytes_;
  uint32_t first_lane_;
  std::vector<std::vector<std::byte>> frames_;
  client::TransportCounters counters_;
};

}  // namespace ina::io::sim
