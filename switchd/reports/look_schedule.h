// When the lanes are asked which frames of a job's workers they have dropped. Knows no clock.
#pragma once

#include <algorithm>

#include "wire/types.h"

namespace ina::switchd {

/// Soon after the job began, then ever more rarely: each look takes time of all lanes.
class LookSchedule {
 public:
  static constexpr Nanos kFirstNs = 1'000'000'000;
  static constexpr Nanos kRarestNs = 60'000'000'000;

  /// True if a look is due. The time begins with the first call.
  bool due(Nanos now) {
    if (next_ == 0) next_ = now + pause_;
    if (now < next_) return false;
    pause_ = std::min(2 * pause_, kRarestNs);
    next_ = now + pause_;
    return true;
  }

 private:
  Nanos pause_ = kFirstNs;
  Nanos next_ = 0;  ///< 0: not called yet
};

}  // namespace ina::switchd
