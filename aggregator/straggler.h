// The worker of a job that is the slowest for long, but for moments. Pure.
#pragma once

#include <optional>

#include "aggregator/worker_progress.h"

namespace ina::aggregator {

class Straggler {
 public:
  Straggler() = default;
  /// `moment`: who is the slowest for less is no straggler. `long_enough`: see is_one_for_long().
  Straggler(Nanos moment, Nanos long_enough) : moment_(moment), long_enough_(long_enough) {}

  /// Where an operation begins, another worker is the last one for a moment.
  void look(const WorkerProgress& progress, Nanos now) {
    const Seq least = progress.slowest();
    if (worker_ && progress.of(*worker_) == least) {
      slowest_at_ = now;
    } else if (!worker_ || now - slowest_at_ >= moment_) {
      const auto at = std::ranges::find(progress.all(), least) - progress.all().begin();
      worker_ = Rank{static_cast<uint8_t>(at)};
      since_ = slowest_at_ = now;
    }
    for_long_ = now - since_ >= long_enough_;
  }

  /// At the last look there was one that had been the slowest for so long.
  bool is_one_for_long() const { return for_long_; }
  /// After a look.
  Rank worker() const { return *worker_; }

 private:
  Nanos moment_ = 0;
  Nanos long_enough_ = 0;
  std::optional<Rank> worker_;
  Nanos since_ = 0;
  Nanos slowest_at_ = 0;  ///< it was the slowest then
  bool for_long_ = false;
};

}  // namespace ina::aggregator
