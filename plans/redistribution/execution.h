// How one rank carries a plan out: a Schedule, and the local work that its kernels are. All of it
// happens in one buffer of plan.peak_bytes() bytes, in which the rank's source tile lies at the
// start before, and its target tile after. Pure.
//
// Pieces of the source that are still to come lie at the start of the buffer, pieces of the target
// at its end. Between them a piece goes from step to step, and from one end of the free part to the
// other, because operations are out of place. A rank that sends parts of a tile to several others
// first packs each part into one place. Received parts lie likewise and are put into row-major
// order after. That happens in place where there is no room for another tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plans/redistribution/rearrangement.h"
#include "plans/schedule.h"

namespace ina::redistribution {

/// The properties of the job that an execution depends on.
struct Job {
  Rank rank{};
  uint32_t slot_bytes = 0;
};

/// The part of one rank. Does not change once it is made.
class Execution {
 public:
  /// Kernels of the schedule.
  enum Kernel : uint32_t {
    kTell,   ///< put the plan's hash to hash_offset() of the scratch memory
    kAgree,  ///< compare the hashes of all ranks, one after the other in the scratch memory
    kWork,   ///< work(argument)
  };

  /// As many ranks as the plan's mesh has. Throws std::bad_alloc.
  Execution(std::shared_ptr<const Plan> plan, const Job& job);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  const Plan& plan() const { return *plan_; }
  const std::shared_ptr<const scheduler::Schedule>& schedule() const { return schedule_; }
  /// Where this rank's hash is told, in bytes.
  size_t hash_offset() const { return value(job_.rank) * sizeof(uint64_t); }
  /// Local work in the buffer, which has the schedule's places kSend and kReceive.
  void work(uint64_t argument, std::byte* buffer) const;

 private:
  using Stage = scheduler::Schedule::Stage;
  /// A part of the buffer, in bytes.
  struct Span {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t end() const { return offset + bytes; }
    bool operator==(const Span&) const = default;
  };
  /// A part of a tile that stays with its rank.
  struct Own {
    uint64_t from = 0, to = 0, bytes = 0;  ///< in packed tiles
  };
  /// The data of a step that all pieces share.
  struct StepWork {
    StepWork(const Plan& plan, const Step& step, const Shape& shape, const Job& job,
             uint64_t number);

    StepTransfers transfers;
    bool slices = false;  ///< all that it does
    Rearrangement pack, unpack;
    std::vector<Own> own;
    Collective collective{};
    std::shared_ptr<const scheduler::BlockTable> blocks;  ///< nullptr: nothing is sent
  };
  struct Work {
    enum class Kind : uint8_t { kPack, kUnpack, kSlice, kMove };
    Kind kind{};
    const Rearrangement* order = nullptr;  ///< of kPack and kUnpack
    const StepWork* step = nullptr;        ///< of kSlice
    Span from, to;                         ///< equal: in place
    Span room;                             ///< free meanwhile
  };

  void agree();
  void run_pieces();
  Span run_step(const StepWork& step, Span at, Span free);
  Span rearrange(Work::Kind kind, const Rearrangement& order, Span at, Span free);
  void operate(const StepWork& step, Span from, Span to);
  void add(const Work& work);
  void add_after(const scheduler::Schedule::Work& work);

  const std::shared_ptr<const Plan> plan_;
  const Job job_;
  std::vector<std::unique_ptr<const StepWork>> steps_;
  std::unique_ptr<const Rearrangement> source_pieces_, target_pieces_;
  std::vector<Work> work_;
  scheduler::Schedule made_;
  std::vector<Stage> last_;  ///< stages for which the next one waits
  std::shared_ptr<const scheduler::Schedule> schedule_;
};

}  // namespace ina::redistribution
