// The next packets of a job and their fates, for `inactl trace`. A lane fills a trace, the
// conductor reads it; neither waits for the other.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "aggregator/aggregator.h"

namespace ina::switchd {

/// A packet that reached the array, and its verdict.
struct TraceRecord {
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  Nanos time = 0;  ///< of its burst
  Seq seq;
  wire::Message message;
  aggregator::JobIndex job = 0;  ///< the domain of the job
  uint16_t port = 0;  ///< 0: shm; otherwise 1 + the Ethernet port's place in the configuration
  Rank rank{};
  aggregator::Verdict::Fate fate{};
  DropReason reason{};  ///< of a packet that was dropped
  /// Index in the lane, after the packet; before it, if the packet took the fragment out.
  uint32_t slot = kNoSlot;
  aggregator::SlotState state{};  ///< of the slot, after the packet; kEmpty: it left
  WorkerSet held = {};            ///< workers whose contributions the slot holds after the packet
  struct Sent {
    wire::Type type{};
    aggregator::Emission::To to{};
  };
  uint8_t sent_count = 0;
  std::array<Sent, 2> sent{};  ///< because of the packet
};

/// A lane's part of a trace: bounded, and full when it has as many packets as all lanes together
/// are to say. One writer, one reader; added records never change.
class PacketTrace {
 public:
  /// `domains`: of the job.
  PacketTrace(std::vector<aggregator::JobIndex> domains, uint32_t packets)
      : domains_(std::move(domains)),
        capacity_(packets),
        records_(std::make_unique<TraceRecord[]>(packets)) {}

  bool has(aggregator::JobIndex job) const {
    return std::ranges::find(domains_, job) != domains_.end();
  }

  // The lane.
  bool is_full() const { return filled_.load(std::memory_order_relaxed) == capacity_; }
  void add(const TraceRecord& record) {
    const uint32_t at = filled_.load(std::memory_order_relaxed);
    if (at == capacity_) return;
    records_[at] = record;
    filled_.store(at + 1, std::memory_order_release);
  }

  // The conductor.
  std::span<const TraceRecord> records() const {
    return {records_.get(), filled_.load(std::memory_order_acquire)};
  }

 private:
  const std::vector<aggregator::JobIndex> domains_;
  const uint32_t capacity_;
  const std::unique_ptr<TraceRecord[]> records_;
  std::atomic<uint32_t> filled_ = 0;
};

/// Writes a trace while a port's burst is served (aggregator::serve_watched()).
class TraceWriter {
 public:
  TraceWriter(PacketTrace& trace, aggregator::Aggregator& aggregator, uint16_t port, Nanos now)
      : trace_(trace), aggregator_(aggregator), port_(port), now_(now) {}

  void before(const aggregator::RxPacket& packet) {
    if (!trace_.has(packet.job)) return;
    seq_ = aggregator_.seq_of(packet.job, packet.message.seq);
    before_ = aggregator_.slot_of(packet.job, seq_);
  }

  void after(const aggregator::RxPacket& packet, const aggregator::Verdict& verdict) {
    if (!trace_.has(packet.job)) return;
    const aggregator::Slot* const now_in = aggregator_.slot_of(packet.job, seq_);
    const aggregator::Slot* const slot = now_in ? now_in : before_;
    TraceRecord record{.time = now_,
                       .seq = seq_,
                       .message = packet.message,
                       .job = packet.job,
                       .port = port_,
                       .rank = packet.rank,
                       .fate = verdict.fate,
                       .reason = verdict.reason,
                       .sent_count = verdict.emissions};
    if (slot) record.slot = static_cast<uint32_t>(slot - aggregator_.slots().data());
    if (now_in) {
      record.state = now_in->state;
      record.held = now_in->bits;
    }
    for (size_t i = 0; i < verdict.emissions; ++i)
      record.sent[i] = {verdict.emission[i].message.type, verdict.emission[i].to};
    trace_.add(record);
  }

 private:
  PacketTrace& trace_;
  aggregator::Aggregator& aggregator_;
  const uint16_t port_;
  const Nanos now_;
  Seq seq_;
  const aggregator::Slot* before_ = nullptr;
};

}  // namespace ina::switchd
