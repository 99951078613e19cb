// Straggler help, for one job: which workers are late, and whether help against it pays. The
// aggregator parks only fragments that wait for late workers alone. Pure.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "aggregator/job_spec.h"
#include "aggregator/lockstep.h"
#include "aggregator/lost_time.h"
#include "aggregator/slot.h"

namespace ina::aggregator {

class LateWorkers {
 public:
  LateWorkers() = default;
  explicit LateWorkers(const JobSpec& spec);

  /// A worker has contributed to a fragment.
  void came(Rank rank, Seq seq) {
    progress_[value(rank)] = std::max(progress_[value(rank)], seq + 1);
  }
  /// 1 + the last fragment that the worker has contributed to.
  Seq progress(Rank rank) const { return progress_[value(rank)]; }
  /// The state of the worker's window, as its messages say (kFlagFull).
  void set_out_of_room(Rank rank, bool is_out) { out_of_room_.set(rank, is_out); }
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
  bool wakes(Nanos now);
  Seq slowest() const;
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
  Lockstep::Help& help() { return help_; }

 private:
  Nanos horizon() const { return JobSpec::kHorizonPatiences * patience_; }
  void find_slowest(Nanos now);
  void note_moves(Nanos now);
  Seq newest() const;
  WorkerSet held_up() const;
  std::span<const Seq> progresses() const { return std::span(progress_).first(workers_); }

  // Values from the JobSpec.
  uint32_t workers_ = 0;
  uint32_t begin_ = 0;
  uint32_t pressure_ = 0;
  Nanos patience_ = 0;
  bool if_it_pays_ = false;
  double worth_ = 0;

  WorkerSet late_;                 ///< workers for which fragments are parked
  WorkerSet out_of_room_;          ///< workers whose windows are full
  WorkerSet waited_for_;           ///< workers that hold others up, and are not late,
  Nanos waited_since_ = 0;         ///< since then
  Nanos calm_at_ = 0;              ///< nothing was parked in the horizon before that
  std::optional<Rank> straggler_;  ///< the slowest worker, since then but for moments
  Nanos straggler_since_ = 0;
  Nanos straggler_at_ = 0;  ///< it was the slowest then
  bool for_long_ = false;   ///< for half a horizon
  Nanos watch_at_ = 0;
  bool resting_ = false;   ///< nothing is parked, at least
  Nanos rests_until_ = 0;  ///< before that
  Nanos rest_ = 0;         ///< the last one was so long
  std::array<Seq, kMaxWorkers> progress_{};
  std::array<Seq, kMaxWorkers> watched_{};     ///< progress when last watched
  std::array<Nanos, kMaxWorkers> moved_at_{};  ///< there was some then
  LostTime lost_;
  Lockstep lockstep_;
  Lockstep::Help help_;
};

}  // namespace ina::aggregator
