// Straggler help, for one job: which workers are late, and whether help against it pays. The
// aggregator parks only fragments that wait for late workers alone. Pure.
#pragma once

#include "aggregator/help_rests.h"
#include "aggregator/job_spec.h"
#include "aggregator/slot.h"
#include "aggregator/straggler.h"
#include "aggregator/worker_progress.h"

namespace ina::aggregator {

class LateWorkers {
 public:
  LateWorkers() = default;
  explicit LateWorkers(const JobSpec& spec);

  /// A worker has contributed to a fragment.
  void came(Rank rank, Seq seq) { progress_.came(rank, seq); }
  /// 1 + the last fragment that the worker has contributed to.
  Seq progress(Rank rank) const { return progress_.of(rank); }
  /// The state of the worker's window, as its messages say (kFlagFull).
  void set_out_of_room(Rank rank, bool is_out) { out_of_room_.set(rank, is_out); }
  bool is_anyone_out_of_room() const { return !out_of_room_.empty(); }
  /// The worker has contributed to a fragment that is not left behind.
  void caught_up(Rank rank) { late_.erase(rank); }
  /// No fragment is far enough behind the newest.
  void nobody_waits() { waited_for_ = {}; }
  /// The job goes on in another epoch.
  void forget();

  /// Watches who is the slowest, and who goes on at all. Costs nothing between two patiences.
  void watch(Nanos now);
  /// True if these workers are slow and no more: they have sent nothing later, and lately
  /// something.
  bool are_coming(WorkerSet workers, Seq seq, Nanos now) const;
  /// True if help begins, or begins again: enough time is lost without it, and it does not rest.
  /// Fragments that all have sent, below slowest(), need none.
  bool wakes(Nanos now) { return rests_.end(progress_.all(), now); }
  Seq slowest() const { return progress_.slowest(); }
  /// True if fragments may be parked now: help rests where it did not pay.
  bool help_pays(Nanos now);
  /// True if an incomplete fragment waits for late workers alone. `end`: 1 + the newest fragment.
  bool are_all_awaited_by(const Slot& slot, WorkerSet full, Seq end, Nanos now);
  /// True if an incomplete fragment soon waits for one worker alone that has been the slowest for
  /// long: the others that it lacks are near.
  bool soon_waits_for_one(const Slot& slot, WorkerSet full, Seq end) const;
  /// A fragment was parked.
  void count_parked(Nanos now);
  /// The cost of help.
  Lockstep::Help& help() { return rests_.help(); }

 private:
  WorkerSet held_up() const;

  // Values from the JobSpec.
  uint32_t begin_ = 0;
  uint32_t pressure_ = 0;
  Nanos patience_ = 0;

  WorkerSet all_;           ///< workers of the job
  WorkerSet late_;          ///< those for which fragments are parked
  WorkerSet out_of_room_;   ///< those whose windows are full
  WorkerSet waited_for_;    ///< those that hold others up, and are not late,
  Nanos waited_since_ = 0;  ///< since then
  Nanos calm_at_ = 0;       ///< nothing was parked in the horizon before that
  Nanos watch_at_ = 0;
  WorkerProgress progress_;
  Straggler straggler_;
  HelpRests rests_;
};

}  // namespace ina::aggregator
