#include "io/sim/sim_network.h"

#include <algorithm>

namespace ina::io::sim {

static_assert(SwitchPort<SimPort>);

wire::Address SimNetwork::address_of(uint32_t host) {
  wire::Address address;
  address.mac = {0x02, 0, 0, 0, static_cast<uint8_t>(host >> 8), static_cast<uint8_t>(host)};
  address.ip = 0x0a000000 + host + 1;
  address.udp_port = wire::kDefaultUdpPort;
  return address;
}

void SimNetwork::advance(Nanos limit) {
  now_ = in_flight_.empty() ? limit : std::clamp(in_flight_.top().arrival, now_, limit);
}

void SimNetwork::launch(uint32_t host, std::vector<std::byte> frame) {
  Nanos arrival = now_ + faults_.delay_ns;
  if (happens(faults_.reorder))
    arrival += std::uniform_int_distribution<Nanos>(0, faults_.reorder_delay_ns)(random_);
  if (happens(faults_.corrupt)) {
    const auto bit = std::uniform_int_distribution<size_t>(0, frame.size() * 8 - 1)(random_);
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  in_flight_.push({arrival, order_++, host, std::move(frame)});
}

void SimNetwork::send(const wire::Envelope& envelope, const wire::Message& message,
                      std::span<const std::byte> payload) {
  ++sent_;
  if (happens(faults_.loss)) {
    ++lost_;
    return;
  }
  std::vector<std::byte> frame(
      std::max(wire::kMinFrameBytes, wire::kFrameHeaderBytes + payload.size()));
  const size_t headers = wire::encode_headers(envelope, message, payload, frame);
  std::copy(payload.begin(), payload.end(), frame.begin() + static_cast<ptrdiff_t>(headers));
  const uint32_t host = envelope.destination.ip - address_of(0).ip;
  if (happens(faults_.duplicate)) launch(host, frame);
  launch(host, std::move(frame));
}

bool SimNetwork::receive(uint32_t host, std::vector<std::byte>& frame) {
  // Only what has arrived; another host's frame at the head waits for its owner.
  if (in_flight_.empty() || in_flight_.top().arrival > now_ || in_flight_.top().host != host)
    return false;
  frame = std::move(const_cast<Flying&>(in_flight_.top()).frame);
  in_flight_.pop();
  return true;
}

EndpointIndex SimPort::bind(uint32_t host, JobId job_id, uint64_t job_key, JobIndex job,
                            Rank rank) {
  bindings_.push_back({host, job_id, job_key, job, rank});
  return static_cast<EndpointIndex>(bindings_.size() - 1);
}

size_t SimPort::rx_burst(std::span<RxPacket> burst) {
  size_t count = 0;
  std::vector<std::byte> bytes;
  while (count < burst.size() && network_.receive(0, bytes)) {
    ++counters_.rx_packets;
    frames_.push_back(std::move(bytes));
    const auto frame = wire::parse_frame(frames_.back(), wire::kDefaultUdpPort, 1);
    if (!frame) {
      counters_.drops.add(frame.error());
      continue;
    }
    const auto binding =
        std::find_if(bindings_.begin(), bindings_.end(), [&](const Binding& known) {
          return SimNetwork::address_of(known.host) == frame->envelope.source;
        });
    if (binding == bindings_.end()) {
      counters_.drops.add(DropReason::kUnknownSource);
      continue;
    }
    if (frame->envelope.job != binding->job_id || frame->envelope.job_key != binding->job_key) {
      counters_.drops.add(DropReason::kBadJob);
      continue;
    }
    if (const auto reason = wire::validate(frame->message, frame->payload_bytes, slot_bytes_)) {
      counters_.drops.add(*reason);
      continue;
    }
    counters_.rx_bytes += frame->payload_bytes;
    burst[count++] = {frame->message, frame->payload, frame->payload_bytes, binding->job,
                      binding->rank};
  }
  return count;
}

bool SimPort::tx(EndpointIndex endpoint, const wire::Message& message,
                 std::span<const std::byte> payload) {
  const Binding& to = bindings_[endpoint];
  wire::Envelope envelope;
  envelope.source = SimNetwork::address_of(0);
  envelope.destination = SimNetwork::address_of(to.host);
  envelope.job = to.job_id;
  envelope.job_key = to.job_key;
  network_.send(envelope, message, payload);
  ++counters_.tx_packets;
  counters_.tx_bytes += payload.size();
  return true;
}

SimTransport::SimTransport(SimNetwork& network, uint32_t host, JobId job, uint64_t job_key,
                           uint32_t slot_bytes)
    : network_(network), host_(host), slot_bytes_(slot_bytes) {
  envelope_.source = SimNetwork::address_of(host);
  envelope_.destination = SimNetwork::address_of(0);
  envelope_.job = job;
  envelope_.job_key = job_key;
}

size_t SimTransport::tx_burst(std::span<const client::TxPacket> packets) {
  for (const client::TxPacket& packet : packets)
    network_.send(envelope_, packet.message, {packet.payload, packet.payload_bytes});
  return packets.size();
}

size_t SimTransport::rx_burst(std::span<client::RxPacket> packets) {
  size_t count = 0;
  std::vector<std::byte> bytes;
  while (count < packets.size() && network_.receive(host_, bytes)) {
    frames_.push_back(std::move(bytes));
    const auto frame = wire::parse_frame(frames_.back(), wire::kDefaultUdpPort, 1);
    if (!frame || frame->envelope.job != envelope_.job ||
        frame->envelope.job_key != envelope_.job_key ||
        wire::validate(frame->message, frame->payload_bytes, slot_bytes_)) {
      ++counters_.dropped;
      continue;
    }
    packets[count++] = {frame->message, frame->payload, frame->payload_bytes};
  }
  return count;
}

}  // namespace ina::io::sim
