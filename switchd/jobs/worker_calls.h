// Calls to workers for which packets wait while their users compute: somebody must take them in.
// One that falls idle again and again is called less often then.
#pragma once

#include <algorithm>

#include "switchd/connections.h"
#include "switchd/jobs/job_table.h"

namespace ina::switchd {

class WorkerCalls {
 public:
  /// Both must outlive it.
  WorkerCalls(const JobTable& jobs, Connections& connections)
      : jobs_(jobs), connections_(connections) {}

  /// Calls those whom lanes want called. They leave `call_wanted` alone while it is set, so that
  /// nothing is lost, and nobody is woken.
  void call(Nanos now);
  /// Runs call(), if somebody has been put off until now.
  void call_again(Nanos now) {
    if (again_ != 0 && now >= again_) call(now);
  }
  /// The time until which somebody has been put off, at `until` the latest.
  Nanos next(Nanos until) const { return again_ == 0 ? until : std::min(until, again_); }

 private:
  const JobTable& jobs_;
  Connections& connections_;
  Nanos again_ = 0;  ///< when workers are called that have been called too often; 0: none
};

}  // namespace ina::switchd
