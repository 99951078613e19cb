#include "io/ethdev/ethdev_port.h"

#include <rte_prefetch.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/clock.h"
#include "io/ethdev/device_arguments.h"
#include "io/ethdev/device_limits.h"
#include "io/ethdev/neighbour.h"
#include "io/ethdev/unfinished_checksum.h"
#include "wire/group.h"

namespace ina::io {
namespace {

/// The hash of the last result that this thread sent, which goes to all workers, by several ports.
constinit thread_local LastHash last_hash;

std::vector<uint32_t> own_ips(const EthdevPortConfig& config) {
  std::vector<uint32_t> ips{config.ip};
  for (const SwitchAddress& address : config.switch_addresses) ips.push_back(address.ip);
  return ips;
}

Steering steering_of(const EthdevPortConfig& config) {
  return {.ip = config.ip, .udp_port = config.udp_port, .lanes = config.lanes, .vlan = config.vlan};
}

/// The source address of frames that lane `lane` sends.
wire::Address source_of(const wire::Address& own, uint16_t lane) {
  return {own.mac, own.ip, static_cast<uint16_t>(own.udp_port + lane)};
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

// ---- opening and binding -----------------------------------------------------------------------

/// The state that the lanes of a port share.
class EthdevPort::Common : public PortDevice {
 public:
  explicit Common(const EthdevPortConfig& config) : config_(config) {}

  Result<void> open() {
    auto opened = Device::open({.device = config_.device,
                                .mtu = config_.mtu,
                                .rx_descriptors = config_.rx_descriptors,
                                .tx_descriptors = config_.tx_descriptors,
                                .lent_buffers = config_.lent_buffers,
                                .lanes = config_.lanes,
                                .ring_frames = FrameRing::kFrames,
                                .promiscuous = config_.bridged,
                                .vlan = config_.vlan});
    if (!opened)
      return fail(opened.error().status, "Port " + config_.name + ": " + opened.error().text);
    if (queues != 0 && (*opened)->queues() != queues)
      return fail(INA_ERR_UNSUPPORTED, "Port " + config_.name +
                                           ": its device has another number of queues than before; "
                                           "the switch takes it when it is started again.");
    device = std::move(*opened);
    queues = device->queues();
    steered = device->steer(steering_of(config_));
    mac_ = device->mac();
    return {};
  }

  bool is_attached() override { return device && device->is_attached(); }
  void close() override {
    lost_before_ += device->lost_frames().value_or(0);
    device.reset();
  }
  bool may_reopen() override {
    return is_interface_up(std::string(device_argument(config_.device, "iface")));
  }
  Result<void> reopen() override { return open(); }
  wire::MacAddress mac() const override { return mac_; }
  std::optional<uint64_t> lost_frames() override {
    if (!device) return lost_before_;
    const auto lost = device->lost_frames();
    return lost ? std::optional(lost_before_ + *lost) : std::nullopt;
  }

  std::unique_ptr<Device> device;
  LaneRings::Rings rings;  ///< their frames go before the device does
  uint16_t queues = 0;
  bool steered = false;

 private:
  EthdevPortConfig config_;
  wire::MacAddress mac_{};
  uint64_t lost_before_ = 0;  ///< by devices that were closed
};

PortDevice& EthdevPort::device() {
  return *common_;
}

uint16_t EthdevPort::queues() const {
  return common_->queues;
}

bool EthdevPort::steered() const {
  return common_->steered;
}

void EthdevPort::detach() {
  rx_release();
  transit_.clear();
  queue_.lose();
  maker_.reset();
  rings_.drop_all();
  device_ = nullptr;
}

void EthdevPort::attach() {
  device_ = common_->device.get();
  own_.mac = common_->mac();
  maker_.emplace(*device_, source_of(own_, lane_), config_.vlan);
}

Result<std::vector<std::unique_ptr<EthdevPort>>> EthdevPort::open(const EthdevPortConfig& config) {
  if (auto fine = check(config); !fine) return tl::unexpected(fine.error());
  auto common = std::make_shared<Common>(config);
  if (auto opened = common->open(); !opened) return tl::unexpected(opened.error());
  std::vector<std::unique_ptr<EthdevPort>> lanes;
  std::vector<LaneRings*> rings;
  for (uint16_t lane = 0; lane < config.lanes; ++lane) {
    lanes.push_back(std::unique_ptr<EthdevPort>(new EthdevPort(config, common, lane)));
    rings.push_back(&lanes.back()->rings_);
  }
  common->rings = LaneRings::connect(rings, common->queues);
  return lanes;
}

EthdevPort::EthdevPort(const EthdevPortConfig& config, std::shared_ptr<Common> common,
                       uint16_t lane)
    : config_(config),
      common_(std::move(common)),
      device_(common_->device.get()),
      own_{device_->mac(), config.ip, config.udp_port},
      steering_(steering_of(config)),
      lane_(lane),
      guard_(own_ips(config), config.hosts),
      probes_(config.probe_key),
      addresses_({config.ip, config.vlan}, config.switch_addresses),
      intake_({.ip = config.ip,
               .udp_port = config.udp_port,
               .udp_ports = std::max(config.lanes, config.relayed_lanes),
               .slot_bytes = config.slot_bytes,
               .max_endpoints = config.max_endpoints},
              counters_.port),
      transit_(counters_),
      rings_(lane, counters_),
      maker_(std::in_place, *device_, source_of(own_, lane), config.vlan),
      queue_(counters_) {}

Result<EndpointIndex> EthdevPort::bind(const wire::Address& worker, JobId job_id, uint64_t job_key,
                                       JobIndex job, Rank rank,
                                       const std::optional<wire::TagKeys>& tag_keys, JobId root) {
  if (!guard_.allows(bridge::HostAddress{worker.mac, worker.ip}))
    return fail(INA_ERR_REFUSED,
                "Port " + config_.name + ": no host with the address " + ip_text(worker.ip) +
                    " and the worker's MAC address is in the port's list (hosts).");
  EndpointTable::Refusal refusal{};
  const auto index = intake_.endpoints().insert({.address = worker,
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
                                   std::to_string(intake_.endpoints().capacity()) + " workers.");
}

void EthdevPort::unbind(EndpointIndex endpoint) {
  intake_.endpoints().erase(endpoint);
  // The job's result ring may go next.
  if (maker_) maker_->drop_payload();
}

// ---- receiving ---------------------------------------------------------------------------------

size_t EthdevPort::rx_burst(std::span<RxPacket> burst) {
  rx_release();
  last_hash.forget();
  const auto room = static_cast<uint16_t>(std::min<size_t>(burst.size(), held_.size()));
  bool full = false;
  held_count_ = config_.lanes == 1
                    ? receive_alone(room, full)
                    : rings_.receive(held_.data(), room, full,
                                     [this](rte_mbuf** frames, uint16_t own_room, bool& own_full) {
                                       return receive_own(frames, own_room, own_full);
                                     });
  transit_.clear();
  size_t filled = 0;
  for (uint16_t i = 0; i < held_count_; ++i)
    if (take(i, burst[filled])) ++filled;
  if (intake_.has_tagged()) filled += intake_.take_tagged(burst.subspan(filled));
  for (const RxPacket& packet : burst.first(filled))
    counters_.port.rx_bytes += packet.payload_bytes;
  backlog_.burst(room, held_count_, filled, full);
  counters_.ethdev.delivered += filled;
  // Answers do not wait for the datapath, which has nothing to say if nothing was for it.
  if (filled == 0 && !queue_.empty()) tx_flush();
  return filled;
}

uint16_t EthdevPort::receive_alone(uint16_t room, bool& full) {
  if (device_ == nullptr) [[unlikely]]
    return 0;
  const uint16_t count = device_->rx(held_.data(), room);
  full = count == room;
  counters_.port.rx_packets += count;
  for (uint16_t i = 0; i < count; ++i) rte_prefetch0(data_of(held_[i]));
  return count;
}

/// Keeps what is for this lane. `full`: set if there may be more.
uint16_t EthdevPort::receive_own(rte_mbuf** frames, uint16_t room, bool& full) {
  if (device_ == nullptr) [[unlikely]]
    return 0;
  std::array<rte_mbuf*, Device::kMaxBurst> burst;
  const uint16_t received = device_->rx(burst.data(), room, lane_);
  counters_.port.rx_packets += received;
  full = received == room;
  for (uint16_t i = 0; i < received; ++i) rte_prefetch0(data_of(burst[i]));
  return rings_.sort({burst.data(), received}, frames, steering_);
}

void EthdevPort::rx_release() {
  // A place is empty where the buffer went out as an answer.
  rte_pktmbuf_free_bulk(held_.data(), held_count_);
  held_count_ = 0;
}

bool EthdevPort::take(size_t place, RxPacket& packet) {
  rte_mbuf* const buffer = held_[place];
  if (!is_in_one_piece(buffer)) [[unlikely]] {
    counters_.port.drops.add(DropReason::kBadLength);
    return false;
  }
  const SwitchAddress* const to =
      config_.bridged ? addresses_.addressed_by(bytes_of(buffer)) : &addresses_.own();
  if (to == nullptr) {
    pass_on(place);
    return false;
  }
  DropReason reason = DropReason::kNotIna;
  if (to->vlan != 0 && remove_tag(buffer) != to->vlan) {
    counters_.port.drops.add(reason);
    return false;
  }
  if (to->vlan == addresses_.own().vlan) [[likely]] {
    const auto taken =
        intake_.take(bytes_of(buffer), has_wrong_udp_checksum(buffer), packet, reason);
    if (taken != MessageIntake::Taken::kRefused) [[likely]]
      return taken == MessageIntake::Taken::kFilled;
  }
  refuse(place, *to, reason);
  return false;
}

/// A frame for somebody else.
void EthdevPort::pass_on(size_t place) {
  const std::span<const std::byte> frame = bytes_of(held_[place]);
  if (const auto probe = probes_.read(frame)) [[unlikely]] {
    counters_.port.drops.add(DropReason::kBadMac);  // the switch's own
    transit_.add_probe(*probe);
    return;
  }
  if (guard_.allows(frame)) [[likely]] {
    if (has_unfinished_checksum(held_[place])) [[unlikely]]
      finish_checksum(bytes_of(held_[place]));
    transit_.add(std::exchange(held_[place], nullptr));
  } else {
    counters_.port.drops.add(DropReason::kForeignSource);
  }
}

/// A frame to the switch that is no message: answered, or dropped.
void EthdevPort::refuse(size_t place, const SwitchAddress& to, DropReason reason) {
  const std::span<const std::byte> frame = bytes_of(held_[place]);
  intake_.note_drop(frame, reason);
  if (reason == DropReason::kNotIna && frame.size() >= wire::kEthernetBytes &&
      !guard_.allows(frame))
    reason = DropReason::kForeignSource;
  if (reason == DropReason::kNotIna && answer(place, to, reason)) return;
  counters_.port.drops.add(reason);
}

/// If it asks for what neighbours answer, and not too often. Otherwise `reason` says why not.
bool EthdevPort::answer(size_t place, const SwitchAddress& as, DropReason& reason) {
  const std::span<std::byte> frame = bytes_of(held_[place]);
  if (frame.size() < wire::kEthernetBytes) return false;
  bridge::Addresses asker = bridge::addresses_of(frame);
  asker.vlan = as.vlan;
  if (!answer_in_place(frame, {.mac = own_.mac, .ip = as.ip})) return false;
  if (!answer_limit_.take(now_ns())) {
    reason = DropReason::kAsked;
    return false;
  }
  rte_mbuf* const buffer = std::exchange(held_[place], nullptr);
  forget_receipt(buffer);
  put_tag(buffer, as.vlan);
  queue(buffer, SendQueue::Kind::kAnswer, buffer->pkt_len);
  ++counters_.ethdev.answered;
  if (config_.bridged) transit_.add_asker(asker);
  return true;
}

// ---- sending -----------------------------------------------------------------------------------

bool EthdevPort::tx(EndpointIndex index, const wire::Message& message,
                    std::span<const std::byte> payload) {
  const Endpoint& worker = intake_.endpoints()[index];
  return send(worker, worker.address, message, payload);
}

bool EthdevPort::tx_to_group(EndpointIndex index, const wire::Message& message,
                             std::span<const std::byte> payload) {
  const Endpoint& worker = intake_.endpoints()[index];
  return send(worker, wire::group_of(worker.job_id, own_.udp_port), message, payload);
}

/// `worker`: one of the job to whose group or to whom it is sent.
bool EthdevPort::send(const Endpoint& worker, const wire::Address& to, const wire::Message& message,
                      std::span<const std::byte> payload) {
  // Nobody is there to take it any more, or no way leads there.
  if (!worker.bound || device_ == nullptr) [[unlikely]] {
    counters_.port.drops.add(DropReason::kTxFull);
    return false;
  }
  if (queue_.full()) tx_flush();
  wire::Message marked = message;
  if (config_.ecn && backlog_.congested() && message.type == wire::Type::kResult)
    marked.flags |= wire::kFlagEcn;
  rte_mbuf* const frame = maker_->make(worker, to, marked, payload, last_hash);
  if (frame == nullptr) {
    counters_.port.drops.add(DropReason::kNoBuffer);
    return false;
  }
  queue(frame, SendQueue::Kind::kMessage, payload.size());
  if (frame->nb_segs > 1 && !lies_in_result_ring(message)) tx_flush();
  return true;
}

void EthdevPort::send_transit(const Transit& frame) {
  const bool detached = device_ == nullptr;
  if (detached || frame.buffer->pkt_len > device_->frame_bytes() + 2 * kVlanTagBytes) {
    rte_pktmbuf_free(frame.buffer);
    counters_.port.drops.add(detached ? DropReason::kTxFull : DropReason::kTooLong);
    ++counters_.ethdev.bridged_lost;
    return;
  }
  queue(frame.buffer, SendQueue::Kind::kTransit, frame.buffer->pkt_len);
}

void EthdevPort::send_probe(std::span<const std::byte> probe) {
  rte_mbuf* const frame = device_ == nullptr ? nullptr : rte_pktmbuf_alloc(device_->tx_pool());
  if (frame == nullptr) return;
  const auto bytes = static_cast<uint16_t>(probe.size());
  std::memcpy(rte_pktmbuf_append(frame, bytes), probe.data(), bytes);
  queue(frame, SendQueue::Kind::kAnswer, bytes);
}

void EthdevPort::queue(rte_mbuf* frame, SendQueue::Kind kind, size_t bytes) {
  if (queue_.full()) tx_flush();
  queue_.add(frame, kind, bytes);
}

void EthdevPort::tx_flush() {
  if (device_ == nullptr) [[unlikely]]
    return queue_.lose();
  if (FrameRing* const carrier = rings_.carrier()) return queue_.pass_to(*carrier);
  queue_.send(*device_, lane_);
  for (FrameRing* const ring : rings_.carried()) {
    if (!queue_.take_from(*ring, maker_->header_bytes())) continue;
    rings_.note_moved();
    queue_.send(*device_, lane_);
  }
}

}  // namespace ina::io
