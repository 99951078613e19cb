#include "sim/fabric.h"

#include <algorithm>
#include <cstring>

namespace ina::sim {

namespace {

uint32_t host_of(uint32_t ip) {
  return ip - io::sim::Network::address_of(0).ip;
}

constexpr size_t kDestinationAt = wire::kEthernetBytes + 16;  // of the IPv4 header
constexpr size_t kInaHeaderAt = wire::kFrameHeaderBytes - wire::kInaHeaderBytes;
constexpr size_t kFlagsAt = kInaHeaderAt + 52;
constexpr uint64_t kWorked = UINT64_MAX - 1;  // a timer: the next frame has been received
constexpr size_t kCrcAt = kInaHeaderAt + 60;

/// The host whose address a frame is sent to.
uint32_t destination_of(std::span<const std::byte> frame) {
  uint32_t ip = 0;
  for (size_t i = 0; i < 4; ++i)
    ip = ip << 8 | std::to_integer<uint32_t>(frame[kDestinationAt + i]);
  return host_of(ip);
}

/// A marked frame has the protocol's own mark where it arrives.
void mark(std::span<std::byte> frame) {
  frame[kFlagsAt] |= std::byte{wire::kFlagEcn};
  std::memset(&frame[kCrcAt], 0, 4);
  const auto header = frame.subspan(kInaHeaderAt).first<wire::kInaHeaderBytes>();
  const uint32_t crc = wire::frame_crc(header, frame.subspan(wire::kFrameHeaderBytes));
  std::memcpy(&frame[kCrcAt], &crc, 4);
}

}  // namespace

struct Fabric::Station final : ns3net::Host {
  Fabric* fabric = nullptr;
  uint32_t host = 0;
  Endpoint* endpoint = nullptr;
  ns3net::Node node = 0;
  bool aggregates = false;   ///< it is a switch; otherwise:
  ns3net::Node towards = 0;  ///< its neighbour, of a rack or an aggregating switch
  uint64_t rate_bps = 0;
  std::deque<std::vector<std::byte>> inbox;
  // Where work takes time: frames that have arrived and wait for the processor.
  std::deque<std::vector<std::byte>> backlog;
  Nanos busy_until = 0;
  bool working = false;

  void on_frame(ns3net::Bytes frame, bool marked) override {
    fabric->arrive(node, std::move(frame), marked);
  }
  void on_timer(uint64_t argument) override {
    if (argument != kWorked) return endpoint->on_timer(argument);
    working = false;
    inbox.push_back(std::move(backlog.front()));
    backlog.pop_front();
    endpoint->arrived();
    fabric->receive_later(host);
  }
};

/// The switch of a rack but the first.
struct Fabric::Forwarder final : ns3net::Host {
  explicit Forwarder(Fabric& owner) : fabric(owner) {}
  Fabric& fabric;
  ns3net::Node node = 0;
  void on_frame(ns3net::Bytes frame, bool marked) override {
    fabric.arrive(node, std::move(frame), marked);
  }
  void on_timer(uint64_t) override {}
};

Fabric::Fabric(const FabricSpec& spec) : spec_(spec), network_(spec.seed, spec.links) {}

Fabric::~Fabric() = default;

uint32_t Fabric::add_station_at(Endpoint& endpoint, ns3net::Node node) {
  const auto host = static_cast<uint32_t>(stations_.size());
  auto station = std::make_unique<Station>();
  station->fabric = this;
  station->host = host;
  station->endpoint = &endpoint;
  station->node = node;
  stations_.push_back(std::move(station));
  return host;
}

uint32_t Fabric::add_station(Endpoint& endpoint) {
  const uint32_t host = add_station_at(endpoint, 0);
  stations_[host]->node = network_.add_node(*stations_[host]);
  return host;
}

uint32_t Fabric::add_switch(Endpoint& endpoint) {
  const uint32_t host = add_station(endpoint);
  stations_[host]->aggregates = true;
  if (host == 0) connect_racks();
  return host;
}

uint32_t Fabric::add_rack_switch(Endpoint& endpoint, uint32_t rack) {
  const uint32_t host = add_station_at(endpoint, switch_of(rack));
  stations_[host]->aggregates = true;
  return host;
}

uint32_t Fabric::add_address(uint32_t host, Endpoint& endpoint) {
  const Station& shared = *stations_[host];
  Station& station = *stations_[add_station_at(endpoint, shared.node)];
  station.towards = shared.towards;
  station.rate_bps = shared.rate_bps;
  return station.host;
}

uint32_t Fabric::add_host(Endpoint& endpoint, uint32_t rack, double slower, Nanos farther) {
  ns3net::LinkSpec link = spec_.racks[rack].link;
  link.delay_ns += farther;
  link.rate_bps = static_cast<uint64_t>(static_cast<double>(link.rate_bps) * slower);
  return connect(add_station(endpoint), switch_of(rack), link);
}

uint32_t Fabric::add_host_at(uint32_t at, Endpoint& endpoint, const ns3net::LinkSpec& link) {
  return connect(add_station(endpoint), stations_[at]->node, link);
}

uint32_t Fabric::connect(uint32_t host, ns3net::Node to, const ns3net::LinkSpec& link) {
  Station& station = *stations_[host];
  station.towards = to;
  station.rate_bps = link.rate_bps;
  network_.connect(to, station.node, link);
  return host;
}

void Fabric::connect_racks() {
  for (size_t rack = 1; rack < spec_.racks.size(); ++rack) {
    forwarders_.push_back(std::make_unique<Forwarder>(*this));
    forwarders_.back()->node = network_.add_node(*forwarders_.back());
    network_.connect(stations_[0]->node, forwarders_.back()->node, spec_.racks[rack].uplink);
  }
}

ns3net::Node Fabric::switch_of(uint32_t rack) const {
  return rack == 0 ? stations_[0]->node : forwarders_[rack - 1]->node;
}

ns3net::Node Fabric::next_hop(uint32_t from, uint32_t to) const {
  const Station& sender = *stations_[from];
  if (!sender.aggregates) return sender.towards;
  const Station& receiver = *stations_[to];
  if (receiver.aggregates) return receiver.node;
  return receiver.towards == sender.node ? receiver.node : receiver.towards;
}

Charge Fabric::charge_of(uint32_t host) const {
  return stations_[host]->aggregates ? spec_.switch_charge : spec_.host_charge;
}

uint64_t Fabric::rate_bps(uint32_t host) const {
  return stations_[host]->rate_bps;
}

void Fabric::set_uplink_pace(uint32_t host, ns3net::Pace pace) {
  network_.set_pace(stations_[host]->node, stations_[host]->towards, std::move(pace));
}

void Fabric::send(const wire::Envelope& envelope, const wire::Message& message,
                  std::span<const std::byte> payload) {
  const uint32_t from = host_of(envelope.source.ip);
  const uint32_t to = host_of(envelope.destination.ip);
  std::vector<std::byte> frame(wire::kFrameHeaderBytes + payload.size());
  wire::encode_headers(envelope, message, payload, frame);
  if (!payload.empty())
    std::memcpy(&frame[wire::kFrameHeaderBytes], payload.data(), payload.size());
  const uint32_t length = wire_bytes(payload.size());
  work(from, frame.size());
  if (network_.send(stations_[from]->node, next_hop(from, to), std::move(frame), length)) {
    wire_bytes_sent_ += length;
    ++frames_sent_;
  }
}

void Fabric::arrive(ns3net::Node at, std::vector<std::byte> frame, bool marked) {
  const uint32_t to = destination_of(frame);
  if (stations_[to]->node == at)
    deliver(to, std::move(frame), marked);
  else
    forward(at, to, std::move(frame), marked);
}

void Fabric::forward(ns3net::Node from, uint32_t to, std::vector<std::byte> frame, bool marked) {
  const uint32_t length = wire_bytes(frame.size() - wire::kFrameHeaderBytes);
  if (network_.send(from, stations_[to]->node, std::move(frame), length, marked)) {
    wire_bytes_sent_ += length;
    ++frames_sent_;
  }
}

void Fabric::deliver(uint32_t host, std::vector<std::byte> frame, bool marked) {
  Station& station = *stations_[host];
  if (marked) mark(frame);
  const Charge charge = charge_of(host);
  if (charge.packet_ns == 0 && charge.byte_ns == 0) {
    station.inbox.push_back(std::move(frame));
    return station.endpoint->arrived();
  }
  station.backlog.push_back(std::move(frame));
  receive_later(host);
}

/// Makes the host's processor busy with a frame; returns when it is done with it.
Nanos Fabric::work(uint32_t host, size_t frame_bytes) {
  Station& station = *stations_[host];
  const size_t payload = (frame_bytes - wire::kFrameHeaderBytes) * spec_.wire_factor;
  station.busy_until = std::max(station.busy_until, now()) + charge_of(host).of(payload);
  return station.busy_until;
}

/// One frame at a time.
void Fabric::receive_later(uint32_t host) {
  Station& station = *stations_[host];
  if (station.working || station.backlog.empty()) return;
  station.working = true;
  schedule(work(host, station.backlog.front().size()), host, kWorked);
}

bool Fabric::receive(uint32_t host, std::vector<std::byte>& frame) {
  auto& inbox = stations_[host]->inbox;
  if (inbox.empty()) return false;
  frame = std::move(inbox.front());
  inbox.pop_front();
  return true;
}

void Fabric::schedule(Nanos at, uint32_t host, uint64_t argument) {
  network_.schedule(at, *stations_[host], argument);
}

uint64_t Fabric::queued_bytes(uint32_t host) {
  return network_.queued_bytes(stations_[host]->node, stations_[host]->towards);
}

std::pair<ns3net::LinkCounters, ns3net::LinkCounters> Fabric::counters(uint32_t host) const {
  const Station& station = *stations_[host];
  return {network_.counters(station.node, station.towards),
          network_.counters(station.towards, station.node)};
}

std::pair<ns3net::LinkCounters, ns3net::LinkCounters> Fabric::uplink_counters(uint32_t rack) const {
  const ns3net::Node far = switch_of(rack);
  return {network_.counters(far, stations_[0]->node), network_.counters(stations_[0]->node, far)};
}

}  // namespace ina::sim
