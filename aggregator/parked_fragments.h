// The fragments of one job that straggler help has passed by or parked, in one lane, and who keeps
// each of them. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "aggregator/counters.h"
#include "aggregator/divider.h"
#include "aggregator/job_spec.h"

namespace ina::aggregator {

/// Fragments have the numbers that they have among those of the lane.
class ParkedFragments {
 public:
  ParkedFragments() = default;
  /// `first`: number of the job's first fragment.
  ParkedFragments(const JobSpec& spec, uint64_t first, uint32_t lanes)
      : next_(first),
        ring_(std::max<uint64_t>(1, JobSpec::seen_words(spec.window, lanes))),
        keepers_(spec.parked_at) {}

  /// True if the fragment was looked at for being left behind: it is parked or complete.
  bool left_behind(uint64_t number) const { return number < next_; }
  /// The fragment to look at next.
  uint64_t next() const { return next_; }
  void pass_next() { ++next_; }
  /// Fragments below `number` need no help.
  void pass_below(uint64_t number) { next_ = std::max(next_, number); }

  /// False: the fallback keeps all fragments (JobSpec::parked_at).
  bool knows_keepers() const { return keepers_ != nullptr; }
  /// The worker that keeps a fragment. Nothing: the fallback does, or the fragment is not parked.
  std::optional<Rank> keeper(uint64_t number) const {
    if (!keepers_) return std::nullopt;
    const uint8_t at = keepers_[ring_.remainder(number)];
    if (at == 0 || (at & JobSpec::kParkedHome) != 0) return std::nullopt;
    return Rank{static_cast<uint8_t>(at - 1)};
  }
  /// Fragments that a worker keeps.
  uint32_t load(Rank rank) const { return load_[value(rank)]; }

  /// The fragment is parked. `keeper`: a worker, only if knows_keepers(); nothing: the fallback.
  void park(uint64_t number, std::optional<Rank> keeper, JobCounters& counters) {
    if (!keepers_) return;
    if (keeper) ++load_[value(*keeper)];
    keepers_[ring_.remainder(number)] =
        keeper ? static_cast<uint8_t>(1 + value(*keeper)) : JobSpec::kParkedHome;
    counters.parked_now_peak = std::max(counters.parked_now_peak, ++counters.parked_now);
  }
  /// The worker that keeps the fragment has passed it on to the fallback.
  void move_home(uint64_t number) {
    uint8_t& at = keepers_[ring_.remainder(number)];
    --load_[at - 1];
    at |= JobSpec::kParkedHome;
  }
  /// The fragment has a result, or nobody needs one any more.
  void forget(uint64_t number, JobCounters& counters) {
    if (!keepers_) return;
    uint8_t& at = keepers_[ring_.remainder(number)];
    if (at == 0) return;
    if ((at & JobSpec::kParkedHome) == 0) --load_[at - 1];
    --counters.parked_now;
    at = 0;
  }
  /// The job goes on in another epoch.
  void forget_all(JobCounters& counters) {
    if (!keepers_) return;
    std::fill_n(keepers_, ring_.divisor(), 0);
    load_ = {};
    counters.parked_now = 0;
  }

 private:
  uint64_t next_ = 0;
  Divider ring_;
  uint8_t* keepers_ = nullptr;                ///< JobSpec::parked_at
  std::array<uint16_t, kMaxWorkers> load_{};  ///< by rank
};

}  // namespace ina::aggregator
