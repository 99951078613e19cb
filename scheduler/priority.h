// Priorities of operations, computed by each worker for itself (ESA, section 4, reconstructed):
//
//   score = 1 / T_remaining * (communication / computation) * (1 + (L - l) / L)
//
// A job that will soon be over, or that waits for communication much of its time, gains most from a
// slot. Within a job the front layers gain most, because the next iteration needs them first. The
// score is quantised logarithmically to 1..255; 0 is reserved for parked fragments.
#pragma once

#include <cmath>
#include <cstdint>

#include "wire/types.h"

namespace ina::scheduler {

/// The caller's knowledge of its job; 0: unknown.
struct Hints {
  uint32_t layer = 0;  ///< 1..layers, 1 at the front
  uint32_t layers = 0;
  uint64_t remaining_iterations = 0;
};

/// Six steps to a factor of two: 255 at a score of 1/us and above, 1 at that of a job that has two
/// months to go.
inline uint8_t quantise_priority(double score_per_s) {
  const double steps = 255 + 6 * std::log2(score_per_s / 1e6);
  return static_cast<uint8_t>(std::fmin(255.0, std::fmax(1.0, steps)));
}

/// Measures what the score needs. Time is a parameter.
class PriorityMeter {
 public:
  void set_hints(const Hints& hints, Nanos now) {
    if (hints.remaining_iterations != 0) {
      if (hints_.remaining_iterations > hints.remaining_iterations) {
        const auto iterations =
            static_cast<double>(hints_.remaining_iterations - hints.remaining_iterations);
        blend(iteration_s_, seconds(now - iteration_started_) / iterations);
        iteration_started_ = now;
      } else if (hints_.remaining_iterations != hints.remaining_iterations) {
        iteration_started_ = now;
      }
    }
    hints_ = hints;
  }

  /// An operation starts; `running` before it.
  void started(Nanos now, size_t running) {
    if (!begun_) {
      begun_ = true;
      first_ = changed_ = now;
    }
    if (running == 0) {
      blend(computation_s_, seconds(now - changed_));
      changed_ = now;
    }
  }
  /// Operations have completed; `running` are left.
  void finished(Nanos now, size_t running) {
    if (running == 0) {
      blend(communication_s_, seconds(now - changed_));
      changed_ = now;
    }
  }

  uint8_t priority(Nanos now) const {
    // Without better knowledge a job is expected to go on for as long as it has run.
    double remaining_s = std::fmax(seconds(now - first_), kLeastExpectedSeconds);
    if (hints_.remaining_iterations != 0 && iteration_s_ > 0)
      remaining_s = static_cast<double>(hints_.remaining_iterations) * iteration_s_;
    remaining_s = std::fmax(remaining_s, 1e-6);
    double ratio = 1;
    if (communication_s_ > 0 && computation_s_ > 0)
      ratio = std::fmin(16.0, std::fmax(1.0 / 16, communication_s_ / computation_s_));
    double front = 1;
    if (hints_.layers != 0 && hints_.layer >= 1 && hints_.layer <= hints_.layers)
      front += static_cast<double>(hints_.layers - hints_.layer) / hints_.layers;
    return quantise_priority(ratio * front / remaining_s);
  }

 private:
  static constexpr double kLeastExpectedSeconds = 1;

  static double seconds(Nanos ns) { return static_cast<double>(ns) * 1e-9; }
  static void blend(double& mean, double sample) {
    mean = mean == 0 ? sample : mean + (sample - mean) / 8;
  }

  Hints hints_;
  bool begun_ = false;
  Nanos first_ = 0;
  Nanos changed_ = 0;  ///< when communication or computation began
  Nanos iteration_started_ = 0;
  double iteration_s_ = 0;
  double communication_s_ = 0;
  double computation_s_ = 0;
};

}  // namespace ina::scheduler
