#include "transport/shm_transport.h"

#include <algorithm>

#include "common/event_fd.h"
#include "common/futex.h"

namespace ina::client {

using namespace io::shm;

Result<std::unique_ptr<ShmTransport>> ShmTransport::create(const Geometry& geometry,
                                                           const Fd& switch_region,
                                                           const Fd& result_region,
                                                           std::vector<Fd> wake_events,
                                                           BulkCopier& copier) {
  std::unique_ptr<ShmTransport> transport(new ShmTransport(copier));
  transport->geometry_ = geometry;
  const WorkerLayout ours(geometry);
  const SwitchLayout theirs(geometry);
  auto own = make_region("ina-worker", ours.bytes);
  if (!own) return tl::unexpected(own.error());
  auto peer = map_peer_region(switch_region, theirs.bytes, "switch region");
  if (!peer) return tl::unexpected(peer.error());
  auto results = map_peer_region(result_region, result_region_bytes(geometry), "result region");
  if (!results) return tl::unexpected(results.error());
  if (wake_events.size() != geometry.lanes)
    return fail(INA_ERR_INTERNAL, "the switch sent " + std::to_string(wake_events.size()) +
                                      " wake-up descriptors for " + std::to_string(geometry.lanes) +
                                      " lanes");
  transport->own_ = std::move(*own);
  transport->switch_region_ = std::move(*peer);
  transport->results_ = std::move(*results);
  transport->wake_events_ = std::move(wake_events);
  std::byte* base = transport->own_.map.data();
  const std::byte* remote = transport->switch_region_.data();
  for (uint32_t i = 0; i < geometry.lanes; ++i) {
    Lane lane{};
    lane.tx_ring = at<Descriptor>(base, ours.tx_ring) + size_t{i} * geometry.tx_depth;
    lane.payload = base + ours.payload + size_t{i} * geometry.tx_depth * geometry.slot_bytes;
    lane.tx_read = at<Position>(remote, theirs.tx_read) + i;
    lane.switch_sleeping = at<SleepFlag>(remote, theirs.sleeping) + i;
    lane.rx_ring = at<Descriptor>(remote, theirs.rx_ring) + size_t{i} * geometry.rx_depth;
    lane.rx_read = at<Position>(base, ours.rx_read) + i;
    transport->lanes_.push_back(lane);
  }
  transport->sleeping_ = at<SleepFlag>(base, ours.sleeping);
  transport->doorbell_ = at<SleepFlag>(remote, theirs.doorbell);
  return transport;
}

size_t ShmTransport::tx_burst(std::span<const TxPacket> packets) {
  CopyJob jobs[Engine::kBurst];
  packets = packets.first(std::min(packets.size(), Engine::kBurst));
  size_t count = 0;
  size_t copies = 0;
  for (const TxPacket& packet : packets) {
    Lane& lane = lanes_[packet.message.lane];
    if (lane.tx_index - lane.tx_read_seen >= geometry_.tx_depth) {
      lane.tx_read_seen = lane.tx_read->value.load(std::memory_order_acquire);
      if (lane.tx_index - lane.tx_read_seen >= geometry_.tx_depth) break;
    }
    const uint64_t row = lane.tx_index & (geometry_.tx_depth - 1);
    Descriptor& slot = lane.tx_ring[row];
    slot.message = packet.message;
    slot.payload_bytes = packet.payload_bytes;
    if (const Registered* direct = registered_at(packet.payload, packet.payload_bytes)) {
      slot.payload_offset = uint64_t{direct->number} << kRegionShift |
                            static_cast<uint64_t>(packet.payload - direct->memory.data());
    } else {
      std::byte* payload = lane.payload + row * geometry_.slot_bytes;
      slot.payload_offset = static_cast<uint64_t>(payload - own_.map.data());
      counters_.bytes_copied += packet.payload_bytes;
      jobs[copies++] = {payload, packet.payload, packet.payload_bytes};
    }
    ++lane.tx_index;
    ++count;
  }
  if (count == 0) return 0;
  copier_.copy(std::span<const CopyJob>(jobs, copies));
  for (Lane& lane : lanes_) publish(lane);
  // Pairs with the fence in the lane's prepare_sleep: either it sees the packets or we see its
  // flag.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].switch_sleeping->value.load(std::memory_order_relaxed) == 0) continue;
    ring_event(wake_events_[i].get());
  }
  return count;
}

void ShmTransport::set_registered(uint32_t number, std::span<const std::byte> memory) {
  std::erase_if(registered_, [&](const Registered& known) { return known.number == number; });
  if (!memory.empty()) registered_.push_back({number, memory});
}

void ShmTransport::set_result_buffer(uint32_t first_unit, std::span<const std::byte> memory) {
  const uint64_t offset = uint64_t{first_unit} * wire::kTargetUnitBytes;
  std::erase_if(result_buffers_, [&](const ResultBuffer& known) { return known.offset == offset; });
  if (!memory.empty()) result_buffers_.push_back({offset, memory});
}

/// nullptr: the payload must be copied to where the switch can read it.
const ShmTransport::Registered* ShmTransport::registered_at(const std::byte* payload,
                                                            uint32_t bytes) const {
  for (const Registered& known : registered_) {
    // As numbers: pointers into different memory have no order.
    const auto offset =
        reinterpret_cast<uintptr_t>(payload) - reinterpret_cast<uintptr_t>(known.memory.data());
    if (offset < known.memory.size() && bytes <= known.memory.size() - offset) return &known;
  }
  return nullptr;
}

/// The payload that a descriptor of the receive ring points at; empty: outside of all regions.
std::span<const std::byte> ShmTransport::payload_at(uint64_t offset, uint32_t bytes) const {
  const auto within = [&](std::span<const std::byte> memory, uint64_t at) {
    return bytes <= memory.size() && at <= memory.size() - bytes ? memory.subspan(at, bytes)
                                                                 : std::span<const std::byte>();
  };
  if ((offset & kSidePayload) != 0)
    return within({switch_region_.data(), switch_region_.size()}, offset & ~kSidePayload);
  if ((offset & kResultBufferPayload) == 0)
    return within({results_.data(), results_.size()}, offset);
  offset &= ~kResultBufferPayload;
  for (const ResultBuffer& buffer : result_buffers_)
    if (offset - buffer.offset < buffer.memory.size())
      return within(buffer.memory, offset - buffer.offset);
  return {};
}

void ShmTransport::publish(Lane& lane) {
  for (; lane.tx_published != lane.tx_index; ++lane.tx_published)
    lane.tx_ring[lane.tx_published & (geometry_.tx_depth - 1)].turn.store(
        turn_of(lane.tx_published, geometry_.tx_depth), std::memory_order_release);
}

size_t ShmTransport::rx_burst(std::span<RxPacket> packets) {
  size_t count = 0;
  for (size_t i = 0; i < lanes_.size() && count < packets.size(); ++i) {
    Lane& lane = lanes_[next_lane_];
    next_lane_ = next_lane_ + 1 == lanes_.size() ? 0 : next_lane_ + 1;
    while (count < packets.size()) {
      const Descriptor& slot = lane.rx_ring[lane.rx_index & (geometry_.rx_depth - 1)];
      if (slot.turn.load(std::memory_order_acquire) != turn_of(lane.rx_index, geometry_.rx_depth))
        break;
      ++lane.rx_index;
      RxPacket& packet = packets[count];
      packet.message = slot.message;
      packet.payload_bytes = slot.payload_bytes;
      const auto payload = payload_at(slot.payload_offset, packet.payload_bytes);
      packet.payload = payload.data();
      if (payload.size() != packet.payload_bytes ||
          wire::validate(packet.message, packet.payload_bytes, geometry_.slot_bytes)) {
        ++counters_.dropped;
        continue;
      }
      ++count;
    }
  }
  return count;
}

void ShmTransport::rx_release() {
  for (Lane& lane : lanes_) lane.rx_read->value.store(lane.rx_index, std::memory_order_release);
}

bool ShmTransport::has_packet() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [this](const Lane& lane) {
    return lane.rx_ring[lane.rx_index & (geometry_.rx_depth - 1)].turn.load(
               std::memory_order_acquire) == turn_of(lane.rx_index, geometry_.rx_depth);
  });
}

std::optional<ShmTransport::Doorbell> ShmTransport::begin_sleep() {
  const uint32_t rung = doorbell_->value.load(std::memory_order_acquire);
  sleeping_->value.store(kAsleep, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!has_packet()) return Doorbell{&doorbell_->value, rung};
  end_sleep();
  return std::nullopt;
}

void ShmTransport::end_sleep() {
  sleeping_->value.store(kAwake, std::memory_order_relaxed);
}

void ShmTransport::wait(Nanos timeout_ns) {
  const auto doorbell = begin_sleep();
  if (doorbell && !woken_.load(std::memory_order_acquire)) {
    ++counters_.sleeps;
    futex_wait(doorbell->word, doorbell->value, timeout_ns);
  }
  end_sleep();
  woken_.store(false, std::memory_order_relaxed);
}

bool ShmTransport::set_idle(bool idle) {
  if (!idle) {
    sleeping_->value.store(kAwake, std::memory_order_relaxed);
    return false;
  }
  if (++idle_period_ < kFirstIdlePeriod) idle_period_ = kFirstIdlePeriod;  // come round
  sleeping_->value.store(idle_period_, std::memory_order_relaxed);
  // Pairs with the fence in the lane's tx_flush: either it sees the new period, or we its packets.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return has_packet();
}

void ShmTransport::wake() {
  woken_.store(true, std::memory_order_release);
  futex_wake(&doorbell_->value);
}

}  // namespace ina::client
