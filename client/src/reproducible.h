// Sums and averages of floats with the same bits for every order of arrival, composed of integer
// all-reduces (fixed_point.h has the numbers). Pure; under the context's lock.
//
// A tensor is cut into chunks. For each, three operations:
//   E  max, int8: per block of 256 elements the largest exponent, and whether it has a NaN or Inf
//   V  sum, int32: the values in fixed point, scaled by their block's exponent
//   S  sum, int32: of the blocks with a NaN or Inf, their classes; skipped if there is none
// The results of E are the same on all ranks, so the ranks agree on V's scale and S's size. All are
// submitted at once, held, in the order E0 E1 V0 S0 E2 V1 S1 E3 ... This order is the same on all
// ranks, and keeps one chunk on its way while another one's exponents are awaited. Each is released
// when its input is there. E's size also tells data type and operation apart, so that the switch
// notices ranks that disagree.
#pragma once

#include <memory>
#include <vector>

#include "client/src/engine.h"
#include "client/src/fixed_point.h"

namespace ina::client {

/// What the composition needs of the engine.
class HeldOperations {
 public:
  virtual ~HeldOperations() = default;
  /// Submits an operation that waits to be let go, as does what is submitted after it. Its end
  /// must be told to Reproducible::completed().
  virtual Operation* submit_held(const OperationSpec& spec) = 0;
  /// Lets it go with its send buffer as it is now; `elements` replaces the specification's.
  virtual void let_go(Operation* operation, uint64_t elements) = 0;
  /// Drops it from the order; its end may be told or not.
  virtual void skip(Operation* operation) = 0;
  /// Has no more use for it: it has completed, was skipped, or the job has ended.
  virtual void forget(Operation* operation) = 0;
};

struct ReproducibleCounters {
  uint64_t operations = 0;  ///< completed
  uint64_t parts = 0;       ///< completed operations of the engine, of which they were made
  uint64_t overflows = 0;   ///< chunks in which finite values made Inf
};

/// All reproducible operations of one context.
class Reproducible {
 public:
  /// Chunks that are under way at a time; each has 512 KiB of scratch memory, so that what is under
  /// way stays in the cache of its core.
  static constexpr uint64_t kSlots = 4;
  static constexpr uint64_t kMaxChunkElements = 64 * 1024;
  static constexpr uint64_t kMinChunkElements = 16 * 1024;

  /// `workers` of the job; `operations` must outlive it.
  Reproducible(HeldOperations& operations, uint32_t workers);

  /// Whether an operation's result depends on the order of arrival and can be made not to.
  static bool handles(const OperationSpec& spec);
  /// Elements of a chunk of a tensor: the same on all ranks.
  static uint64_t chunk_elements(uint64_t elements);

  /// Starts one, which handles() and which has elements. Throws std::bad_alloc before anything is
  /// submitted. The result is this object's until release(); `fragments` and `complete` count
  /// chunks.
  Operation* start(const OperationSpec& spec, Nanos now);
  /// To be called when one of its operations has completed.
  void completed(Operation& part);
  /// Returns false if the operation is not one of start()'s. It must be done, or the job ended:
  /// then nothing goes on any more.
  bool release(Operation* operation);

  const ReproducibleCounters& counters() const { return counters_; }

 private:
  struct Composite {
    Operation whole;
    std::vector<Operation*> parts;
  };
  /// Scratch memory of a chunk.
  struct Slot {
    std::unique_ptr<int8_t[]> exponents;  ///< E: the blocks' exponents, then their flags
    std::unique_ptr<int32_t[]> fixed;     ///< V
    std::unique_ptr<int32_t[]> classes;   ///< S
  };
  struct Chunk {
    Composite* composite = nullptr;
    uint64_t index = 0;  ///< within its composite
    uint64_t first = 0;  ///< element of the tensor
    size_t elements = 0;
    Operation* exponents = nullptr;
    Operation* fixed = nullptr;
    Operation* classes = nullptr;
    bool has_exponents = false;
    bool has_fixed = false;
    bool has_classes = false;
    bool done = false;
  };

  void allocate_slots();
  Chunk& chunk(uint64_t number) { return chunks_[done_ + (number - first_)]; }
  uint64_t end() const { return first_ + (chunks_.size() - done_); }
  void drop_done();
  Slot& slot(uint64_t number) { return slots_[number % kSlots]; }
  void submit_exponents(uint64_t number);
  void submit_values(uint64_t number);
  void prepare_exponents();
  void prepare_values(uint64_t number);
  void finish(uint64_t number);

  HeldOperations& operations_;
  const uint32_t workers_;
  const uint32_t headroom_;
  std::vector<Slot> slots_;    ///< of chunk n: n mod kSlots
  std::vector<Chunk> chunks_;  ///< in order of submission over all composites
  size_t done_ = 0;            ///< of chunks_, at its front, that are of no use any more
  uint64_t first_ = 0;         ///< number of the first chunk that is not done
  uint64_t prepared_ = 0;      ///< first chunk whose E is still held
  std::vector<std::unique_ptr<Composite>> composites_;
  std::vector<std::unique_ptr<Composite>> spare_;  ///< with capacity for all
  bool ended_ = false;
  ReproducibleCounters counters_;
};

}  // namespace ina::client
