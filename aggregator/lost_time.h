// The part of its time that a job loses because workers cannot run further ahead of the slowest
// one. It is measured without straggler help, and decides whether help is worth a try. Pure.
#pragma once

#include <algorithm>

#include "wire/types.h"

namespace ina::aggregator {

class LostTime {
 public:
  LostTime() = default;
  /// `horizon`: what was longer ago counts less than a third.
  explicit LostTime(Nanos horizon) : horizon_(std::max(horizon, kLeastHorizonNs)) {}

  /// Forgets what was lost, but not how fast workers are that nobody holds up.
  void begin(Seq slowest, Seq newest, Nanos now);
  /// `slowest`, `newest`: 1 + the last fragment of the worker that is behind, and ahead, of all.
  /// `held_up`: a worker that is ahead has no room to go on.
  void look(Seq slowest, Seq newest, bool held_up, Nanos now);
  /// Whether more than this part of the time is lost. Little of it has been seen at first, and
  /// counts for little.
  bool is_above(double part) const;

 private:
  /// Where patience is none.
  static constexpr Nanos kLeastHorizonNs = 100'000;

  void note_rate(double per_ns, bool held_up);

  Nanos horizon_ = 1;
  Nanos looked_at_ = 0;
  bool held_up_ = false;
  Seq slowest_;
  Seq newest_;
  double free_per_ns_ = 0;  ///< fragments, of the first worker while nothing holds it up
  // Of the horizon.
  double active_ns_ = 0;  ///< something was under way
  double lost_ns_ = 0;
};

}  // namespace ina::aggregator
