// The results that a shard gives out, to all workers or to one that asks again. It remembers those
// that can be given again, and keeps results without bytes until they make a run.
#pragma once

#include <span>

#include "aggregator/bare_results.h"
#include "aggregator/shard.h"

namespace ina::aggregator {

class Results {
 public:
  /// `shard` must outlive it.
  explicit Results(Shard& shard) : shard_(shard), bare_(shard.shape.max_jobs, shard.shape.lanes) {}

  /// Bare results that have not been sent yet.
  BareResults& bare() { return bare_; }
  const BareResults& bare() const { return bare_; }
  /// Notes if the sender of a packet whose results may be bare must get them at once.
  void hear_prompt(const RxPacket& packet) {
    bare_.set_prompt(packet.job, packet.rank, packet.message.seq,
                     (packet.message.flags & wire::kFlagPrompt) != 0);
  }

  /// The result of a slot, to all that it is for, and to all others that it is decided.
  void give(ShardJob& job, const Slot& slot, std::span<const std::byte> payload, Verdict& verdict);
  /// The result of a slot, to a worker that contributes to it again.
  void repeat(const ShardJob& job, const Slot& slot, Rank rank, Verdict& verdict);
  /// The result of a fragment, to a worker that asks, if the ring still has it.
  bool give_again(const ShardJob& job, Seq seq, const RxPacket& packet, Verdict& verdict);
  /// A fragment of a job in a tree is decided: the member that contributes again gets the result,
  /// or hears that it is for another domain.
  void give_row(const ShardJob& job, Seq seq, const TreeRow& row, const RxPacket& packet,
                Verdict& verdict);
  /// A result that is given out can be given again from now on. Results in result buffers need not
  /// be remembered: no frame carries what they are for.
  void remember(ShardJob& job, Seq seq, const wire::Message& result) const {
    if (job.in_tree) [[unlikely]]
      return note_row(job, seq, result);
    if (!job.given.remembers() || result.target != 0) return;
    job.given.note(job.recent.index(shard_.number_of(seq)), seq, result);
  }
  /// Fills in what results of the switch have in common.
  void complete(const ShardJob& job, Seq seq, std::span<const std::byte> payload,
                Emission& emission) const;
  /// The verdict's last message is a result for all. From now on it is for its receiver alone; the
  /// others get a message that the fragment is decided.
  static void bare_for_others(const ShardJob& job, Verdict& verdict);

 private:
  Emission& add(const ShardJob& job, const Slot& slot, Emission::To to,
                std::span<const std::byte> payload, Verdict& verdict) const;
  static void make_bare(Emission& result);
  void note_row(const ShardJob& job, Seq seq, const wire::Message& result) const;

  Shard& shard_;
  BareResults bare_;
};

inline void Results::complete(const ShardJob& job, Seq seq, std::span<const std::byte> payload,
                              Emission& emission) const {
  wire::Message& message = emission.message;
  message.bitmap = job.full;
  message.epoch = job.spec.epoch;
  message.seq = seq.low();
  message.type = wire::Type::kResult;
  message.origin = wire::Origin::kSwitch;
  message.lane = static_cast<uint8_t>(shard_.shape.lane);
  emission.payload = payload.data();
  emission.payload_bytes = static_cast<uint32_t>(payload.size());
}

}  // namespace ina::aggregator
