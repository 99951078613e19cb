// Decides whether straggler help pays: compares the workers' progress with help to a simulation in
// which no worker can run ahead. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "wire/types.h"

namespace ina::aggregator {

/// Plays the job once more with a window. Each worker goes on as it really does, but no further
/// than a window ahead of the slowest; its progress beyond that is lost.
class Lockstep {
 public:
  /// The work of help so far.
  struct Help {
    uint64_t parked = 0;    ///< fragments
    uint64_t messages = 0;  ///< payloads that it has sent to workers, beside the results
    uint64_t asked = 0;     ///< questions about complete fragments whose results got lost with help
  };

  Lockstep() = default;
  /// `window`: fragments that a worker could be ahead. `step`: the least time between looks.
  /// `horizon`: progress longer ago counts less than a third.
  Lockstep(uint32_t workers, uint64_t window, Nanos step, Nanos horizon);

  /// `progress`: 1 + the last fragment that each worker has contributed to.
  void look(std::span<const Seq> progress, const Help& help, Nanos now);
  /// Forgets what was. Workers are as far apart as they are.
  void begin(std::span<const Seq> progress, const Help& help, Nanos now);

  /// True if workers get on faster than they would in the play, each on a link that has no messages
  /// of help to carry. Also true where too little has been seen.
  bool pays() const;

 private:
  uint32_t workers_ = 0;
  uint64_t window_ = 0;
  Nanos step_ = 1;
  Nanos horizon_ = 1;
  Nanos looked_at_ = 0;
  Help help_before_;
  uint64_t low_ = 0;                              ///< position of the slowest in the play
  std::array<Seq, kMaxWorkers> before_{};         ///< position of each at the last look
  std::array<uint64_t, kMaxWorkers> would_be_{};  ///< and where in the play
  // Sums over the horizon: fragments that all workers together have done, those that each of them
  // would have, and the work of help.
  double done_ = 0;
  double would_have_ = 0;
  double parked_ = 0;
  double messages_ = 0;
  double asked_ = 0;
};

}  // namespace ina::aggregator
