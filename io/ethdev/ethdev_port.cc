#include "io/ethdev/ethdev_port.h"

#include <rte_prefetch.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/ethdev/neighbour.h"

namespace ina::io {
namespace {

std::byte* data_of(rte_mbuf* buffer) {
  return rte_pktmbuf_mtod(buffer, std::byte*);
}

/// Describes payloads that no buffer owns. Never freed, so the count starts at one.
rte_mbuf_ext_shared_info* foreign_memory() {
  static rte_mbuf_ext_shared_info* const info = [] {
    static rte_mbuf_ext_shared_info shared{};
    shared.free_cb = [](void*, void*) {};
    rte_mbuf_ext_refcnt_set(&shared, 1);
    return &shared;
  }();
  return info;
}

/// The switch's own results do; a fallback's lie in its memory.
bool lies_in_result_ring(const wire::Message& message) {
  return message.type == wire::Type::kResult && message.origin == wire::Origin::kSwitch;
}

/// The hash of the last result that this thread sent, which goes to all workers, by several ports.
struct LastHash {
  wire::SipKey key;
  std::span<const std::byte> payload;  ///< empty: none
  uint64_t hash = 0;
};
thread_local LastHash last_hash;

/// `stays`: until the next rx_burst() of this thread.
uint64_t payload_hash(const wire::SipKey& key, std::span<const std::byte> payload, bool stays) {
  if (!stays) return wire::siphash(key, payload);
  LastHash& last = last_hash;
  if (last.payload.data() != payload.data() || last.payload.size() != payload.size() ||
      last.key != key)
    last = {key, payload, wire::siphash(key, payload)};
  return last.hash;
}

std::vector<uint32_t> own_ips(const EthdevPortConfig& config) {
  std::vector<uint32_t> ips = config.switch_ips;
  ips.push_back(config.ip);
  return ips;
}

std::string ip_text(uint32_t ip) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8)
    text += std::to_string(ip >> shift & 0xff) + (shift == 0 ? "" : ".");
  return text;
}

std::string to_text(const wire::Address& address) {
  return ip_text(address.ip) + ":" + std::to_string(address.udp_port);
}

}  // namespace

Result<std::unique_ptr<EthdevPort>> EthdevPort::open(const EthdevPortConfig& config) {
  const auto invalid = [&](const std::string& what) {
    return fail(INA_ERR_INVALID, "Port " + config.name + ": " + what);
  };
  const uint32_t needed_mtu =
      static_cast<uint32_t>(wire::kFrameHeaderBytes - wire::kEthernetBytes) + config.slot_bytes;
  if (config.ip == 0) return invalid("it has no IP address.");
  if (config.udp_port == 0 || config.lanes == 0 || config.udp_port + config.lanes > 65536)
    return invalid("UDP ports " + std::to_string(config.udp_port) + " and the " +
                   std::to_string(config.lanes) + " lanes from there are not all within 1..65535.");
  if (config.mtu < needed_mtu)
    return invalid("slots of " + std::to_string(config.slot_bytes) + " bytes need an mtu of " +
                   std::to_string(needed_mtu) + ", it has " + std::to_string(config.mtu) + ".");
  if (config.max_endpoints == 0 || config.max_endpoints > 4096)
    return invalid("max_endpoints " + std::to_string(config.max_endpoints) +
                   " is not within 1..4096.");
  auto device = Device::open({.device = config.device,
                              .mtu = config.mtu,
                              .rx_descriptors = config.rx_descriptors,
                              .tx_descriptors = config.tx_descriptors,
                              .lent_buffers = config.lent_buffers});
  if (!device)
    return fail(device.error().status, "Port " + config.name + ": " + device.error().text);
  return std::unique_ptr<EthdevPort>(new EthdevPort(config, std::move(*device)));
}

EthdevPort::EthdevPort(const EthdevPortConfig& config, std::unique_ptr<Device> device)
    : config_(config),
      device_(std::move(device)),
      own_{device_->mac(), config.ip, config.udp_port},
      guard_(own_ips(config), config.hosts),
      endpoints_(config.max_endpoints) {}

EthdevPort::~EthdevPort() {
  rx_release();
  drop_shared();
  for (uint16_t i = 0; i < queued_count_; ++i) rte_pktmbuf_free(queued_[i]);
}

Result<EndpointIndex> EthdevPort::bind(const wire::Address& worker, JobId job_id, uint64_t job_key,
                                       JobIndex job, Rank rank,
                                       const std::optional<wire::TagKeys>& tag_keys) {
  if (!guard_.allows(bridge::HostAddress{worker.mac, worker.ip}))
    return fail(INA_ERR_REFUSED,
                "Port " + config_.name + ": no host with the address " + ip_text(worker.ip) +
                    " and the worker's MAC address is in the port's list (hosts).");
  EndpointTable::Refusal refusal{};
  const auto index = endpoints_.insert({.address = worker,
                                        .job_id = job_id,
                                        .job_key = job_key,
                                        .job = job,
                                        .rank = rank,
                                        .tag_keys = tag_keys},
                                       refusal);
  if (index) return *index;
  if (refusal == EndpointTable::Refusal::kTaken)
    return fail(INA_ERR_REFUSED, "Port " + config_.name + ": a worker at " + to_text(worker) +
                                     " is bound already; each needs an address and UDP port of its "
                                     "own.");
  return fail(INA_ERR_REFUSED, "Port " + config_.name + ": it has no room for more than " +
                                   std::to_string(endpoints_.capacity()) + " workers.");
}

void EthdevPort::unbind(EndpointIndex endpoint) {
  endpoints_.erase(endpoint);
  // The job's result ring may go next.
  drop_shared();
}

// ---- receiving ---------------------------------------------------------------------------------

size_t EthdevPort::rx_burst(std::span<RxPacket> burst) {
  rx_release();
  last_hash.payload = {};
  const auto room = static_cast<uint16_t>(std::min<size_t>(burst.size(), held_.size()));
  held_count_ = device_->rx(held_.data(), room);
  transit_count_ = 0;
  counters_.rx_packets += held_count_;
  for (uint16_t i = 0; i < held_count_; ++i) rte_prefetch0(data_of(held_[i]));
  size_t filled = 0;
  for (uint16_t i = 0; i < held_count_; ++i)
    if (take(i, burst[filled])) ++filled;
  if (tagged_count_ != 0) filled += accept_tagged(burst.subspan(filled));
  for (const RxPacket& packet : burst.first(filled)) counters_.rx_bytes += packet.payload_bytes;
  // Workers must not give way to others' traffic, which does not give way to theirs: only what they
  // send themselves is theirs to send less of.
  largest_burst_ = std::max<uint32_t>(largest_burst_, room);
  backlog_ = held_count_ == room && 4 * filled >= 3 * size_t{room} ? backlog_ + room : 0;
  ethdev_counters_.delivered += filled;
  // Answers do not wait for the datapath, which has nothing to say if nothing was for it.
  if (filled == 0 && queued_count_ != 0) tx_flush();
  return filled;
}

void EthdevPort::rx_release() {
  // A place is empty where the buffer went out as an answer.
  rte_pktmbuf_free_bulk(held_.data(), held_count_);
  held_count_ = 0;
}

bool EthdevPort::take(size_t place, RxPacket& packet) {
  rte_mbuf* const buffer = held_[place];
  // A buffer holds the largest frame of the mtu, so what needs several is none of ours.
  if (buffer->nb_segs != 1) [[unlikely]] {
    counters_.drops.add(DropReason::kBadLength);
    return false;
  }
  const std::span<std::byte> frame(data_of(buffer), buffer->data_len);
  uint32_t ip = own_.ip;
  if (config_.bridged && !is_for_switch(frame, ip)) {
    if (guard_.allows(frame)) [[likely]]
      put_aside(place);
    else
      counters_.drops.add(DropReason::kForeignSource);
    return false;
  }
  DropReason reason{};
  const Endpoint* endpoint = nullptr;
  Tagged& parsed = tagged_[tagged_count_];
  if (parse(frame, parsed.frame, endpoint, reason)) [[likely]] {
    if (!endpoint->tag_keys) return accept(parsed.frame, *endpoint, packet);
    parsed.endpoint = endpoint;
    ++tagged_count_;
    return false;
  }
  bool may_answer = reason == DropReason::kNotIna && frame.size() >= wire::kEthernetBytes;
  if (may_answer && !guard_.allows(frame)) {
    may_answer = false;
    reason = DropReason::kForeignSource;
  }
  if (const auto addresses = may_answer ? bridge::addresses_of(frame) : bridge::Addresses{};
      may_answer && answer_in_place(frame, {.mac = own_.mac, .ip = ip})) {
    answer(place);
    if (config_.bridged) transit_[transit_count_++] = {.addresses = addresses};
    return false;
  }
  counters_.drops.add(reason);
  return false;
}

/// By the IP address that it is sent to, whatever the MAC address. `ip`: the one of the switch that
/// it is. What has the switch's MAC address alone is the bridge's to drop. True as well for frames
/// too short to have addresses.
bool EthdevPort::is_for_switch(std::span<const std::byte> frame, uint32_t& ip) const {
  if (frame.size() < wire::kEthernetBytes) return true;
  const uint32_t addressed = addressed_ip(frame);
  if (addressed == own_.ip) [[likely]]
    return true;
  if (addressed == 0 ||
      std::ranges::find(config_.switch_ips, addressed) == config_.switch_ips.end())
    return false;
  ip = addressed;
  return true;
}

/// True: an INA frame of the worker at `endpoint`, as far as can be told without tags.
bool EthdevPort::parse(std::span<const std::byte> frame, wire::Frame& parsed,
                       const Endpoint*& endpoint, DropReason& reason) const {
  const auto drop = [&reason](DropReason why) {
    reason = why;
    return false;
  };
  const auto unchecked = wire::parse_unchecked(frame, config_.udp_port, config_.lanes);
  if (!unchecked) return drop(unchecked.error());
  parsed = *unchecked;
  const wire::Envelope& envelope = parsed.envelope;
  if (envelope.destination.ip != own_.ip) return drop(DropReason::kNotIna);
  endpoint = endpoints_.find(envelope.source);
  if (endpoint == nullptr) return drop(DropReason::kUnknownSource);
  if (envelope.job != endpoint->job_id || envelope.job_key != endpoint->job_key)
    return drop(DropReason::kBadJob);
  // After what asks who it is: it reads the whole frame, which a flood of strangers' should not be
  // worth.
  if (!wire::crc_matches(parsed)) return drop(DropReason::kCrc);
  return true;
}

/// The frame is its worker's.
bool EthdevPort::accept(const wire::Frame& frame, const Endpoint& endpoint, RxPacket& packet) {
  if (const auto invalid = wire::validate(frame.message, frame.payload_bytes, config_.slot_bytes)) {
    counters_.drops.add(*invalid);
    return false;
  }
  packet = {.message = frame.message,
            .payload = frame.payload,
            .payload_bytes = frame.payload_bytes,
            .job = endpoint.job,
            .rank = endpoint.rank};
  return true;
}

/// Those of a burst that carry tags; payloads of one length after another are hashed together.
size_t EthdevPort::accept_tagged(std::span<RxPacket> burst) {
  std::array<wire::SipInput, Device::kMaxBurst> payloads;
  std::array<uint64_t, Device::kMaxBurst> hashes;
  for (size_t first = 0; first < tagged_count_;) {
    const uint32_t bytes = tagged_[first].frame.payload_bytes;
    size_t count = 0;
    for (; first + count < tagged_count_ && tagged_[first + count].frame.payload_bytes == bytes;
         ++count) {
      const Tagged& tagged = tagged_[first + count];
      payloads[count] = {tagged.endpoint->tag_keys->payload, tagged.frame.payload};
    }
    wire::siphash_many({payloads.data(), count}, bytes, {&hashes[first], count});
    first += count;
  }
  size_t filled = 0;
  for (size_t i = 0; i < tagged_count_; ++i) {
    const auto& [frame, endpoint] = tagged_[i];
    if (!wire::tag_matches(frame, {endpoint->tag_keys->frame, hashes[i]}))
      counters_.drops.add(DropReason::kBadTag);
    else if (accept(frame, *endpoint, burst[filled]))
      ++filled;
  }
  tagged_count_ = 0;
  return filled;
}

void EthdevPort::answer(size_t place) {
  rte_mbuf* const buffer = std::exchange(held_[place], nullptr);
  queue(buffer, Queued::kAnswer, buffer->pkt_len);
  ++ethdev_counters_.answered;
}

// ---- frames in transit -------------------------------------------------------------------------
//
// The buffer in which a frame came in is the one that goes out, by several ports at once where it
// is flooded: drivers only read what others hold too, and give back one reference each.

void EthdevPort::put_aside(size_t place) {
  rte_mbuf* const buffer = std::exchange(held_[place], nullptr);
  // What the device noted on receipt must not be taken for an order to the one that sends.
  buffer->ol_flags &= RTE_MBUF_F_EXTERNAL | RTE_MBUF_F_INDIRECT;
  transit_[transit_count_++] = {
      .addresses = bridge::addresses_of({data_of(buffer), buffer->data_len}), .buffer = buffer};
}

void EthdevPort::drop_transit(const Transit& frame, DropReason reason) {
  rte_pktmbuf_free(frame.buffer);
  counters_.drops.add(reason);
}

void EthdevPort::hand_over(const Transit&) {
  ++ethdev_counters_.forwarded;
}

void EthdevPort::hand_over_to_all(const Transit& frame, uint16_t ports) {
  rte_mbuf_refcnt_update(frame.buffer, static_cast<int16_t>(ports - 1));
  ++ethdev_counters_.flooded;
  ethdev_counters_.flood_copies += ports;
}

void EthdevPort::send_transit(const Transit& frame) {
  if (frame.buffer->pkt_len > device_->frame_bytes() + 2 * Device::kVlanTagBytes) {
    rte_pktmbuf_free(frame.buffer);
    counters_.drops.add(DropReason::kTooLong);
    ++ethdev_counters_.bridged_lost;
    return;
  }
  queue(frame.buffer, Queued::kTransit, frame.buffer->pkt_len);
}

// ---- sending -----------------------------------------------------------------------------------
//
// The payload of a result is not copied here if the device copies it anyway (Device::
// sends_from_outside): the frames of all workers of a job chain one buffer that refers to the row
// of the result ring. The row may be read until the device has taken the frame, which is at the
// latest in the tx_flush() that ends the datapath's burst. It is not overwritten before: the row of
// fragment s is written again for s + 2W, which needs a GRAD of s + 2W from every worker, which
// each sends only when it has the result of s + W, which no worker has before a tx_flush() that
// also sent s. Other payloads (partial sums, what one worker sends to another) stay as they are
// during tx() only, so the device is made to take such a frame at once. A device that might hold a
// frame after taking it gets a copy instead, so that nothing refers to a ring whose job has gone.

bool EthdevPort::tx(EndpointIndex index, const wire::Message& message,
                    std::span<const std::byte> payload) {
  if (!endpoints_.contains(index)) {  // unbound meanwhile: nobody is there to take it
    counters_.drops.add(DropReason::kTxFull);
    return false;
  }
  if (queued_count_ == queued_.size()) tx_flush();
  rte_mbuf* const frame = rte_pktmbuf_alloc(device_->tx_pool());
  if (frame == nullptr) {
    counters_.drops.add(DropReason::kNoBuffer);
    return false;
  }
  const Endpoint& to = endpoints_[index];
  const wire::Envelope envelope{
      .source = own_, .destination = to.address, .job = to.job_id, .job_key = to.job_key, .tag = 0};
  auto* const headers =
      reinterpret_cast<std::byte*>(rte_pktmbuf_append(frame, wire::kFrameHeaderBytes));
  // The checksum is made anew for each worker, over a payload that is in the cache by then. Its
  // part over the payload is the same for all of them and could be combined instead.
  wire::Message marked = message;
  if (congested() && message.type == wire::Type::kResult) marked.flags |= wire::kFlagEcn;
  std::optional<wire::Seal> seal;
  if (to.tag_keys)
    seal = {to.tag_keys->frame,
            payload_hash(to.tag_keys->payload, payload, lies_in_result_ring(message))};
  wire::encode_headers(envelope, marked, payload, {headers, wire::kFrameHeaderBytes},
                       seal ? &*seal : nullptr);
  if (!payload.empty() && !append_payload(frame, payload)) {
    rte_pktmbuf_free(frame);
    counters_.drops.add(DropReason::kNoBuffer);
    return false;
  }
  queue(frame, Queued::kMessage, payload.size());
  if (frame->nb_segs > 1 && !lies_in_result_ring(message)) tx_flush();
  return true;
}

bool EthdevPort::append_payload(rte_mbuf* head, std::span<const std::byte> payload) {
  if (!device_->sends_from_outside()) {
    if (payload.size() > rte_pktmbuf_tailroom(head)) return false;
    std::memcpy(rte_pktmbuf_append(head, static_cast<uint16_t>(payload.size())), payload.data(),
                payload.size());
    return true;
  }
  rte_mbuf* const tail = share(payload);
  if (tail == nullptr) return false;
  head->next = tail;
  head->nb_segs = 2;
  head->pkt_len += tail->data_len;
  return true;
}

/// A buffer that refers to `payload`, with a reference for the caller.
rte_mbuf* EthdevPort::share(std::span<const std::byte> payload) {
  if (shared_ == nullptr || payload.data() != shared_payload_.data() ||
      payload.size() != shared_payload_.size()) {
    drop_shared();
    shared_ = rte_pktmbuf_alloc(device_->tx_pool());
    if (shared_ == nullptr) return nullptr;
    rte_mbuf_ext_refcnt_update(foreign_memory(), 1);
    const auto bytes = static_cast<uint16_t>(payload.size());
    // The device only reads it; DPDK has no const buffers.
    rte_pktmbuf_attach_extbuf(shared_, const_cast<std::byte*>(payload.data()), RTE_BAD_IOVA, bytes,
                              foreign_memory());
    shared_->data_len = bytes;
    shared_->pkt_len = bytes;
    shared_payload_ = payload;
  }
  rte_mbuf_refcnt_update(shared_, 1);
  return shared_;
}

void EthdevPort::drop_shared() {
  rte_pktmbuf_free(shared_);
  shared_ = nullptr;
  shared_payload_ = {};
}

void EthdevPort::queue(rte_mbuf* frame, Queued kind, size_t bytes) {
  if (queued_count_ == queued_.size()) tx_flush();
  queued_[queued_count_] = frame;
  queued_kind_[queued_count_] = kind;
  queued_bytes_[queued_count_] = static_cast<uint32_t>(bytes);
  ++queued_count_;
}

void EthdevPort::tx_flush() {
  uint16_t sent = 0;
  while (sent < queued_count_) {
    const uint16_t now = device_->tx(queued_.data() + sent, queued_count_ - sent);
    if (now == 0) break;
    sent += now;
  }
  for (uint16_t i = 0; i < sent; ++i) {
    if (queued_kind_[i] == Queued::kMessage) {
      ++counters_.tx_packets;
      counters_.tx_bytes += queued_bytes_[i];
    } else if (queued_kind_[i] == Queued::kTransit) {
      ++ethdev_counters_.bridged_sent;
      ethdev_counters_.bridged_sent_bytes += queued_bytes_[i];
    }
  }
  // What the device does not take is lost, as on any full link: the worker asks again.
  for (uint16_t i = sent; i < queued_count_; ++i) {
    rte_pktmbuf_free(queued_[i]);
    counters_.drops.add(DropReason::kTxFull);
    if (queued_kind_[i] == Queued::kTransit) ++ethdev_counters_.bridged_lost;
  }
  queued_count_ = 0;
}

}  // namespace ina::io
