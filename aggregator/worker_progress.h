// How far the workers of a job have come, and when each last got on. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "wire/worker_set.h"

namespace ina::aggregator {

class WorkerProgress {
 public:
  WorkerProgress() = default;
  WorkerProgress(uint32_t workers, Seq start) : workers_(workers) {
    progress_.fill(start);
    watched_.fill(start);
    moved_at_.fill(std::numeric_limits<Nanos>::min() / 2);
  }

  /// A worker has contributed to a fragment.
  void came(Rank rank, Seq seq) {
    progress_[value(rank)] = std::max(progress_[value(rank)], seq + 1);
  }
  /// 1 + the last fragment that the worker has contributed to.
  Seq of(Rank rank) const { return progress_[value(rank)]; }
  /// of() each worker.
  std::span<const Seq> all() const { return std::span(progress_).first(workers_); }
  Seq slowest() const { return *std::ranges::min_element(all()); }

  /// Notes who has got on since the last call.
  void watch(Nanos now) {
    for (size_t rank = 0; rank < workers_; ++rank) {
      if (progress_[rank] == watched_[rank]) continue;
      watched_[rank] = progress_[rank];
      moved_at_[rank] = now;
    }
  }
  /// True if watch() has not seen the worker get on for longer than `most`.
  bool is_still(Rank rank, Nanos most, Nanos now) const {
    return now - moved_at_[value(rank)] > most;
  }

 private:
  uint32_t workers_ = 0;
  std::array<Seq, kMaxWorkers> progress_{};
  std::array<Seq, kMaxWorkers> watched_{};     ///< progress when last watched
  std::array<Nanos, kMaxWorkers> moved_at_{};  ///< there was some then
};

}  // namespace ina::aggregator
