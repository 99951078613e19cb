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
    inbox_[in_flight_.top().host].push_back(in_flight_.top().frame);
    ++waiting_;
    in_flight_.pop();
  }
}

/// Its bytes are what its last use has left.
SimNetwork::FrameIndex SimNetwork::new_frame(size_t bytes) {
  if (free_.empty()) {
    free_.push_back(static_cast<FrameIndex>(frames_.size()));
    frames_.emplace_back();
  }
  const FrameIndex index = free_.back();
  free_.pop_back();
  frames_[index].resize(bytes);
  return index;
}

void SimNetwork::launch(uint32_t host, FrameIndex index) {
  std::vector<std::byte>& frame = frames_[index];
  Nanos arrival = now_ + faults_.delay_ns;
  if (happens(faults_.reorder)) arrival += up_to(faults_.reorder_delay_ns);
  if (happens(faults_.spike)) arrival += faults_.spike_ns + up_to(faults_.spike_ns);
  if (happens(faults_.corrupt)) {
    ++counters_.corrupted;
    const size_t bit = random_() % (frame.size() * 8);
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  in_flight_.push({(arrival + kTick - 1) / kTick * kTick, order_++, host, index});
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
  const FrameIndex index =
      new_frame(std::max(wire::kMinFrameBytes, wire::kFrameHeaderBytes + payload.size()));
  std::vector<std::byte>& frame = frames_[index];
  const size_t headers = wire::encode_headers(envelope, message, payload, frame);
  const auto padding =
      std::copy(payload.begin(), payload.end(), frame.begin() + static_cast<ptrdiff_t>(headers));
  std::fill(padding, frame.end(), std::byte{});
  if (happens(faults_.duplicate)) {
    ++counters_.duplicated;
    const FrameIndex copy = new_frame(frame.size());
    std::ranges::copy(frames_[index], frames_[copy].begin());
    launch(host, copy);
  }
  launch(host, index);
}

bool SimNetwork::receive(uint32_t host, std::vector<std::byte>& frame) {
  if (inbox_[host].empty()) return false;
  const FrameIndex index = inbox_[host].front();
  frame.swap(frames_[index]);
  free_.push_back(index);
  inbox_[host].pop_front();
  --waiting_;
  return true;
}

void SimNetwork::discard(uint32_t host) {
  waiting_ -= inbox_[host].size();
  free_.insert(free_.end(), inbox_[host].begin(), inbox_[host].end());
  inbox_[host].clear();
}

EndpointIndex SimPort::bind(uint32_t host, JobId job_id, uint64_t job_key, JobIndex job,
                            Rank rank) {
  bindings_.push_back(Binding{host, job_id, job_key, job, rank});
  if (by_host_.size() <= host) by_host_.resize(host + 1, kNone);
  by_host_[host] = static_cast<EndpointIndex>(bindings_.size() - 1);
  return by_host_[host];
}

void SimPort::unbind(EndpointIndex endpoint) {
  by_host_[bindings_[endpoint]->host] = kNone;
  bindings_[endpoint].reset();
}

size_t SimPort::rx_burst(std::span<RxPacket> burst) {
  size_t count = 0;
  while (count < burst.size()) {
    const std::vector<std::byte>* const bytes = frames_.next(network_, host_);
    if (!bytes) break;
    ++counters_.rx_packets;
    const auto frame = wire::parse_frame(*bytes, wire::kDefaultUdpPort, 1);
    if (!frame) {
      counters_.drops.add(frame.error());
      continue;
    }
    const uint32_t host = frame->envelope.source.ip - Network::address_of(0).ip;
    const auto endpoint = host < by_host_.size() ? by_host_[host] : kNone;
    if (endpoint == kNone || frame->envelope.source != Network::address_of(host)) {
      counters_.drops.add(DropReason::kUnknownSource);
      continue;
    }
    const Binding& from = *bindings_[endpoint];
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
  while (count < packets.size()) {
    const std::vector<std::byte>* const bytes = frames_.next(network_, host_);
    if (!bytes) break;
    const auto frame = wire::parse_frame(*bytes, wire::kDefaultUdpPort, 1);
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
