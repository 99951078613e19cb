// Limits on how often one source may have work done. Knows no clock: time is a parameter.
#pragma once

#include <algorithm>

#include "wire/types.h"

namespace ina {

/// Time spent on a user, and not paid off yet by the passing of time. The caller decides how much
/// is too much.
class Debt {
 public:
  void add(Nanos cost, Nanos now) { paid_at_ = std::max(paid_at_, now) + cost; }
  Nanos at(Nanos now) const { return std::max<Nanos>(0, paid_at_ - now); }

 private:
  Nanos paid_at_ = 0;
};

}  // namespace ina
