#include "aggregator/results.h"

namespace ina::aggregator {

using wire::Message;

void Results::give(ShardJob& job, const Slot& slot, std::span<const std::byte> payload,
                   Verdict& verdict) {
  const Emission& result = add(job, slot, Emission::To::kAll, payload, verdict);
  remember(job, slot.seq, result.message);
  if (slot.receiver != 0) [[unlikely]]
    bare_for_others(job, verdict);
}

void Results::repeat(const ShardJob& job, const Slot& slot, Rank rank, Verdict& verdict) {
  ++shard_.counters.results_again;
  const uint32_t bytes =
      (slot.flags & wire::kFlagBare) != 0 ? 0 : slot.elements * wire_bytes(slot.dtype);
  Emission& emission = add(job, slot, Emission::To::kSender,
                           {job.results.place(slot.seq, slot.target, bytes), bytes}, verdict);
  emission.message.flags |= wire::kFlagAgain;
  if (!job.members_with(slot.receiver).contains(rank)) make_bare(emission);
}

bool Results::give_again(const ShardJob& job, Seq seq, const RxPacket& packet, Verdict& verdict) {
  const Message* const given = job.given.find(job.recent.index(shard_.number_of(seq)), seq);
  if (given == nullptr) return false;
  ++shard_.counters.results_again;
  verdict.fate = Verdict::Fate::kForwarded;
  Emission& result = verdict.add(Emission::To::kSender, packet.job);
  result.message = *given;
  result.message.seq = seq.low();
  result.message.bitmap = job.full;
  result.message.flags &= static_cast<uint16_t>(~wire::kFlagKept);
  result.message.flags |= wire::kFlagAgain;
  result.payload_bytes = wire::payload_bytes(result.message);
  result.payload = job.results.place(seq, 0, result.payload_bytes);
  if (!job.members_with(given->receiver).contains(packet.rank)) make_bare(result);
  return true;
}

void Results::give_row(const ShardJob& job, Seq seq, const TreeRow& row, const RxPacket& packet,
                       Verdict& verdict) {
  ++shard_.counters.results_again;
  Emission& result = verdict.add(Emission::To::kSender, packet.job);
  result.message = row.message;
  result.message.flags |= wire::kFlagAgain;
  const uint32_t bytes = result.message.elements * wire_bytes(result.message.dtype);
  complete(job, seq, {job.results.place(seq, result.message.target, bytes), bytes}, result);
  const bool is_receiver = row.state == TreeRow::State::kDone &&
                           job.members_with(row.message.receiver).contains(packet.rank);
  if (!is_receiver) make_bare(result);
}

/// The row's entry says from now on that its result is there.
void Results::note_row(const ShardJob& job, Seq seq, const wire::Message& result) const {
  TreeRow& row = job.spec.tree.rows[job.recent.index(shard_.number_of(seq))];
  row.mark = seq.value + 1;
  row.message = result;
  row.state = TreeRow::State::kDone;
}

Emission& Results::add(const ShardJob& job, const Slot& slot, Emission::To to,
                       std::span<const std::byte> payload, Verdict& verdict) const {
  Emission& emission = verdict.add(to, slot.job);
  Message& message = emission.message;
  message.set_signature(slot.signature());
  message.elements = slot.elements;
  message.flags = slot.flags;
  complete(job, slot.seq, payload, emission);
  return emission;
}

void Results::make_bare(Emission& result) {
  result.message.flags |= wire::kFlagBare;
  result.message.elements = 1;
  result.message.target = 0;
  result.payload = nullptr;
  result.payload_bytes = 0;
}

void Results::bare_for_others(const ShardJob& job, Verdict& verdict) {
  Emission& result = verdict.emission[verdict.emissions - 1];
  const WorkerSet receiver = job.members_with(result.message.receiver);
  const WorkerSet all = result.message.bitmap;
  result.to = Emission::To::kHolders;
  result.message.bitmap = all & receiver;
  if (receiver.covers(all)) return;
  Emission& bare = verdict.add(Emission::To::kHolders, result.job);
  bare.message = result.message;
  bare.message.bitmap = all - receiver;
  make_bare(bare);
}

}  // namespace ina::aggregator
