// How often a port answers what neighbours ask: ARP and ICMP echo requests.
#pragma once

#include <algorithm>

#include "wire/types.h"

namespace ina::io {

/// An answer a millisecond, and so many at once after silence.
class AnswerLimit {
 public:
  static constexpr Nanos kAnswerEveryNs = 1'000'000;
  static constexpr Nanos kAnswersAtOnce = 100;

  /// True if there may be one more answer, which is then counted as given.
  bool take(Nanos now) {
    if (next_ > now + kAnswersAtOnce * kAnswerEveryNs) return false;
    next_ = std::max(next_, now) + kAnswerEveryNs;
    return true;
  }

 private:
  Nanos next_ = 0;  ///< may be ahead of time by a whole burst
};

}  // namespace ina::io
