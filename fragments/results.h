// Results that a worker takes: whether they are the ones that it waits for, where their bytes go,
// and what the windows learn from them. Keeps them for others if the transport does not.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "aggregator/fallback.h"
#include "fragments/copy_job.h"
#include "fragments/deadlines.h"
#include "fragments/flow.h"
#include "fragments/kept_results.h"
#include "fragments/operation_queue.h"
#include "fragments/parking.h"
#include "fragments/recovery.h"

namespace ina::client {

class Results {
 public:
  /// The parts that results concern.
  struct Others {
    Deadlines& deadlines;
    Recovery& recovery;
    Parking& parking;
    OperationQueue& operations;
    aggregator::Fallback* fallback;  ///< this worker's shard, or nullptr
  };
  Results(Flow& flow, const Others& others);

  /// Takes a result. Lists at most two copies to make, and returns how many.
  size_t accept(const RxPacket& packet, Nanos now, CopyJob* jobs);
  /// The results that lie in `memory` are copied where others may still need them: it may go.
  void keep(std::span<const std::byte> memory);
  void keep_all();
  /// Set once, when a result turns out to be of another operation than this worker's.
  const std::optional<aggregator::FallbackMismatch>& mismatch() const { return mismatch_; }

 private:
  void accept_bare(const wire::Message& message, Nanos now);
  void accept_missing_bare(Operation& operation, const wire::Message& message, Nanos now);
  bool takes_bare(Seq seq, const Fragment& fragment, const wire::Message& message) const;
  void note_mismatch(const wire::Signature& ours, const wire::Message& message);
  bool is_of_earlier_life(const wire::Message& message) const;
  void look_for_needless_question(Seq seq, Nanos now);
  void complete(Seq seq, Fragment& fragment, const wire::Message& message, Nanos now);
  bool is_slowed_by(const wire::Message& message, bool parked) const;
  void adjust_windows(const wire::Message& message, Seq seq, const Fragment& fragment);
  template <class Where>
  void keep_where(Where&& where);
  size_t ignore() {
    ++flow_.counters.results_ignored;
    return 0;
  }

  Flow& flow_;
  Others others_;
  KeptResults kept_;  ///< if the transport does not keep the results
  std::optional<aggregator::FallbackMismatch> mismatch_;
};

}  // namespace ina::client
