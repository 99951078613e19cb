#include "aggregator/late_workers.h"

#include <algorithm>
#include <limits>

namespace ina::aggregator {

namespace {

// Who is the slowest for less is no straggler.
constexpr Nanos kMomentPatiences = 4;
// A worker that has sent nothing for longer may have stopped.
constexpr Nanos kComingPatiences = 10;

}  // namespace

LateWorkers::LateWorkers(const JobSpec& spec)
    : workers_(spec.workers),
      begin_(spec.park_begin),
      pressure_(spec.park_pressure),
      patience_(spec.park_patience),
      if_it_pays_(spec.park_if_it_pays),
      worth_(spec.park_worth) {
  progress_.fill(spec.start);
  watched_.fill(spec.start);
  moved_at_.fill(std::numeric_limits<Nanos>::min() / 2);
  if (!if_it_pays_) return;
  lockstep_ = Lockstep(spec.workers, spec.park_window, patience_, horizon());
  lockstep_.begin(progresses(), {}, 0);
  lost_ = LostTime(horizon());
  lost_.begin(progresses(), 0);
  resting_ = worth_ > 0;
}

void LateWorkers::forget() {
  late_ = {};
  waited_for_ = {};
  out_of_room_ = {};
}

bool LateWorkers::wakes(Nanos now) {
  if (!resting_ || now < rests_until_ || (worth_ > 0 && !lost_.is_above(worth_))) return false;
  resting_ = false;
  lockstep_.begin(progresses(), help_, now);
  return true;
}

Seq LateWorkers::slowest() const {
  return *std::ranges::min_element(progresses());
}

WorkerSet LateWorkers::held_up() const {
  const Seq slowest = this->slowest();
  WorkerSet found;
  for (const Rank rank : WorkerSet::first(workers_))
    if (progress(rank) >= slowest + pressure_ ||
        (out_of_room_.contains(rank) && progress(rank) > slowest))
      found.insert(rank);
  return found;
}

Seq LateWorkers::newest() const {
  return *std::ranges::max_element(progresses());
}

void LateWorkers::watch(Nanos now) {
  if (now < watch_at_) return;
  watch_at_ = now + patience_;
  find_slowest(now);
  note_moves(now);
  if (resting_) lost_.look(progresses(), held_up(), now);
}

/// Where an operation begins, another worker is the last one for a moment.
void LateWorkers::find_slowest(Nanos now) {
  const Seq least = slowest();
  if (straggler_ && progress(*straggler_) == least) {
    straggler_at_ = now;
  } else if (!straggler_ || now - straggler_at_ >= kMomentPatiences * patience_) {
    const auto at = std::ranges::find(progresses(), least) - progresses().begin();
    straggler_ = Rank{static_cast<uint8_t>(at)};
    straggler_since_ = straggler_at_ = now;
  }
  for_long_ = now - straggler_since_ >= horizon() / 2;
}

void LateWorkers::note_moves(Nanos now) {
  for (size_t rank = 0; rank < workers_; ++rank) {
    if (progress_[rank] == watched_[rank]) continue;
    watched_[rank] = progress_[rank];
    moved_at_[rank] = now;
  }
}

bool LateWorkers::are_coming(WorkerSet workers, Seq seq, Nanos now) const {
  for (const Rank rank : workers)
    if (progress(rank) > seq || now - moved_at_[value(rank)] > kComingPatiences * patience_)
      return false;
  return !workers.empty();
}

/// A worker that is always a few fragments behind the first would be taken for late with the
/// slowest, and be so for ever: its contributions follow what was parked. Sums that lack two go to
/// the fallback, for some at the slowest worker itself, whose link is the bottleneck.
bool LateWorkers::soon_waits_for_one(const Slot& slot, WorkerSet full, Seq end) const {
  const WorkerSet missing = full - (slot.bits | slot.at_fallback);
  if (!for_long_ || !missing.contains(*straggler_) || slot.seq + pressure_ < end) return false;
  for (const Rank rank : missing - WorkerSet::of(*straggler_))
    if (progress(rank) + begin_ > slot.seq) return true;
  return false;
}

bool LateWorkers::help_pays(Nanos now) {
  if (!if_it_pays_) return true;
  if (resting_) return false;
  lockstep_.look(progresses(), help_, now);
  if (lockstep_.pays()) return true;
  const bool again = now - rests_until_ < rest_;
  rest_ = again ? std::min({2 * rest_, JobSpec::kLongestRestHorizons * horizon(),
                            JobSpec::kLongestRestNs})
                : std::min(JobSpec::kRestHorizons * horizon(), JobSpec::kRestNs);
  rests_until_ = now + rest_;
  resting_ = true;
  lost_.begin(progresses(), now);
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
  ++help_.parked;
  calm_at_ = now + horizon();
}

}  // namespace ina::aggregator
