// When straggler help rests, for one job: where it did not pay, or was not worth a try yet. Pure.
#pragma once

#include <span>

#include "aggregator/job_spec.h"
#include "aggregator/lockstep.h"
#include "aggregator/lost_time.h"

namespace ina::aggregator {

/// `progress`: 1 + the last fragment that each worker has contributed to.
class HelpRests {
 public:
  HelpRests() = default;
  /// `horizon`: as Lockstep and LostTime have it.
  HelpRests(const JobSpec& spec, Nanos horizon, std::span<const Seq> progress);

  bool is_resting() const { return resting_; }
  /// While it rests: sees what is lost without it.
  void look(std::span<const Seq> progress, WorkerSet held_up, Nanos now) {
    lost_.look(progress, held_up, now);
  }
  /// True if a rest ends: enough time is lost without help.
  bool end(std::span<const Seq> progress, Nanos now);
  /// While it does not rest: true if a rest begins, because help does not pay.
  bool begin(std::span<const Seq> progress, Nanos now);

  /// The cost of help.
  Lockstep::Help& help() { return help_; }

 private:
  bool if_it_pays_ = false;  ///< or help never rests
  double worth_ = 0;         ///< help is worth a try where more than this part of the time is lost
  Nanos horizon_ = 0;
  bool resting_ = false;   ///< nothing is parked, at least
  Nanos rests_until_ = 0;  ///< before that
  Nanos rest_ = 0;         ///< the last one was so long
  LostTime lost_;
  Lockstep lockstep_;
  Lockstep::Help help_;
};

}  // namespace ina::aggregator
