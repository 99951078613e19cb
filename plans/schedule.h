// Operations made of operations: the work and its order, independent of the executor. Planners emit
// Schedules; an executor runs them (operations/executor.h). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "plans/blocks.h"
#include "wire/types.h"

namespace ina::scheduler {

/// Where a stage finds its bytes.
struct Buffer {
  enum class Place : uint8_t {
    kSend,     ///< the caller's input
    kReceive,  ///< the caller's output
    kScratch,  ///< memory of the executor: Schedule::scratch_bytes()
  };
  Place place = Place::kScratch;
  uint64_t offset_bytes = 0;
  uint32_t pair = 0;  ///< which of the caller's pairs of buffers, where it has several
};

/// A caller's input and output.
struct BufferPair {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
};

/// A collective on a channel: the sequence of operations that some ranks have in common. All of
/// them must have the same operations in the same order, so a channel's operations keep the order
/// in which they were added: one that waits for another stage holds back those after it.
struct Operate {
  uint32_t channel = 0;
  Collective collective = Collective::kAllReduce;
  DType dtype{};
  Op op = Op::kSum;
  uint64_t elements = 0;  ///< a kernel before it may set another number, alike on all ranks
  Buffer send;
  Buffer receive;
  uint64_t fused = 0;  ///< wire::fused_bits() of an operation made of several
  /// The blocks of a collective that has them; a kernel before it may set others, alike on all
  /// ranks but for displacements.
  std::shared_ptr<const BlockTable> blocks = nullptr;
};

/// A kernel of the executor's caller, told apart by two numbers.
struct Compute {
  uint32_t kernel = 0;
  uint64_t argument = 0;
};

struct Copy {
  Buffer from;
  Buffer to;
  uint64_t bytes = 0;
};

/// Stages with dependencies. Every rank must make the same one. Stages are numbered from 0 as they
/// are added, and wait for earlier ones only, so there is no circle.
class Schedule {
 public:
  using Stage = uint32_t;
  using Work = std::variant<Operate, Compute, Copy>;

  /// The event of an earlier stage that a stage waits for.
  enum class Event : uint8_t {
    kReceived,  ///< this rank has all bytes that the operation gives it
    kEnded,     ///< and nobody needs what it sent any more
  };

  /// `after`: stages that must have ended before it begins. `after_receipt`: operations that must
  /// only have received everything. Such a stage must not touch the data that these send, but for
  /// data that they receive at the same place. Throws std::bad_alloc.
  Stage add(const Work& work, std::span<const Stage> after = {},
            std::span<const Stage> after_receipt = {}) {
    const auto stage = static_cast<Stage>(stages_.size());
    stages_.push_back({work, static_cast<uint32_t>(after.size() + after_receipt.size())});
    for (const Stage earlier : after) connect(earlier, stage, Event::kEnded);
    for (const Stage earlier : after_receipt) connect(earlier, stage, Event::kReceived);
    return stage;
  }
  Stage add(const Work& work, std::initializer_list<Stage> after) {
    return add(work, std::span<const Stage>(after.begin(), after.size()));
  }
  void set_scratch_bytes(uint64_t bytes) { scratch_bytes_ = bytes; }
  void reserve(size_t stages, size_t dependencies) {
    stages_.reserve(stages);
    edges_.reserve(dependencies);
  }
  /// Keeps the memory that it has.
  void clear() {
    stages_.clear();
    edges_.clear();
    scratch_bytes_ = 0;
  }

  uint32_t size() const { return static_cast<uint32_t>(stages_.size()); }
  const Work& work(Stage stage) const { return stages_[stage].work; }
  /// Stages for which this one waits.
  uint32_t awaits(Stage stage) const { return stages_[stage].awaits; }
  uint64_t scratch_bytes() const { return scratch_bytes_; }
  /// Calls `visit` with each stage that waits for this event of `stage`, in the order of their
  /// numbers.
  template <class Visit>
  void for_each_dependent(Stage stage, Event event, Visit&& visit) const {
    for (uint32_t edge = stages_[stage].first_edge; edge != kNone; edge = edges_[edge].next)
      if (edges_[edge].event == event) visit(edges_[edge].to);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    Work work;
    uint32_t awaits = 0;
    uint32_t first_edge = kNone;  ///< of a list, to those that wait for it
    uint32_t last_edge = kNone;
  };
  struct Edge {
    Stage to = 0;
    Event event = Event::kEnded;
    uint32_t next = kNone;
  };

  void connect(Stage earlier, Stage stage, Event event) {
    const auto edge = static_cast<uint32_t>(edges_.size());
    edges_.push_back({stage, event});
    Entry& awaited = stages_[earlier];
    (awaited.first_edge == kNone ? awaited.first_edge : edges_[awaited.last_edge].next) = edge;
    awaited.last_edge = edge;
  }

  std::vector<Entry> stages_;
  std::vector<Edge> edges_;
  uint64_t scratch_bytes_ = 0;
};

}  // namespace ina::scheduler
