#include "aggregator/lost_time.h"

#include <algorithm>

namespace ina::aggregator {

namespace {

// A part of the horizon in which nothing was lost stands before what is seen.
constexpr double kUnseenHorizons = 0.1;
// The rate of workers that nobody holds up follows slower ones by this part each look.
constexpr double kRateFollows = 1.0 / 512;

}  // namespace

void LostTime::begin(Seq slowest, Seq newest, Nanos now) {
  looked_at_ = now;
  held_up_ = false;
  slowest_ = slowest;
  newest_ = newest;
  active_ns_ = lost_ns_ = 0;
}

void LostTime::look(Seq slowest, Seq newest, bool held_up, Nanos now) {
  const auto span = static_cast<double>(now - looked_at_);
  if (span <= 0) return;
  // Nothing came for long, or it is the first look.
  if (now - looked_at_ > horizon_) return begin(slowest, newest, now);
  const bool active = slowest != slowest_ || newest != slowest;
  const auto done = static_cast<double>(slowest - slowest_);
  const double kept = std::max(0.0, 1 - span / static_cast<double>(horizon_));
  note_rate(static_cast<double>(newest - newest_) / span, held_up || held_up_);
  if (active) {
    active_ns_ = active_ns_ * kept + span;
    lost_ns_ *= kept;
  }
  if (held_up && held_up_ && free_per_ns_ > 0)
    lost_ns_ += std::max(0.0, span - done / free_per_ns_);
  looked_at_ = now;
  held_up_ = held_up;
  slowest_ = slowest;
  newest_ = newest;
}

/// The best one: where workers compute, they are slow for another reason.
void LostTime::note_rate(double per_ns, bool held_up) {
  if (per_ns > free_per_ns_)
    free_per_ns_ = per_ns;
  else if (!held_up && per_ns > 0)
    free_per_ns_ += (per_ns - free_per_ns_) * kRateFollows;
}

bool LostTime::is_above(double part) const {
  return lost_ns_ > part * (active_ns_ + kUnseenHorizons * static_cast<double>(horizon_));
}

}  // namespace ina::aggregator
