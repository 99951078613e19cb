// All-to-alls and send/receives of which each rank knows its own counts alone. First the ranks tell
// each other their counts, by an all-gather. Then each rank knows all counts, checks that they
// agree, and moves the data. Both steps are operations of one Schedule, so that no thread waits in
// between. Pure; under the context's lock.
//
// Ranks that disagree all see the same counts, and so the same first disagreement: disagreement()
// has its text, and nothing goes on.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "operations/executor.h"
#include "plans/collectives.h"

namespace ina::client {

/// A rank's own part of such an operation. Numbers are in elements.
struct OwnCounts {
  /// By rank. Of a send and receive: one each.
  std::span<const uint64_t> send, receive;
  /// By rank: where the blocks lie. Of a send and receive: none.
  std::span<const uint64_t> send_displacements, receive_displacements;
  /// The ranks of a send and receive, or scheduler::kNobody.
  int32_t destination = scheduler::kNobody;
  int32_t source = scheduler::kNobody;
};

/// All of one context.
class CountedMoves final {
 public:
  /// `executor` must outlive it.
  CountedMoves(Executor& executor, Rank rank, uint32_t workers, uint32_t slot_bytes);
  ~CountedMoves();
  CountedMoves(const CountedMoves&) = delete;
  CountedMoves& operator=(const CountedMoves&) = delete;

  /// Starts one; spec.collective is kAllToAll or kPermute (a send and receive). `counts` are
  /// copied. Throws std::bad_alloc before anything is submitted.
  Operation* start(const OperationSpec& spec, const OwnCounts& counts, Nanos now);
  /// Returns false if the operation is not one of start()'s.
  bool release(Operation* operation);
  /// Empty: the ranks agree.
  const std::string& disagreement() const { return disagreement_; }

 private:
  enum Kernel : uint32_t { kTell, kAgree };
  class Move;

  const std::shared_ptr<const scheduler::Schedule>& schedule_for(const OperationSpec& spec);
  scheduler::Schedule make_schedule(Collective collective, DType dtype) const;
  /// 64-bit numbers that a rank tells the others.
  uint64_t words(Collective collective) const;
  Move& new_move();
  void disagree(std::string text);

  Executor& executor_;
  const Rank rank_;
  const uint32_t workers_;
  const uint32_t slot_bytes_;
  /// Made so far, of each collective and data type.
  struct Known {
    Collective collective{};
    DType dtype{};
    std::shared_ptr<const scheduler::Schedule> schedule;
  };
  std::vector<Known> schedules_;
  scheduler::TableCache tables_;
  std::vector<uint64_t> key_;  ///< of tables_; kept for its memory
  std::vector<std::unique_ptr<Move>> moves_;
  std::vector<Move*> spare_;
  std::string disagreement_;
};

}  // namespace ina::client
