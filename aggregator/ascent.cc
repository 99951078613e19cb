#include "aggregator/ascent.h"

#include <algorithm>
#include <cstring>

#include "aggregator/kernels.h"
#include "wire/rules.h"

namespace ina::aggregator {

using wire::Message;
using wire::Type;
using State = TreeRow::State;

namespace {

/// True if the message belongs to what a row holds.
bool agrees(const TreeRow& row, const Message& message) {
  if (message.bare() || row.message.bare())
    return same_operation(row.message.signature(), message.signature());
  return row.message.signature() == message.signature() && row.message.elements == message.elements;
}

}  // namespace

TreeRow& Ascent::row_of(const ShardJob& job, Seq seq) const {
  TreeRow& row = job.spec.tree.rows[job.recent.index(shard_.number_of(seq))];
  if (row.mark != seq.value + 1) {
    row = TreeRow{};
    row.mark = seq.value + 1;
  }
  return row;
}

const TreeRow* Ascent::find(const ShardJob& job, Seq seq) const {
  const TreeRow& row = job.spec.tree.rows[job.recent.index(shard_.number_of(seq))];
  return row.mark == seq.value + 1 ? &row : nullptr;
}

WorkerSet Ascent::holders(const ShardJob& job, Seq seq) const {
  if (!job.spec.tree.holders || seq >= job.recent.end() || !rule(Rule::kDoneReport)) return {};
  return job.spec.tree.holders[job.recent.index(shard_.number_of(seq))];
}

bool Ascent::answer(ShardJob& job, const Lookup& lookup, const RxPacket& packet, Nanos now,
                    Verdict& verdict) {
  const Seq seq = lookup.seq;
  if (job.recent.is_below(seq) || seq >= job.recent.end()) return false;
  const TreeRow* const known = find(job, seq);
  if (known && known->state >= State::kElsewhere) {
    shard_.drop(verdict, DropReason::kDuplicate);
    if (rule(Rule::kRowAnswers)) results_.give_row(job, seq, *known, packet, verdict);
    return true;
  }
  const WorkerSet have = holders(job, seq);
  const bool came = lookup.seen->contains(packet.rank) && rule(Rule::kAntiReplay);
  if (have.empty() && !came) return false;
  shard_.drop(verdict, DropReason::kDuplicate);
  // Members ask again, and each of them would ask all others.
  TreeRow& row = row_of(job, seq);
  const auto now_us = static_cast<uint32_t>(now / 1000);
  if (row.asked_us != 0 && now_us - row.asked_us < job.spec.rules.rto_min_ns / 1000) return true;
  row.asked_us = std::max(now_us, 1u);
  if (!have.empty())
    ask(job, seq, wire::Phase::kStatus, have, verdict);
  else if (row.state != State::kWhole)
    ask(job, seq, wire::Phase::kAgain, job.full - *lookup.seen, verdict);
  else if (rule(Rule::kRowAscends))
    ascend(job, seq, row, verdict);
  return true;
}

/// The message becomes the row's. False: it does not go with what the row holds.
bool Ascent::begin(TreeRow& row, const Message& message, Rank rank) {
  if (row.state != State::kEmpty) {
    row.message.flags |= message.flags & wire::kResultFlags;
    row.message.priority = std::max(row.message.priority, message.priority);
    return agrees(row, message);
  }
  row.message = Message{};
  row.message.set_signature(message.signature());
  row.message.elements = message.elements;
  row.message.flags = message.flags & (wire::kResultFlags | wire::kFlagBare);
  row.message.priority = message.priority;
  row.message.rank = rank;
  row.state = State::kSum;
  return true;
}

void Ascent::add(ShardJob& job, const RxPacket& packet, Verdict& verdict) {
  const Seq seq = Shard::seq_of(job, packet);
  const Message& message = packet.message;
  TreeRow& row = row_of(job, seq);
  if (!begin(row, message, packet.rank)) return shard_.abort_mismatch(job, row.message, verdict);
  shard_.count_bypassed(job, packet, verdict);
  std::byte* const sum = job.results.place(seq, 0, packet.payload_bytes);
  const Kernels& kernel = kernels(message.dtype, message.op);
  const bool first = row.message.bitmap.empty();
  if (message.type != Type::kPart)
    (first ? kernel.load : kernel.add)(sum, packet.payload, message.elements);
  else if (!first)
    kernel.merge(sum, packet.payload, message.elements);
  else if (packet.payload_bytes != 0)
    std::memcpy(sum, packet.payload, packet.payload_bytes);
  row.message.bitmap.insert(packet.rank);
  complete(job, seq, row, verdict);
}

void Ascent::take(ShardJob& job, const Slot& slot, Verdict& verdict) {
  if (job.recent.is_below(slot.seq)) return;  // its row is another fragment's by now
  Message message;
  message.set_signature(slot.signature());
  message.elements = slot.elements;
  message.flags = slot.flags;
  message.priority = slot.priority;
  TreeRow& row = row_of(job, slot.seq);
  if (!begin(row, message, slot.any_rank()))
    return shard_.abort_mismatch(job, row.message, verdict);
  const std::byte* const from = shard_.slots.row_of(slot);
  std::byte* const sum = job.results.place(slot.seq, 0, shard_.shape.slot_bytes);
  if (!row.message.bitmap.empty())
    kernels(slot.dtype, slot.op).merge(sum, from, slot.elements);
  else if (slot.elements != 0)
    std::memcpy(sum, from, slot.elements * wire_bytes(accumulator_of(slot.dtype)));
  row.message.bitmap |= slot.bits;
  complete(job, slot.seq, row, verdict);
}

bool Ascent::move(ShardJob& job, const Lookup& lookup, const RxPacket& packet, Verdict& verdict) {
  const Message& message = packet.message;
  if (!message.bare() && message.elements == 0) return false;
  TreeRow& row = row_of(job, lookup.seq);
  const bool ends_here = *lookup.seen == job.full;
  if (message.bare()) {
    ++shard_.counters.marks;
    verdict.fate = Verdict::Fate::kAbsorbed;
    if (row.state == State::kSum && !agrees(row, message)) {
      --shard_.counters.marks;
      return shard_.abort_mismatch(job, row.message, verdict), true;
    }
  } else {
    // It has one source.
    if (row.state != State::kEmpty) return shard_.abort_mismatch(job, row.message, verdict), true;
    begin(row, message, packet.rank);
    std::memcpy(job.results.place(lookup.seq, 0, packet.payload_bytes), packet.payload,
                packet.payload_bytes);
    shard_.count_bypassed(job, packet, verdict);
  }
  if (!ends_here && rule(Rule::kAllMarks)) return true;
  if (row.state == State::kEmpty) {
    // The source is in another domain.
    if (!job.spec.tree.has_parent) return true;
    begin(row, message, packet.rank);
    row.message.elements = 1;
  }
  row.message.bitmap = job.full;
  complete(job, lookup.seq, row, verdict);
  return true;
}

void Ascent::complete(ShardJob& job, Seq seq, TreeRow& row, Verdict& verdict) {
  if (row.message.bitmap != job.full) return;
  row.state = State::kWhole;
  job.parked.forget(shard_.number_of(seq), job.counters);
  // A bare result that gets lost on the way down is not sent again: a later result stands for it.
  job.note_complete(seq);
  if (job.spec.tree.has_parent)
    ascend(job, seq, row, verdict);
  else
    decide(job, seq, row, verdict);
}

/// The root's result is rounded where it lies: no element is wider than its accumulator.
void Ascent::decide(ShardJob& job, Seq seq, TreeRow& row, Verdict& verdict) {
  const Message& sum = row.message;
  const uint32_t bytes = sum.elements * wire_bytes(sum.dtype);
  std::byte* const from = job.results.place(seq, 0, bytes);
  std::byte* const result = job.results.place(seq, sum.target, bytes);
  // Not there only if the buffer has gone under the operation: then nobody misses the result.
  if (!result) return;
  if (sum.target == 0 || !shard_.place_once(job, seq)) {
    if (!carries_move(sum)) {
      const uint32_t divisor = sum.op == Op::kAvg ? job.ranks() : 1;
      if (kernels(sum.dtype, sum.op).finish(result, from, sum.elements, divisor))
        row.message.flags |= wire::kFlagOverflow;
    } else if (result != from) {
      std::memcpy(result, from, bytes);
    }
  }
  ++shard_.counters.fallback_results;
  ++job.counters.fallback_results;
  job.note_result(seq);
  Emission& emission = verdict.add(Emission::To::kAll, shard_.index_of(job));
  emission.message = row.message;
  results_.complete(job, seq, {result, bytes}, emission);
  results_.remember(job, seq, emission.message);
  if (emission.message.receiver != 0) [[unlikely]]
    Results::bare_for_others(job, verdict);
}

void Ascent::ascend(const ShardJob& job, Seq seq, const TreeRow& row, Verdict& verdict) const {
  if (job.spec.tree.parent_epoch == 0) return;  // sent once it is attached
  Emission& part = verdict.add(Emission::To::kFallback, shard_.index_of(job));
  Message& message = part.message;
  message = row.message;
  message.type = Type::kPart;
  message.bitmap = job.full;
  message.target = 0;
  message.epoch = job.spec.tree.parent_epoch;
  message.seq = seq.low();
  message.rank = Rank{};
  message.lane = static_cast<uint8_t>(shard_.shape.lane);
  if (job.has_help() && job.late.is_anyone_out_of_room()) message.flags |= wire::kFlagFull;
  part.payload_bytes = wire::payload_bytes(message);
  part.payload = message.bare() ? nullptr : job.results.place(seq, 0, part.payload_bytes);
  ++shard_.counters.parts;
  shard_.counters.part_bytes += part.payload_bytes;
}

bool Ascent::ascend_again(JobIndex index, Seq& from, Verdict& verdict) {
  verdict.emissions = 0;
  const ShardJob& job = shard_.jobs[index];
  for (from = std::max(from, oldest(job)); from < job.recent.end(); ++from) {
    if (!shard_.in_lane(from)) continue;
    const TreeRow* const row = find(job, from);
    if (!row || row->state != State::kWhole) continue;
    ascend(job, from, *row, verdict);
    ++from;
    return true;
  }
  return false;
}

void Ascent::set_held(JobIndex index, Rank member, std::span<const Seq> held) {
  const ShardJob& job = shard_.jobs[index];
  WorkerSet* const holders = job.spec.tree.holders;
  for (Seq seq = oldest(job); seq < job.recent.end(); ++seq)
    if (shard_.in_lane(seq)) holders[job.recent.index(shard_.number_of(seq))].erase(member);
  for (const Seq seq : held)
    if (seq >= oldest(job) && seq < job.recent.end() && shard_.in_lane(seq))
      holders[job.recent.index(shard_.number_of(seq))].insert(member);
}

void Ascent::ask(const ShardJob& job, Seq seq, wire::Phase phase, WorkerSet members,
                 Verdict& verdict) const {
  if (!members.empty()) ++shard_.counters.asked_again;
  shard_.poll(job, seq, phase, members, verdict);
}

/// Gives the switch above what this one has: the result, or its contribution. What it has not, it
/// asks its own members for.
void Ascent::on_poll(ShardJob& job, Seq seq, const RxPacket& packet, Verdict& verdict) {
  verdict.fate = Verdict::Fate::kForwarded;
  const TreeRow* const row = seq < job.recent.end() ? find(job, seq) : nullptr;
  if (row && row->state == State::kDone) {
    Emission& have = verdict.add(Emission::To::kFallback, packet.job);
    have.message = row->message;
    have.message.type = Type::kHave;
    have.message.epoch = job.spec.tree.parent_epoch;
    have.message.seq = seq.low();
    have.message.rank = Rank{};
    have.payload_bytes = wire::payload_bytes(have.message);
    have.payload = job.results.place(seq, have.message.target, have.payload_bytes);
    have.message.target = 0;
    return;
  }
  if (const WorkerSet have = holders(job, seq); !have.empty() && rule(Rule::kAskBelow))
    return ask(job, seq, wire::Phase::kStatus, have, verdict);
  // A member below has started again since this switch said that the result is here.
  if (packet.message.phase == wire::Phase::kStatus) {
    Emission& sent = verdict.add(Emission::To::kFallback, packet.job);
    sent.message.type = Type::kSent;
    sent.message.epoch = job.spec.tree.parent_epoch;
    sent.message.seq = seq.low();
    sent.message.lane = static_cast<uint8_t>(shard_.shape.lane);
  }
  if (row && row->state >= State::kWhole) return ascend(job, seq, *row, verdict);
  if (seq < job.recent.end() && rule(Rule::kAskBelow))
    ask(job, seq, wire::Phase::kAgain, job.full - job.recent.seen(shard_.number_of(seq)), verdict);
}

/// What this domain contributed stays, as long as the switch above may lose it.
void Ascent::pass_by(ShardJob& job, Seq seq, const RxPacket& packet, Verdict& verdict) {
  verdict.fate = Verdict::Fate::kForwarded;
  shard_.advance(job, seq);
  TreeRow& row = row_of(job, seq);
  if (row.state == State::kWhole) row.state = State::kElsewhere;
  job.parked.forget(shard_.number_of(seq), job.counters);
  job.note_result(seq);
  Emission& bare = verdict.add(Emission::To::kHolders, packet.job);
  bare.message = packet.message;
  results_.complete(job, seq, {}, bare);
}

void Ascent::pass_on_parked(const ShardJob& job, Seq seq, const RxPacket& packet,
                            Verdict& verdict) const {
  verdict.fate = Verdict::Fate::kForwarded;
  const TreeRow* const row = seq < job.recent.end() ? find(job, seq) : nullptr;
  if (!row || row->state != State::kWhole) return;
  Emission& parked = verdict.add(Emission::To::kHolders, packet.job);
  parked.message = packet.message;
  parked.message.epoch = job.spec.epoch;
  parked.message.bitmap = job.full;
}

void Ascent::retract(ShardJob& job, Seq seq, const RxPacket& packet) {
  if (!job.spec.tree.holders || seq >= job.recent.end()) return;
  if (packet.message.epoch != job.spec.epoch || !rule(Rule::kHasRetract)) return;
  job.spec.tree.holders[job.recent.index(shard_.number_of(seq))].erase(packet.rank);
}

}  // namespace ina::aggregator
