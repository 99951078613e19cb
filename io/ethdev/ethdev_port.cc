#include "io/ethdev/ethdev_port.h"

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_prefetch.h>
#include <rte_udp.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/clock.h"
#include "io/ethdev/neighbour.h"
#include "wire/group.h"

namespace ina::io {
namespace {

constexpr Nanos kAnswerEveryNs = 1'000'000;  ///< ARP and ICMP echo
constexpr Nanos kAnswersAtOnce = 100;

std::byte* data_of(rte_mbuf* buffer) {
  return rte_pktmbuf_mtod(buffer, std::byte*);
}

std::span<std::byte> bytes_of(rte_mbuf* buffer) {
  return {data_of(buffer), buffer->data_len};
}

/// What follows the tag, as if the addresses stood right before that.
std::span<const std::byte> behind_tag(std::span<const std::byte> tagged) {
  return tagged.subspan(Device::kVlanTagBytes);
}

/// Takes the tag off, if the device has not. Returns its VLAN; 0: there is none, or it names none.
uint16_t remove_tag(rte_mbuf* buffer) {
  constexpr uint64_t kOff = RTE_MBUF_F_RX_VLAN_STRIPPED;
  if ((buffer->ol_flags & kOff) == 0 &&
      (bridge::vlan_of(bytes_of(buffer)) == 0 || rte_vlan_strip(buffer) != 0))
    return 0;
  return buffer->vlan_tci & (bridge::kVlans - 1);
}

/// The switch's own results do; a fallback's lie in its memory.
bool lies_in_result_ring(const wire::Message& message) {
  return message.type == wire::Type::kResult && message.origin == wire::Origin::kSwitch;
}

/// What the device noted on receipt must not be taken for an order to the one that sends.
void forget_receipt(rte_mbuf* buffer) {
  buffer->ol_flags &= RTE_MBUF_F_EXTERNAL | RTE_MBUF_F_INDIRECT;
}

/// As rte_mbuf.h asks for: its own place zero, that of the datagram filled with the sum over the
/// addresses. Without the device a datagram has no checksum: its content has a better one.
void leave_checksums_to_device(rte_mbuf* frame, uint64_t flags) {
  frame->ol_flags |= flags;
  frame->l2_len = wire::kEthernetBytes;
  frame->l3_len = wire::kIpv4Bytes;
  auto* const ip = rte_pktmbuf_mtod_offset(frame, rte_ipv4_hdr*, wire::kEthernetBytes);
  ip->hdr_checksum = 0;
  if ((flags & RTE_MBUF_F_TX_L4_MASK) == 0) return;
  reinterpret_cast<rte_udp_hdr*>(ip + 1)->dgram_cksum = rte_ipv4_phdr_cksum(ip, flags);
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
  std::vector<uint32_t> ips{config.ip};
  for (const SwitchAddress& address : config.switch_addresses) ips.push_back(address.ip);
  return ips;
}

Steering steering_of(const EthdevPortConfig& config) {
  return {.ip = config.ip, .udp_port = config.udp_port, .lanes = config.lanes, .vlan = config.vlan};
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

Result<std::vector<std::unique_ptr<EthdevPort>>> EthdevPort::open(const EthdevPortConfig& config) {
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
  if (config.vlan >= bridge::kVlans - 1)
    return invalid("VLAN " + std::to_string(config.vlan) + " is not within 1..4094.");
  if (config.max_endpoints == 0 || config.max_endpoints > 4096)
    return invalid("max_endpoints " + std::to_string(config.max_endpoints) +
                   " is not within 1..4096.");
  auto device = Device::open({.device = config.device,
                              .mtu = config.mtu,
                              .rx_descriptors = config.rx_descriptors,
                              .tx_descriptors = config.tx_descriptors,
                              .lent_buffers = config.lent_buffers,
                              .lanes = config.lanes,
                              .ring_frames = FrameRing::kFrames,
                              .promiscuous = config.bridged,
                              .inserts_tags = config.vlan != 0,
                              .strips_tags = config.vlan != 0 && !config.bridged});
  if (!device)
    return fail(device.error().status, "Port " + config.name + ": " + device.error().text);
  auto common = std::make_shared<Common>();
  common->device = std::move(*device);
  common->steered = common->device->steer(steering_of(config));
  std::vector<std::unique_ptr<EthdevPort>> lanes;
  for (uint16_t lane = 0; lane < config.lanes; ++lane)
    lanes.push_back(std::unique_ptr<EthdevPort>(new EthdevPort(config, common, lane)));
  connect(*common, lanes);
  return lanes;
}

EthdevPort::EthdevPort(const EthdevPortConfig& config, std::shared_ptr<Common> common,
                       uint16_t lane)
    : config_(config),
      common_(std::move(common)),
      device_(common_->device.get()),
      own_{device_->mac(), config.ip, config.udp_port},
      source_{own_.mac, own_.ip, static_cast<uint16_t>(own_.udp_port + lane)},
      steering_(steering_of(config)),
      lane_(lane),
      message_header_bytes_(wire::kFrameHeaderBytes + (config.vlan != 0 && !device_->inserts_tags()
                                                           ? Device::kVlanTagBytes
                                                           : 0)),
      guard_(own_ips(config), config.hosts),
      endpoints_(config.max_endpoints) {
  foreign_memory_.free_cb = [](void*, void*) {};
  rte_mbuf_ext_refcnt_set(&foreign_memory_, 1);  // never freed
}

/// Makes the rings between the lanes of a port.
void EthdevPort::connect(Common& common, std::span<const std::unique_ptr<EthdevPort>> lanes) {
  const auto make_ring = [&] {
    return common.rings.emplace_back(std::make_unique<FrameRing>()).get();
  };
  const uint16_t queues = common.device->queues();
  for (uint16_t from = 0; from < lanes.size(); ++from) {
    if (from >= queues) {
      FrameRing* const ring = lanes[from]->carrier_ = make_ring();
      lanes[from % queues]->carried_.push_back(ring);
      continue;
    }
    lanes[from]->outboxes_.resize(lanes.size());
    for (uint16_t to = 0; to < lanes.size(); ++to) {
      if (to == from) continue;
      FrameRing* const ring = lanes[from]->outboxes_[to].ring = make_ring();
      lanes[to]->received_for_us_.push_back(ring);
    }
  }
}

EthdevPort::~EthdevPort() {
  rx_release();
  drop_shared();
  for (uint16_t i = 0; i < queued_count_; ++i) rte_pktmbuf_free(queued_[i]);
}

Result<EndpointIndex> EthdevPort::bind(const wire::Address& worker, JobId job_id, uint64_t job_key,
                                       JobIndex job, Rank rank,
                                       const std::optional<wire::TagKeys>& tag_keys, JobId root) {
  if (!guard_.allows(bridge::HostAddress{worker.mac, worker.ip}))
    return fail(INA_ERR_REFUSED,
                "Port " + config_.name + ": no host with the address " + ip_text(worker.ip) +
                    " and the worker's MAC address is in the port's list (hosts).");
  EndpointTable::Refusal refusal{};
  const auto index = endpoints_.insert({.address = worker,
                                        .job_id = job_id,
                                        .family = value(root) != 0 ? root : job_id,
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
  bool full = false;
  held_count_ = config_.lanes == 1 ? receive_alone(room, full) : receive(room, full);
  transit_count_ = 0;
  size_t filled = 0;
  for (uint16_t i = 0; i < held_count_; ++i)
    if (take(i, burst[filled])) ++filled;
  if (tagged_count_ != 0) filled += accept_tagged(burst.subspan(filled));
  for (const RxPacket& packet : burst.first(filled)) counters_.rx_bytes += packet.payload_bytes;
  // Workers must not give way to others' traffic, which does not give way to theirs: only what they
  // send themselves is theirs to send less of.
  largest_burst_ = std::max<uint32_t>(largest_burst_, room);
  backlog_ = full && 4 * filled >= 3 * size_t{held_count_} ? backlog_ + room : 0;
  ethdev_counters_.delivered += filled;
  // Answers do not wait for the datapath, which has nothing to say if nothing was for it.
  if (filled == 0 && queued_count_ != 0) tx_flush();
  return filled;
}

uint16_t EthdevPort::receive_alone(uint16_t room, bool& full) {
  const uint16_t count = device_->rx(held_.data(), room);
  full = count == room;
  counters_.rx_packets += count;
  for (uint16_t i = 0; i < count; ++i) rte_prefetch0(data_of(held_[i]));
  return count;
}

void EthdevPort::rx_release() {
  // A place is empty where the buffer went out as an answer.
  rte_pktmbuf_free_bulk(held_.data(), held_count_);
  held_count_ = 0;
}

// ---- frames of other lanes ---------------------------------------------------------------------
//
// A frame counts as received in the lane that takes it from the device, and has its fate in the
// lane that it is handed to, or here if there is no room in the ring. That is said of the sum over
// lanes; in between, frames that lie in rings have no fate yet.

/// From the own queue and from those of other lanes, each first in turn.
uint16_t EthdevPort::receive(uint16_t room, bool& full) {
  const size_t rings = received_for_us_.size();
  const size_t sources = rings + (outboxes_.empty() ? 0 : 1);
  if (++next_source_ >= sources) next_source_ = 0;
  uint16_t count = 0;
  for (size_t i = 0, source = next_source_; i < sources && count < room; ++i) {
    rte_mbuf** const to = held_.data() + count;
    const auto left = static_cast<uint16_t>(room - count);
    count += source < rings ? received_for_us_[source]->pop(to, left) : receive_own(to, left, full);
    if (++source == sources) source = 0;
  }
  full |= count == room;
  return count;
}

/// Keeps what is for this lane. `full`: set if there may be more.
uint16_t EthdevPort::receive_own(rte_mbuf** frames, uint16_t room, bool& full) {
  std::array<rte_mbuf*, Device::kMaxBurst> burst;
  const uint16_t received = device_->rx(burst.data(), room, lane_);
  counters_.rx_packets += received;
  full = received == room;
  for (uint16_t i = 0; i < received; ++i) rte_prefetch0(data_of(burst[i]));
  uint16_t kept = 0;
  for (uint16_t i = 0; i < received; ++i) {
    const uint16_t lane = own_lane_of(*burst[i]);
    Outbox& outbox = outboxes_[lane];
    if (lane == lane_)
      frames[kept++] = burst[i];
    else
      outbox.frames[outbox.count++] = burst[i];
  }
  if (kept != received)
    for (Outbox& outbox : outboxes_)
      if (outbox.count != 0) hand_over(outbox);
  return kept;
}

uint16_t EthdevPort::own_lane_of(const rte_mbuf& frame) const {
  const std::span<const std::byte> bytes(rte_pktmbuf_mtod(&frame, const std::byte*),
                                         frame.data_len);
  if (config_.vlan == 0) return lane_of(bytes, steering_);
  const bool stripped = (frame.ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0;
  const int vlan = stripped ? frame.vlan_tci & (bridge::kVlans - 1) : bridge::vlan_of(bytes);
  if (vlan != config_.vlan) return 0;
  return lane_of(stripped ? bytes : behind_tag(bytes), steering_);
}

void EthdevPort::hand_over(Outbox& outbox) {
  const uint16_t taken = outbox.ring->push(outbox.frames.data(), outbox.count);
  ethdev_counters_.handed_over += taken;
  for (uint16_t i = taken; i < outbox.count; ++i) {
    rte_pktmbuf_free(outbox.frames[i]);
    counters_.drops.add(DropReason::kHandOverFull);
  }
  outbox.count = 0;
  moved_ = true;
}

// ---- one frame ---------------------------------------------------------------------------------

bool EthdevPort::take(size_t place, RxPacket& packet) {
  rte_mbuf* const buffer = held_[place];
  // A buffer holds the largest frame of the mtu, so what needs several is none of ours.
  if (buffer->nb_segs != 1) [[unlikely]] {
    counters_.drops.add(DropReason::kBadLength);
    return false;
  }
  SwitchAddress to{own_.ip, config_.vlan};
  if (config_.bridged && !is_for_switch(bytes_of(buffer), to)) {
    if (guard_.allows(bytes_of(buffer))) [[likely]]
      put_aside(place);
    else
      counters_.drops.add(DropReason::kForeignSource);
    return false;
  }
  DropReason reason = DropReason::kNotIna;
  if (to.vlan != 0 && remove_tag(buffer) != to.vlan) {
    counters_.drops.add(reason);
    return false;
  }
  const Endpoint* endpoint = nullptr;
  Tagged& parsed = tagged_[tagged_count_];
  if (to.vlan == config_.vlan && parse(bytes_of(buffer), parsed.frame, endpoint, reason))
      [[likely]] {
    if ((buffer->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) != RTE_MBUF_F_RX_L4_CKSUM_BAD) [[likely]] {
      if (!endpoint->tag_keys) return accept(parsed.frame, *endpoint, packet);
      parsed.endpoint = endpoint;
      ++tagged_count_;
      return false;
    }
    reason = DropReason::kUdpChecksum;
  }
  note_drop(bytes_of(buffer), reason);
  if (reason == DropReason::kNotIna && buffer->data_len >= wire::kEthernetBytes &&
      !guard_.allows(bytes_of(buffer)))
    reason = DropReason::kForeignSource;
  if (reason == DropReason::kNotIna && answer(place, to, reason)) return false;
  counters_.drops.add(reason);
  return false;
}

/// By the VLAN and the IP address that it is sent to, whatever the MAC address. `address`: the one
/// of the switch that it is. What has the switch's MAC address alone is the bridge's to drop. True
/// as well for frames too short to have addresses.
bool EthdevPort::is_for_switch(std::span<const std::byte> frame, SwitchAddress& address) const {
  if (frame.size() < wire::kEthernetBytes) return true;
  const uint16_t vlan = bridge::vlan_of(frame);
  const SwitchAddress to{addressed_ip(vlan == 0 ? frame : behind_tag(frame)), vlan};
  if (to == address) [[likely]]
    return true;
  if (to.ip == 0 ||
      std::ranges::find(config_.switch_addresses, to) == config_.switch_addresses.end())
    return false;
  address = to;
  return true;
}

/// True: an INA frame of the worker at `endpoint`, as far as can be told without tags.
bool EthdevPort::parse(std::span<const std::byte> frame, wire::Frame& parsed,
                       const Endpoint*& endpoint, DropReason& reason) const {
  const auto drop = [&reason](DropReason why) {
    reason = why;
    return false;
  };
  const auto unchecked = wire::parse_unchecked(frame, config_.udp_port,
                                               std::max(config_.lanes, config_.relayed_lanes));
  if (!unchecked) return drop(unchecked.error());
  parsed = *unchecked;
  const wire::Envelope& envelope = parsed.envelope;
  if (envelope.destination.ip != own_.ip) return drop(DropReason::kNotIna);
  endpoint = endpoints_.find(envelope.source, envelope.job);
  if (endpoint == nullptr) return drop(DropReason::kUnknownSource);
  if (envelope.job_key != endpoint->job_key) return drop(DropReason::kBadJob);
  // After what asks who it is: it reads the whole frame, which a flood of strangers' should not be
  // worth.
  if (!wire::crc_matches(parsed)) return drop(DropReason::kCrc);
  return true;
}

/// A worker may want to know why it is not heard. To any UDP port: a wrong one may be the reason.
void EthdevPort::note_drop(std::span<const std::byte> frame, DropReason reason) {
  if (const auto parsed = wire::parse_unchecked(frame, 0, 0))
    witness_.note(parsed->envelope, parsed->message.rank, reason);
}

/// The frame is its worker's.
bool EthdevPort::accept(const wire::Frame& frame, const Endpoint& endpoint, RxPacket& packet) {
  if (const auto invalid =
          endpoint.header.validate(frame.message, frame.payload_bytes, config_.slot_bytes)) {
    counters_.drops.add(*invalid);
    witness_.note(frame.envelope, endpoint.rank, *invalid);
    return false;
  }
  if (!endpoint.heard) [[unlikely]]
    endpoint.heard = true;
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
    if (!wire::tag_matches(frame, {endpoint->tag_keys->frame, hashes[i]})) {
      counters_.drops.add(DropReason::kBadTag);
      witness_.note(frame.envelope, endpoint->rank, DropReason::kBadTag);
    } else if (accept(frame, *endpoint, burst[filled]))
      ++filled;
  }
  tagged_count_ = 0;
  return filled;
}

/// If it asks for what neighbours answer, and not too often. Otherwise `reason` says why not.
bool EthdevPort::answer(size_t place, const SwitchAddress& as, DropReason& reason) {
  const std::span<std::byte> frame = bytes_of(held_[place]);
  if (frame.size() < wire::kEthernetBytes) return false;
  bridge::Addresses asker = bridge::addresses_of(frame);
  asker.vlan = as.vlan;
  if (!answer_in_place(frame, {.mac = own_.mac, .ip = as.ip})) return false;
  const Nanos now = now_ns();
  if (next_answer_ > now + kAnswersAtOnce * kAnswerEveryNs) {
    reason = DropReason::kAsked;
    return false;
  }
  next_answer_ = std::max(next_answer_, now) + kAnswerEveryNs;
  rte_mbuf* const buffer = std::exchange(held_[place], nullptr);
  forget_receipt(buffer);
  tag(buffer, as.vlan);
  queue(buffer, Queued::kAnswer, buffer->pkt_len);
  ++ethdev_counters_.answered;
  if (config_.bridged) transit_[transit_count_++] = {.addresses = asker};
  return true;
}

// ---- frames in transit -------------------------------------------------------------------------
//
// The buffer in which a frame came in is the one that goes out, by several ports at once where it
// is flooded: drivers only read what others hold too, and give back one reference each.

void EthdevPort::put_aside(size_t place) {
  rte_mbuf* const buffer = std::exchange(held_[place], nullptr);
  forget_receipt(buffer);
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
  const Endpoint& worker = endpoints_[index];
  return send(worker, worker.address, message, payload);
}

bool EthdevPort::tx_to_group(EndpointIndex index, const wire::Message& message,
                             std::span<const std::byte> payload) {
  const Endpoint& worker = endpoints_[index];
  return send(worker, wire::group_of(worker.job_id, own_.udp_port), message, payload);
}

/// `worker`: one of the job to whose group or to whom it is sent.
bool EthdevPort::send(const Endpoint& worker, const wire::Address& to, const wire::Message& message,
                      std::span<const std::byte> payload) {
  if (!worker.bound) {  // not any more: nobody is there to take it
    counters_.drops.add(DropReason::kTxFull);
    return false;
  }
  if (queued_count_ == queued_.size()) tx_flush();
  rte_mbuf* const frame = rte_pktmbuf_alloc(device_->tx_pool());
  if (frame == nullptr) {
    counters_.drops.add(DropReason::kNoBuffer);
    return false;
  }
  const wire::Envelope envelope{.source = source_,
                                .destination = to,
                                .job = worker.job_id,
                                .job_key = worker.job_key,
                                .tag = 0};
  auto* const headers =
      reinterpret_cast<std::byte*>(rte_pktmbuf_append(frame, wire::kFrameHeaderBytes));
  // The checksum is made anew for each worker, over a payload that is in the cache by then. Its
  // part over the payload is the same for all of them and could be combined instead.
  wire::Message marked = message;
  if (congested() && message.type == wire::Type::kResult) marked.flags |= wire::kFlagEcn;
  std::optional<wire::Seal> seal;
  if (worker.tag_keys)
    seal = {worker.tag_keys->frame,
            payload_hash(worker.tag_keys->payload, payload, lies_in_result_ring(message))};
  wire::encode_headers(envelope, marked, payload, {headers, wire::kFrameHeaderBytes},
                       seal ? &*seal : nullptr);
  if (device_->tx_checksums() != 0) leave_checksums_to_device(frame, device_->tx_checksums());
  if (!payload.empty() && !append_payload(frame, payload)) {
    rte_pktmbuf_free(frame);
    counters_.drops.add(DropReason::kNoBuffer);
    return false;
  }
  tag(frame, config_.vlan);
  queue(frame, Queued::kMessage, payload.size());
  if (frame->nb_segs > 1 && !lies_in_result_ring(message)) tx_flush();
  return true;
}

/// Before a frame that nobody else holds.
void EthdevPort::tag(rte_mbuf* frame, uint16_t vlan) const {
  if (vlan == 0) return;
  frame->vlan_tci = vlan;
  if (device_->inserts_tags())
    frame->ol_flags |= RTE_MBUF_F_TX_VLAN;
  else
    rte_vlan_insert(&frame);  // there is headroom
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
    rte_mbuf_ext_refcnt_update(&foreign_memory_, 1);
    const auto bytes = static_cast<uint16_t>(payload.size());
    // The device only reads it; DPDK has no const buffers.
    rte_pktmbuf_attach_extbuf(shared_, const_cast<std::byte*>(payload.data()), RTE_BAD_IOVA, bytes,
                              &foreign_memory_);
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
  if (carrier_ != nullptr) return pass_to_carrier();
  send_queued();
  for (FrameRing* const ring : carried_) {
    queued_count_ = ring->pop(queued_.data(), static_cast<uint16_t>(queued_.size()));
    for (uint16_t i = 0; i < queued_count_; ++i) {
      queued_kind_[i] = Queued::kMessage;  // lane 0 alone has others, and a queue pair
      queued_bytes_[i] = queued_[i]->pkt_len - message_header_bytes_;
    }
    if (queued_count_ == 0) continue;
    moved_ = true;
    send_queued();
  }
}

/// Another lane sends them, and counts them as sent.
void EthdevPort::pass_to_carrier() {
  const uint16_t taken = carrier_->push(queued_.data(), queued_count_);
  ethdev_counters_.tx_handed_over += taken;
  lose_queued(taken);
}

void EthdevPort::send_queued() {
  uint16_t sent = 0;
  while (sent < queued_count_) {
    const uint16_t now = device_->tx(queued_.data() + sent, queued_count_ - sent, lane_);
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
  lose_queued(sent);
}

/// What is not taken is lost, as on any full link: the worker asks again.
void EthdevPort::lose_queued(uint16_t first) {
  for (uint16_t i = first; i < queued_count_; ++i) {
    rte_pktmbuf_free(queued_[i]);
    counters_.drops.add(DropReason::kTxFull);
    if (queued_kind_[i] == Queued::kTransit) ++ethdev_counters_.bridged_lost;
  }
  queued_count_ = 0;
}

}  // namespace ina::io
