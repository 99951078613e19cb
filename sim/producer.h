// How fast a simulated worker computes and makes its contributions, and how its uplink slows them
// down: its pace, and what it has made so far.
#pragma once

#include <algorithm>
#include <utility>

#include "sim/straggler.h"

namespace ina::sim {

class Producer {
 public:
  /// `frame_ns`: of a whole fragment, at the link's rate.
  Producer(const StragglerSpec& spec, Pace pace, Nanos frame_ns)
      : slow_(spec.slow), staging_(spec.staging), frame_ns_(frame_ns), pace_(std::move(pace)) {}

  bool is_slow() const { return !pace_.steady() && slow_ == Slow::kProducer; }
  bool has_slow_uplink() const { return !pace_.steady() && slow_ == Slow::kUplink; }

  /// When work that begins now is done.
  Nanos compute(Nanos now, Nanos work_ns) {
    return is_slow() ? pace_.finish(now, work_ns, made_) : now + work_ns;
  }
  /// When a slow uplink has carried the next contribution.
  Nanos carry(Nanos begins, Nanos wire_ns) { return pace_.finish(begins, wire_ns, made_++); }

  /// It begins to make the gradients of an operation, and had none to make before.
  void begin(Nanos now) { made_since_ = now; }
  /// Takes the next contribution of a slow worker if it is made, and returns `now`. Otherwise
  /// returns when it will be.
  Nanos take(Nanos now) {
    if (next_at_ > now) return next_at_;
    const Nanos staged_since =
        staging_ == 0 ? made_since_ : now - static_cast<Nanos>(staging_) * frame_ns_;
    next_at_ = pace_.finish(std::max(next_at_, staged_since), frame_ns_, made_++);
    return now;
  }

 private:
  const Slow slow_;
  const uint64_t staging_;  ///< StragglerSpec::staging
  const Nanos frame_ns_;
  Pace pace_;
  Nanos next_at_ = 0;     ///< the next contribution of a slow worker is made
  Nanos made_since_ = 0;  ///< start of making the gradients that are staged now
  uint64_t made_ = 0;     ///< contributions
};

}  // namespace ina::sim
