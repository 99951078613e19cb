// A worker's operations, from their submission until their listeners have heard of their end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fragments/flow.h"
#include "fragments/operation.h"
#include "scheduler/priority.h"

namespace ina::client {

class OperationQueue {
 public:
  explicit OperationQueue(Flow& flow);

  Operation* submit(const OperationSpec& spec, Nanos now);
  /// The caller has no more use for it.
  void release(Operation* operation);
  void set_hints(const scheduler::Hints& hints, Nanos now) { priority_.set_hints(hints, now); }

  /// All bytes that it gives this worker have come. Listeners hear of it in finish().
  void note_received(Operation& operation) { received_.push_back(&operation); }
  /// All its fragments have their results. It ends in finish().
  void note_complete(Operation& operation) { finished_.push_back(&operation); }
  /// Ends operations, in the order in which they were completed.
  void finish(Nanos now);
  /// The job has lost its result buffers.
  void forget_targets();

  /// In order of submission, those that have not ended.
  const std::vector<Operation*>& running() const { return running_; }
  /// All that were submitted, modulo 2^32.
  uint32_t submitted() const { return submitted_; }

 private:
  void more();

  Flow& flow_;
  std::vector<std::unique_ptr<Operation[]>> storage_;
  std::vector<Operation*> spare_;
  // Not deques, which allocate as they move on.
  std::vector<Operation*> running_;
  std::vector<Operation*> received_;
  std::vector<Operation*> finished_;
  uint32_t submitted_ = 0;
  scheduler::PriorityMeter priority_;
};

}  // namespace ina::client
