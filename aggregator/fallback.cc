#include "aggregator/fallback.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "wire/rules.h"

namespace ina::aggregator {

using wire::Message;
using wire::Type;

namespace {

/// Fragments that must be remembered: a decision may be asked for as long as not everyone has it.
uint32_t memory_of(uint32_t window) {
  return rule(Rule::kFallbackMemory) ? 2 * window : std::max(1u, window / 2);
}

/// True if the message belongs to a fragment that one worker's payload moves through.
bool moves(const Message& message) {
  return is_moved(message.collective) && (message.bare() || message.elements != 0);
}

uint32_t entries_of(const FallbackConfig& config) {
  return (2 * config.window + config.shards - 1) / config.shards;
}

}  // namespace

size_t Fallback::memory_bytes(const FallbackConfig& config) {
  return entries_of(config) * (sizeof(Entry) + kOutputs * sizeof(Queued) + config.slot_bytes);
}

Fallback::Fallback(const FallbackConfig& config)
    : config_(config),
      full_(WorkerSet::first(config.workers)),
      top_end_(config.start),
      entries_(entries_of(config)),
      queue_(entries_.size() * kOutputs) {
  // Not touched here: pages come when fragments do.
  const size_t bytes = (entries_.size() * config.slot_bytes + 63) / 64 * 64;
  rows_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
  if (!rows_) throw std::bad_alloc();
}

Fallback::Entry* Fallback::find(Seq seq) {
  Entry& entry = entries_[index_of(seq)];
  return entry.used && entry.seq == seq ? &entry : nullptr;
}

Fallback::Entry* Fallback::find_or_create(Seq seq) {
  if (Entry* known = find(seq)) return known;
  Entry& entry = entries_[index_of(seq)];
  if (entry.used && entry.seq > seq) return nullptr;
  entry = Entry{};
  entry.seq = seq;
  entry.used = true;
  return &entry;
}

void Fallback::raise_floor(Seq seq) {
  top_end_ = std::max(top_end_, seq + 2 * uint64_t{config_.window} + 1);
}

void Fallback::forget_targets() {
  for (Entry& entry : entries_) entry.signature.target = 0;
}

void Fallback::on_message(const Message& message, const std::byte* payload) {
  const Seq seq = extend(message.seq, top_end_);
  if (seq.value % config_.shards != config_.shard) return drop();
  const bool proves =
      message.type == Type::kPart || message.type == Type::kQuery || message.type == Type::kDefer;
  if (proves) top_end_ = std::max(top_end_, seq + 1);  // C3
  if (seq + memory_of(config_.window) < top_end_) return drop();
  switch (message.type) {
    case Type::kPart:
      return on_part(seq, message, payload);
    case Type::kQuery:
      return on_query(seq, sender_of(message));
    case Type::kSent:
      if (Entry* entry = find_answered(seq, message)) return note_sent(*entry, sender_of(message));
      return drop();
    case Type::kNotYet:
      return;  // a straggler is not a loss
    case Type::kDefer:
      if (Entry* entry = find_answered(seq, message)) return on_defer(*entry, message, payload);
      return drop();
    case Type::kHave:
      return on_have(seq, message, payload);
    default:
      return drop();
  }
}

/// Empty: the message is of no worker.
WorkerSet Fallback::sender_of(const Message& message) const {
  return value(message.rank) < config_.workers ? WorkerSet::of(message.rank) : WorkerSet();
}

/// The undecided fragment of a worker's answer to this life of the fallback; nullptr: none.
Fallback::Entry* Fallback::find_answered(Seq seq, const Message& message) {
  if (rule(Rule::kInstance) && message.instance != config_.instance) return nullptr;
  if (sender_of(message).empty()) return nullptr;
  Entry* entry = find(seq);
  return entry && !entry->decided ? entry : nullptr;
}

void Fallback::on_part(Seq seq, const Message& message, const std::byte* payload) {
  if (message.epoch < config_.min_epoch) return drop();
  if (!full_.covers(message.bitmap)) return drop();
  Entry* entry = find_or_create(seq);
  if (!entry || entry->decided) return drop();
  if (is_foreign(*entry, message, message.bitmap)) return drop();
  // Marks and the payload of one source may come any number of times.
  if (rule(Rule::kDisjointMerge) && entry->bits.intersects(message.bitmap) && !moves(message))
    return drop();
  if (!merge(*entry, message, payload, message.bitmap)) return drop();
  ++counters_.parts;
  if (!message.bare()) ++entry->parts;
  if (is_complete(*entry)) decide(*entry, index_of(seq));
}

void Fallback::on_query(Seq seq, WorkerSet sender) {
  ++counters_.queries;
  Entry* entry = find_or_create(seq);
  if (!entry) return drop();
  if (entry->decided) return enqueue(*entry, kResult);
  if (entry->sent != full_) {
    note_sent(*entry, sender);  // or it would not ask
    if (entry->sent == full_) return;
    // Workers that wait for the same fragment all ask: one POLL serves all of them, until a
    // worker asks again.
    const bool anew = entry->asked.empty() || entry->asked.intersects(sender);
    entry->asked = anew ? sender : entry->asked | sender;
    if (anew) enqueue(*entry, kPollStatus);
    return;
  }
  if (!config_.bind_at_once) enqueue(*entry, kRemind);
  enqueue(*entry, kPollBind);
}

void Fallback::on_defer(Entry& entry, const Message& message, const std::byte* payload) {
  const WorkerSet sender = sender_of(message);
  entry.deferred |= sender;
  if ((message.flags & wire::kFlagRaw) == 0) return;
  if (is_foreign(entry, message, sender)) return drop();
  if (entry.bits.intersects(sender) && !moves(message)) return;
  if (!merge(entry, message, payload, sender)) return drop();
  ++counters_.raws;
  if (is_complete(entry)) decide(entry, index_of(entry.seq));
}

/// A worker has the result already, so it is the decision.
void Fallback::on_have(Seq seq, const Message& message, const std::byte* payload) {
  Entry* entry = find(seq);
  if (!entry || entry->decided) return drop();
  entry->signature = message.signature();
  entry->elements = message.elements;
  entry->flags = message.flags & (wire::kFlagOverflow | wire::kFlagSplit);
  if (const uint32_t bytes = wire::payload_bytes(message); bytes != 0)
    std::memcpy(row(index_of(seq)), payload, bytes);
  entry->decided = true;
  ++counters_.decided;
  ++counters_.decided_by_have;
  enqueue(*entry, kResult);
}

/// When a fragment's contributions are all under way or lost, the switch is to hand over the parts
/// that it holds. Only the next QUERY binds, because most results come by themselves.
void Fallback::note_sent(Entry& entry, WorkerSet sender) {
  const bool was_full = entry.sent == full_;
  entry.sent |= sender;
  if (entry.sent == full_ && !was_full) enqueue(entry, config_.bind_at_once ? kPollBind : kRemind);
}

bool Fallback::merge(Entry& entry, const Message& message, const std::byte* payload,
                     WorkerSet workers) {
  if (!entry.bits.empty() && disagree(entry, message, workers)) return false;
  if (moves(message)) {
    merge_move(entry, message, payload);
    entry.bits |= workers;
    return true;
  }
  const bool raw = (message.flags & wire::kFlagRaw) != 0;
  std::byte* sum = row(index_of(entry.seq));
  const Kernels& kernel = kernels(message.dtype, message.op);
  if (!entry.has_sum) {
    entry.signature = message.signature();
    entry.elements = message.elements;
    entry.has_sum = true;
    if (raw)
      kernel.load(sum, payload, message.elements);
    else if (const uint32_t bytes = wire::payload_bytes(message); bytes != 0)
      std::memcpy(sum, payload, bytes);
  } else {
    (raw ? kernel.add : kernel.merge)(sum, payload, message.elements);
  }
  entry.bits |= workers;
  entry.parked |= (message.flags & wire::kFlagParked) != 0;
  entry.congested |= (message.flags & wire::kFlagEcn) != 0;
  return true;
}

/// A payload that is to be moved, or workers that have come to its fragment.
void Fallback::merge_move(Entry& entry, const Message& message, const std::byte* payload) {
  entry.moves = true;
  entry.parked |= (message.flags & wire::kFlagParked) != 0;
  entry.congested |= (message.flags & wire::kFlagEcn) != 0;
  if (entry.has_sum) return;
  entry.signature = message.signature();
  if (message.bare()) return;
  entry.elements = message.elements;
  entry.has_sum = true;
  std::memcpy(row(index_of(entry.seq)), payload, wire::payload_bytes(message));
}

/// True if a message is of another operation than the entry, even if it need not be added. The
/// switch may report that all workers have come before their contributions arrive here.
bool Fallback::is_foreign(const Entry& entry, const Message& message, WorkerSet workers) {
  if (entry.bits.empty() || same_operation(entry.signature, message.signature())) return false;
  if (!mismatch_)
    mismatch_ = FallbackMismatch{entry.bits, workers, entry.signature, message.signature()};
  return true;
}

/// True if a payload to be added is of another operation than the entry.
bool Fallback::disagree(const Entry& entry, const Message& message, WorkerSet workers) {
  const bool partly = entry.moves && (message.bare() || !entry.has_sum);
  const bool same =
      partly ? moves(message) && same_operation(entry.signature, message.signature())
             : entry.signature == message.signature() && entry.elements == message.elements;
  if (same) return false;
  if (!mismatch_)
    mismatch_ = FallbackMismatch{entry.bits, workers, entry.signature, message.signature()};
  return true;
}

void Fallback::decide(Entry& entry, uint32_t index) {
  const wire::Signature& s = entry.signature;
  // In place: the result's elements are no wider than the accumulators, so none is overwritten
  // before it is read.
  const bool overflow = !entry.moves && kernels(s.dtype, s.op)
                                            .finish(row(index), row(index), entry.elements,
                                                    s.op == Op::kAvg ? config_.workers : 1);
  entry.flags = static_cast<uint16_t>((overflow ? wire::kFlagOverflow : 0) |
                                      (entry.parked      ? wire::kFlagParked
                                       : entry.parts > 1 ? wire::kFlagSplit
                                                         : 0) |
                                      (entry.congested ? wire::kFlagEcn : 0));
  entry.decided = true;
  ++counters_.decided;
  enqueue(entry, kResult);
}

void Fallback::enqueue(Entry& entry, Output output) {
  if (entry.queued >> output & 1) return;
  // An entry that a newer fragment took over may have left its outputs behind, so the queue can be
  // full. A worker asks again for a lost message.
  if (queue_.full()) {
    ++counters_.dropped;
    return;
  }
  entry.queued |= static_cast<uint8_t>(1u << output);
  queue_.push({index_of(entry.seq), output, entry.seq});
}

bool Fallback::describe(const Queued& queued, wire::Outgoing& packet) {
  Entry& entry = entries_[queued.entry];
  if (!entry.used || entry.seq != queued.seq) return false;
  if (queued.output != kResult && entry.decided) return false;
  Message& message = packet.message;
  message = Message{};
  message.epoch = config_.epoch;
  message.seq = entry.seq.low();
  message.instance = config_.instance;
  message.lane = static_cast<uint8_t>(entry.seq.value % config_.lanes);
  message.rank = kFallbackRank;
  packet.payload = nullptr;
  packet.payload_bytes = 0;
  switch (queued.output) {
    case kResult:
      message.set_signature(entry.signature);
      message.type = Type::kResult;
      message.origin = wire::Origin::kFallback;
      message.bitmap = full_;
      message.elements = entry.elements;
      message.flags = entry.flags;
      packet.payload_bytes = wire::payload_bytes(message);
      packet.payload = packet.payload_bytes == 0 ? nullptr : row(queued.entry);
      break;
    case kRemind:
      message.type = Type::kRemind;
      break;
    case kPollStatus:
      message.type = Type::kPoll;
      message.phase = wire::Phase::kStatus;
      break;
    case kPollBind:
    case kOutputs:
      message.type = Type::kPoll;
      message.phase = wire::Phase::kBind;
      // The worker whose payload is missing is not known here.
      message.bitmap = entry.moves && !entry.has_sum ? full_ : full_ - entry.bits;
      break;
  }
  return true;
}

bool Fallback::result_of(Seq seq, wire::Outgoing& packet) {
  const Entry* const entry = find(seq);
  return entry && entry->decided && describe({index_of(seq), kResult, seq}, packet);
}

size_t Fallback::prepare(std::span<wire::Outgoing> packets) {
  size_t count = 0;
  while (count < packets.size() && count < queue_.size()) {
    const Queued& queued = queue_[count];
    if (describe(queued, packets[count])) {
      ++count;
    } else if (count == 0) {  // nothing to say any more
      Entry& entry = entries_[queued.entry];
      if (entry.seq == queued.seq) entry.queued &= static_cast<uint8_t>(~(1u << queued.output));
      queue_.pop();
    } else {
      break;
    }
  }
  return count;
}

void Fallback::sent(size_t count) {
  for (; count != 0; --count) {
    const Queued& queued = queue_[0];
    Entry& entry = entries_[queued.entry];
    if (entry.seq == queued.seq) entry.queued &= static_cast<uint8_t>(~(1u << queued.output));
    switch (queued.output) {
      case kResult:
        ++counters_.results;
        break;
      case kRemind:
        ++counters_.reminds;
        break;
      default:
        ++counters_.polls;
    }
    queue_.pop();
  }
}

}  // namespace ina::aggregator
