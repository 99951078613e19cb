#include "sim/network/sim_network.h"

#include <algorithm>

namespace ina::io::sim {

static_assert(SwitchPort<SimPort>);

namespace {
constexpr Nanos kTick = 1'000;  // arrivals are rounded up to this, so that they come in bursts
}

wire::Address Network::address_of(uint32_t host) {
  wire::Address address;
  address.mac = {0x02, 0, 0, 0, static_cast<uint8_t>(host >> 8), static_cast<uint8_t>(host)};
  address.ip = 0x0a000000 + host + 1;
  address.udp_port = wire::kDefaultUdpPort;
  return address;
}

void SimNetwork::advance(Nanos limit) {
  now_ = in_flight_.empty() ? limit : std::clamp(in_flight_.top().arrival, now_, limit);
  while (!in_flight_.empty() && in_flight_.top().arrival <= now_) {
    auto& top = const_cast<Flying&>(in_flight_.top());
    inbox_[top.host].push_back(std::move(top.frame));
    ++waiting_;
    in_flight_.pop();
  }
}

void SimNetwork::launch(uint32_t host, std::vector<std::byte> frame) {
  Nanos arrival = now_ + faults_.delay_ns;
  if (happens(faults_.reorder)) arrival += up_to(faults_.reorder_delay_ns);
  if (happens(faults_.spike)) arrival += faults_.spike_ns + up_to(faults_.spike_ns);
  if (happens(faults_.corrupt)) {
    ++counters_.corrupted;
    const size_t bit = random_() % (frame.size() * 8);
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  in_flight_.push({(arrival + kTick - 1) / kTick * kTick, order_++, host, std::move(frame)});
}

void SimNetwork::send(const wire::Envelope& envelope, const wire::Message& message,
                      std::span<const std::byte> payload) {
  ++counters_.sent;
  const uint32_t host = envelope.destination.ip - address_of(0).ip;
  const uint32_t from = envelope.source.ip - address_of(0).ip;
  if (burst_left_ == 0 && happens(faults_.burst)) burst_left_ = faults_.burst_frames;
  const bool in_burst = burst_left_ != 0;
  if (in_burst) --burst_left_;
  if (in_burst || now_ < cut_of(from, host) || happens(faults_.loss)) {
    ++counters_.lost;
    return;
  }
  std::vector<std::byte> frame(
      std::max(wire::kMinFrameBytes, wire::kFrameHeaderBytes + payload.size()));
  const size_t headers = wire::encode_headers(envelope, message, payload, frame);
  std::copy(payload.begin(), payload.end(), frame.begin() + static_cast<ptrdiff_t>(headers));
  if (happens(faults_.duplicate)) {
    ++counters_.duplicated;
    launch(host, frame);
  }
  launch(host, std::move(frame));
}

bool SimNetwork::receive(uint32_t host, std::vector<std::byte>& frame) {
  if (inbox_[host].empty()) return false;
  frame = std::move(inbox_[host].front());
  inbox_[host].pop_front();
  --waiting_;
  return true;
}

void SimNetwork::discard(uint32_t host) {
  waiting_ -= inbox_[host].size();
  inbox_[host].clear();
}

EndpointIndex SimPort::bind(uint32_t host, JobId job_id, uint64_t job_key, JobIndex job,
                            Rank rank) {
  bindings_.push_back(Binding{host, job_id, job_key, job, rank});
  if (by_host_.size() <= host) by_host_.resize(host + 1);
  by_host_[host].push_back(static_cast<EndpointIndex>(bindings_.size() - 1));
  return by_host_[host].back();
}

void SimPort::unbind(EndpointIndex endpoint) {
  std::erase(by_host_[bindings_[endpoint]->host], endpoint);
  bindings_[endpoint].reset();
}

/// The host's binding for the job, or one of another job. nullptr: it has none.
const SimPort::Binding* SimPort::find(uint32_t host, JobId job_id) const {
  if (host >= by_host_.size() || by_host_[host].empty()) return nullptr;
  for (const EndpointIndex endpoint : by_host_[host])
    if (bindings_[endpoint]->job_id == job_id) return &*bindings_[endpoint];
  return &*bindings_[by_host_[host].front()];
}

size_t SimPort::rx_burst(std::span<RxPacket> burst) {
  size_t count = 0;
  std::vector<std::byte> bytes;
  while (count < burst.size() && network_.receive(host_, bytes)) {
    ++counters_.rx_packets;
    frames_.push_back(std::move(bytes));
    const auto frame = wire::parse_frame(frames_.back(), wire::kDefaultUdpPort, 1);
    if (!frame) {
      counters_.drops.add(frame.error());
      continue;
    }
    const uint32_t host = frame->envelope.source.ip - Network::address_of(0).ip;
    const Binding* const binding = find(host, frame->envelope.job);
    if (!binding || frame->envelope.source != Network::address_of(host)) {
      counters_.drops.add(DropReason::kUnknownSource);
      continue;
    }
    const Binding& from = *binding;
    if (frame->envelope.job != from.job_id || frame->envelope.job_key != from.job_key) {
      counters_.drops.add(DropReason::kBadJob);
      continue;
    }
    if (const auto reason = wire::validate(frame->message, frame->payload_bytes, slot_bytes_)) {
      counters_.drops.add(*reason);
      continue;
    }
    counters_.rx_bytes += frame->payload_bytes;
    burst[count++] = {frame->message, frame->payload, frame->payload_bytes, from.job, from.rank};
  }
  return count;
}

bool SimPort::tx(EndpointIndex endpoint, const wire::Message& message,
                 std::span<const std::byte> payload) {
  const auto& to = bindings_[endpoint];
  if (!to) return false;
  wire::Envelope envelope;
  envelope.source = Network::address_of(host_);
  envelope.destination = Network::address_of(to->host);
  envelope.job = to->job_id;
  envelope.job_key = to->job_key;
  network_.send(envelope, message, payload);
  ++counters_.tx_packets;
  counters_.tx_bytes += payload.size();
  return true;
}

SimTransport::SimTransport(Network& network, uint32_t host, JobId job, uint64_t job_key,
                           uint32_t slot_bytes, uint32_t first_lane)
    : network_(network), host_(host), slot_bytes_(slot_bytes), first_lane_(first_lane) {
  envelope_.source = Network::address_of(host);
  envelope_.job = job;
  envelope_.job_key = job_key;
}

size_t SimTransport::tx_burst(std::span<const client::TxPacket> packets) {
  for (const client::TxPacket& packet : packets) {
    envelope_.destination = Network::address_of(first_lane_ + packet.message.lane);
    network_.send(envelope_, packet.message, {packet.payload, packet.payload_bytes});
  }
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
