#include "aggregator/late_workers.h"

namespace ina::aggregator {

namespace {

// Who is the slowest for less is no straggler.
constexpr Nanos kMomentPatiences = 4;
// A worker that has sent nothing for longer may have stopped.
constexpr Nanos kComingPatiences = 10;

Nanos horizon(Nanos patience) {
  return JobSpec::kHorizonPatiences * patience;
}

}  // namespace

LateWorkers::LateWorkers(const JobSpec& spec)
    : begin_(spec.park_begin),
      pressure_(spec.park_pressure),
      patience_(spec.park_patience),
      all_(WorkerSet::first(spec.workers)),
      progress_(spec.workers, spec.start),
      straggler_(kMomentPatiences * patience_, horizon(patience_) / 2),
      rests_(spec, horizon(patience_), progress_.all()) {}

void LateWorkers::forget() {
  late_ = {};
  waited_for_ = {};
  out_of_room_ = {};
}

WorkerSet LateWorkers::held_up() const {
  const Seq slowest = this->slowest();
  WorkerSet found;
  for (const Rank rank : all_)
    if (progress(rank) >= slowest + pressure_ ||
        (out_of_room_.contains(rank) && progress(rank) > slowest))
      found.insert(rank);
  return found;
}

void LateWorkers::watch(Nanos now) {
  if (now < watch_at_) return;
  watch_at_ = now + patience_;
  straggler_.look(progress_, now);
  progress_.watch(now);
  if (rests_.is_resting()) rests_.look(progress_.all(), held_up(), now);
}

bool LateWorkers::are_coming(WorkerSet workers, Seq seq, Nanos now) const {
  for (const Rank rank : workers)
    if (progress(rank) > seq || progress_.is_still(rank, kComingPatiences * patience_, now))
      return false;
  return !workers.empty();
}

/// A worker that is always a few fragments behind the first would be taken for late with the
/// slowest, and be so for ever: its contributions follow what was parked. Sums that lack two go to
/// the fallback, for some at the slowest worker itself, whose link is the bottleneck.
bool LateWorkers::soon_waits_for_one(const Slot& slot, WorkerSet full, Seq end) const {
  const WorkerSet missing = full - (slot.bits | slot.at_fallback);
  if (!straggler_.is_one_for_long() || !missing.contains(straggler_.worker()) ||
      slot.seq + pressure_ < end)
    return false;
  for (const Rank rank : missing - WorkerSet::of(straggler_.worker()))
    if (progress(rank) + begin_ > slot.seq) return true;
  return false;
}

bool LateWorkers::help_pays(Nanos now) {
  if (rests_.is_resting()) return false;
  if (!rests_.begin(progress_.all(), now)) return true;
  late_ = {};
  waited_for_ = {};
  return false;
}

/// How long a fragment waits says little: with fast workers that is never long. The oldest fragment
/// always waits for a slow worker; a worker that had no core for a while catches up.
bool LateWorkers::are_all_awaited_by(const Slot& slot, WorkerSet full, Seq end, Nanos now) {
  const WorkerSet missing = full - (slot.bits | slot.at_fallback);
  const WorkerSet others = missing - late_;
  if (others.empty()) return true;
  // A worker whose window congestion has made smaller says so when it is full.
  if ((now >= calm_at_ && slot.seq + begin_ >= end) ||
      (slot.seq + pressure_ >= end && !out_of_room_.intersects(slot.bits))) {
    waited_for_ = {};  // nobody is held up
    return false;
  }
  waited_for_ &= others;
  if (waited_for_.empty()) {
    waited_for_ = others;
    waited_since_ = now;
  }
  if (now - waited_since_ < patience_) return false;
  late_ |= waited_for_;
  return late_.covers(missing);
}

void LateWorkers::count_parked(Nanos now) {
  ++help().parked;
  calm_at_ = now + horizon(patience_);
}

}  // namespace ina::aggregator
