// The last fragments of a job in one lane: whose contributions have come (the anti-replay window),
// and which fragments nobody needs any more (rule C3 of docs/protocol.md).
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "aggregator/divider.h"
#include "wire/rules.h"
#include "wire/worker_set.h"

namespace ina::aggregator {

class ReplayWindow {
 public:
  /// Entries for a window of `window` fragments over all lanes.
  static size_t entries(uint32_t window, uint32_t lanes) { return 2 * size_t{window} / lanes; }

  ReplayWindow() = default;
  /// `seen`: entries() zeros, or nullptr where slots are found by number and remember by
  /// themselves.
  ReplayWindow(Seq start, uint32_t window, uint32_t lanes, WorkerSet* seen)
      : end_(start), ring_(entries(window, lanes)), seen_(seen), window_(window), lanes_(lanes) {}

  /// 1 + the highest fragment seen.
  Seq end() const { return end_; }
  /// True if nobody needs the fragment any more.
  bool is_below(Seq seq) const { return seq + 2 * uint64_t{window_} < end_; }
  /// True if the workers that have contributed to the fragment are known.
  bool remembers(Seq seq) const { return rule(Rule::kReplayTooOld) || seq + window_ / 2 >= end_; }
  /// The workers whose contributions have come. `number`: of the fragment among those of this lane.
  WorkerSet& seen(uint64_t number) const { return seen_[index(number)]; }
  /// Index of a fragment's entry in a ring of entries().
  size_t index(uint64_t number) const { return ring_.remainder(number); }

  /// A fragment of this lane has come. Calls `forget(number)` for each fragment of which something
  /// may be known from a lap ago.
  template <class Forget>
  void advance(Seq seq, uint64_t number, Forget&& forget) {
    if (seq < end_) return;
    if (seen_) {
      // The window moves on over fragments that nobody has seen, mostly a single one.
      const uint64_t ahead = seq - end_;
      const uint64_t fragments =
          ahead < lanes_ ? 1 : std::min({ahead / lanes_ + 1, number + 1, ring_.divisor()});
      for (uint64_t i = 0; i < fragments; ++i) {
        seen(number - i) = {};
        forget(number - i);
      }
    }
    end_ = seq + 1;
  }
  /// Nothing has come in the job's new epoch.
  void clear() {
    if (seen_) std::fill_n(seen_, ring_.divisor(), WorkerSet());
  }

 private:
  Seq end_;
  Divider ring_;
  WorkerSet* seen_ = nullptr;
  uint32_t window_ = 0;
  uint32_t lanes_ = 1;
};

}  // namespace ina::aggregator
