// The network of a simulated cluster over ns-3's links: racks of hosts around one aggregating
// switch, with switches of their own that aggregate or only forward, or hosts around any number of
// aggregating switches. The wire codec encodes and parses every message.
// Values may be thinned out: a frame then carries fewer values than its length on the wire says, so
// that large models take little memory and time.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "sim/network/sim_network.h"
#include "sim/ns3_network.h"

namespace ina::sim {

struct RackSpec {
  ns3net::LinkSpec link;    ///< of each host
  ns3net::LinkSpec uplink;  ///< to the aggregating switch; the first rack's hosts are there
  uint32_t share = 1;       ///< of each job's workers, beside the other racks' shares
};

/// Processor time of a machine for each frame that it receives or sends.
struct Charge {
  double packet_ns = 0;
  double byte_ns = 0;  ///< of a payload
  Nanos of(size_t payload_bytes) const {
    return static_cast<Nanos>(packet_ns + byte_ns * static_cast<double>(payload_bytes));
  }
};

struct FabricSpec {
  /// The first has the first aggregating switch, each of the others a switch that only forwards,
  /// unless add_rack_switch() makes it an aggregating one.
  std::vector<RackSpec> racks = {RackSpec{}};
  /// Bytes on the wire for each byte of a payload.
  uint32_t wire_factor = 1;
  Charge switch_charge, host_charge;
  ns3net::Links links = ns3net::Links::kComputed;
  uint64_t seed = 0;
};

/// A host's program.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  /// A frame can be received.
  virtual void arrived() = 0;
  virtual void on_timer(uint64_t argument) = 0;
};

class Fabric final : public io::sim::Network {
 public:
  explicit Fabric(const FabricSpec& spec);
  ~Fabric() override;

  /// An aggregating switch. The first one is host 0, and the racks are at it.
  uint32_t add_switch(Endpoint& endpoint);
  /// The switch of a rack but the first aggregates. What is not for it, it still forwards.
  uint32_t add_rack_switch(Endpoint& endpoint, uint32_t rack);
  /// A host of a rack. `slower`: its link has that fraction of the rate. `farther`: and so much
  /// more delay.
  uint32_t add_host(Endpoint& endpoint, uint32_t rack = 0, double slower = 1, Nanos farther = 0);
  /// One more address of a host, with a program of its own: they share the link.
  uint32_t add_address(uint32_t host, Endpoint& endpoint);
  /// A host at the aggregating switch `at`, by a link of its own.
  uint32_t add_host_at(uint32_t at, Endpoint& endpoint, const ns3net::LinkSpec& link);

  void send(const wire::Envelope& envelope, const wire::Message& message,
            std::span<const std::byte> payload) override;
  bool receive(uint32_t host, std::vector<std::byte>& frame) override;

  Nanos now() const { return network_.now(); }
  void schedule(Nanos at, uint32_t host, uint64_t argument);
  /// The host's link towards the switch is not always as fast: ns3net::Network::set_pace().
  void set_uplink_pace(uint32_t host, ns3net::Pace pace);
  void run(Nanos until) { network_.run(until); }
  void stop() { network_.stop(); }

  /// Bytes that a host has handed to its link and that are not on the wire yet.
  uint64_t queued_bytes(uint32_t host);
  uint64_t rate_bps(uint32_t host) const;
  uint32_t wire_factor() const { return spec_.wire_factor; }
  /// Length of a frame on the wire: preamble, check sequence and gap included.
  uint32_t wire_bytes(size_t payload_bytes) const {
    return static_cast<uint32_t>(kOverheadBytes + wire::kFrameHeaderBytes +
                                 payload_bytes * spec_.wire_factor);
  }
  /// To (first) and from its switch, of a host's link.
  std::pair<ns3net::LinkCounters, ns3net::LinkCounters> counters(uint32_t host) const;
  /// Counters of the uplink of a rack but the first, to and from the aggregating switch.
  std::pair<ns3net::LinkCounters, ns3net::LinkCounters> uplink_counters(uint32_t rack) const;
  uint32_t racks() const { return static_cast<uint32_t>(spec_.racks.size()); }
  uint64_t wire_bytes_sent() const { return wire_bytes_sent_; }  ///< over all links
  uint64_t frames_sent() const { return frames_sent_; }
  uint64_t events() const { return network_.events(); }

 private:
  static constexpr size_t kOverheadBytes = 8 + 4 + 12;  // preamble, check sequence, gap
  struct Station;
  struct Forwarder;

  uint32_t add_station(Endpoint& endpoint);
  uint32_t add_station_at(Endpoint& endpoint, ns3net::Node node);
  uint32_t connect(uint32_t host, ns3net::Node to, const ns3net::LinkSpec& link);
  ns3net::Node switch_of(uint32_t rack) const;
  ns3net::Node next_hop(uint32_t from, uint32_t to) const;
  void connect_racks();
  void arrive(ns3net::Node at, std::vector<std::byte> frame, bool marked);
  void forward(ns3net::Node from, uint32_t to, std::vector<std::byte> frame, bool marked);
  Charge charge_of(uint32_t host) const;
  Nanos work(uint32_t host, size_t frame_bytes);
  void receive_later(uint32_t host);
  void deliver(uint32_t host, std::vector<std::byte> frame, bool marked);

  FabricSpec spec_;
  ns3net::Network network_;
  std::vector<std::unique_ptr<Forwarder>> forwarders_;  ///< of the racks but the first
  std::vector<std::unique_ptr<Station>> stations_;      ///< by host
  uint64_t wire_bytes_sent_ = 0;
  uint64_t frames_sent_ = 0;
};

}  // namespace ina::sim
