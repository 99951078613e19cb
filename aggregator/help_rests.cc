#include "aggregator/help_rests.h"

#include <algorithm>

namespace ina::aggregator {

HelpRests::HelpRests(const JobSpec& spec, Nanos horizon, std::span<const Seq> progress)
    : if_it_pays_(spec.park_if_it_pays), worth_(spec.park_worth), horizon_(horizon) {
  if (!if_it_pays_) return;
  lockstep_ = Lockstep(spec.workers, spec.park_window, spec.park_patience, horizon);
  lockstep_.begin(progress, {}, 0);
  lost_ = LostTime(horizon);
  lost_.begin(progress, 0);
  resting_ = worth_ > 0;
}

bool HelpRests::end(std::span<const Seq> progress, Nanos now) {
  if (!resting_ || now < rests_until_ || (worth_ > 0 && !lost_.is_above(worth_))) return false;
  resting_ = false;
  lockstep_.begin(progress, help_, now);
  return true;
}

bool HelpRests::begin(std::span<const Seq> progress, Nanos now) {
  if (!if_it_pays_) return false;
  lockstep_.look(progress, help_, now);
  if (lockstep_.pays()) return false;
  const bool again = now - rests_until_ < rest_;
  rest_ =
      again
          ? std::min({2 * rest_, JobSpec::kLongestRestHorizons * horizon_, JobSpec::kLongestRestNs})
          : std::min(JobSpec::kRestHorizons * horizon_, JobSpec::kRestNs);
  rests_until_ = now + rest_;
  resting_ = true;
  lost_.begin(progress, now);
  return true;
}

}  // namespace ina::aggregator
