#include "aggregator/lost_time.h"

#include <algorithm>
#include <limits>

namespace ina::aggregator {

namespace {

// A part of the horizon in which nothing was lost stands before what is seen.
constexpr double kUnseenHorizons = 0.1;
// The rate of workers that nothing holds up follows slower ones by this part each look.
constexpr double kRateFollows = 1.0 / 512;
// A worker that has sent nothing for this part of the horizon has stopped.
constexpr double kStopHorizons = 0.02;

}  // namespace

void LostTime::begin(std::span<const Seq> progress, Nanos now) {
  looked_at_ = now;
  held_up_ = {};
  workers_ = static_cast<uint32_t>(progress.size());
  for (uint32_t i = 0; i < workers_; ++i) {
    each_[i].before = progress[i];
    each_[i].could = each_[i].still_ns = 0;
  }
  done_ = active_ns_ = 0;
}

void LostTime::look(std::span<const Seq> progress, WorkerSet held_up, Nanos now) {
  const auto span = static_cast<double>(now - looked_at_);
  if (span <= 0) return;
  // Nothing came for long, or it is the first look.
  if (now - looked_at_ > horizon_) return begin(progress, now);
  uint64_t done = 0;
  for (uint32_t i = 0; i < workers_; ++i) done += progress[i] - each_[i].before;
  const auto [slowest, newest] = std::ranges::minmax(progress);
  const double kept = std::max(0.0, 1 - span / static_cast<double>(horizon_));
  if (done != 0 || slowest != newest) {
    active_ns_ = active_ns_ * kept + span;
    done_ = done_ * kept + static_cast<double>(done) / workers_;
    for (uint32_t i = 0; i < workers_; ++i)
      look_at(each_[i], progress[i], (held_up | held_up_).contains(Rank{static_cast<uint8_t>(i)}),
              span, kept);
  }
  looked_at_ = now;
  held_up_ = held_up;
}

void LostTime::look_at(Worker& worker, Seq progress, bool held_up, double span, double kept) {
  const auto own = static_cast<double>(progress - worker.before);
  worker.before = progress;
  // The best rate: where workers compute, they are slow for another reason.
  const double per_ns = own / span;
  if (per_ns > worker.free_per_ns)
    worker.free_per_ns = per_ns;
  else if (!held_up && own > 0)
    worker.free_per_ns += (per_ns - worker.free_per_ns) * kRateFollows;
  best_per_ns_ = std::max(best_per_ns_, worker.free_per_ns);
  worker.still_ns = own == 0 ? worker.still_ns + span : 0;
  const bool stopped = worker.still_ns > kStopHorizons * static_cast<double>(horizon_);
  const double rate = worker.free_per_ns == 0 ? best_per_ns_ : worker.free_per_ns;
  worker.could = worker.could * kept + (held_up || stopped ? rate * span : own);
}

bool LostTime::is_above(double part) const {
  double could = std::numeric_limits<double>::max();
  for (uint32_t i = 0; i < workers_; ++i) could = std::min(could, each_[i].could);
  const double lost = std::max(0.0, could - done_) / std::max(could, 1.0) * active_ns_;
  return lost > part * (active_ns_ + kUnseenHorizons * static_cast<double>(horizon_));
}

}  // namespace ina::aggregator
