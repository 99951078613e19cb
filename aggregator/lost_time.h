// The part of its time that a job loses because workers cannot run further ahead of the slowest
// one. It is measured without straggler help, and decides whether help is worth a try. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "wire/worker_set.h"

namespace ina::aggregator {

/// Compares what all workers have done to what the slowest of them could have done had nothing held
/// it up. A worker that is always slow is never held up: then nothing is lost, however long the
/// others wait. A worker that has stopped will go on some time, as fast as ever.
class LostTime {
 public:
  LostTime() = default;
  /// `horizon`: what was longer ago counts less than a third.
  explicit LostTime(Nanos horizon) : horizon_(std::max(horizon, kLeastHorizonNs)) {}

  /// Forgets what was lost, but not how fast workers are that nothing holds up.
  void begin(std::span<const Seq> progress, Nanos now);
  /// `progress`: 1 + the last fragment that each worker has contributed to. `held_up`: those that
  /// have no room to go on.
  void look(std::span<const Seq> progress, WorkerSet held_up, Nanos now);
  /// True if more than this part of the time is lost. Little of it has been seen at first, and
  /// counts for little.
  bool is_above(double part) const;

 private:
  /// Where patience is none.
  static constexpr Nanos kLeastHorizonNs = 100'000;

  struct Worker {
    Seq before;              ///< progress at the last look
    double free_per_ns = 0;  ///< fragments, while nothing holds it up; 0: not seen yet
    double still_ns = 0;     ///< without any
    double could = 0;        ///< fragments of the horizon, had nothing held it up
  };
  void look_at(Worker& worker, Seq progress, bool held_up, double span, double kept);

  Nanos horizon_ = 1;
  Nanos looked_at_ = 0;
  WorkerSet held_up_;
  uint32_t workers_ = 0;
  std::array<Worker, kMaxWorkers> each_{};
  double best_per_ns_ = 0;  ///< of all workers
  double done_ = 0;         ///< fragments of the horizon, of an average worker
  double active_ns_ = 0;    ///< of the horizon: something was under way
};

}  // namespace ina::aggregator
