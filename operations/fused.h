// Small all-reduces made into one: their tensors are gathered in a scratch buffer, summed by one
// operation, and scattered when it completes. Elements are reduced one by one, so the results are
// those of separate all-reduces. Pure; under the context's lock.
//
// Tensors are collected in buckets, one data type and operation each. A group has a bucket for each
// kind, submitted when it is full or the group ends. Without a group, coalescing has one bucket. It
// is submitted before any other operation than its next tensor starts, or when its caller asks for
// one of its results. All of this follows from the order of calls, never from time. So ranks that
// make the same calls fuse the same tensors. The signature tells other ranks apart: it holds the
// number of tensors and a fingerprint of their sizes.
#pragma once

#include <memory>
#include <vector>

#include "operations/executor.h"

namespace ina::client {

struct FusedCounters {
  uint64_t tensors = 0;     ///< all-reduces completed
  uint64_t operations = 0;  ///< of the engine, of which they were made
};

/// All fused operations of one context.
class Fused final : private Executor::Kernels {
 public:
  /// From this size on a tensor goes by itself: copying it twice costs more than an operation.
  static constexpr size_t kLargeBytes = size_t{64} << 10;
  /// The size of a group's bucket.
  static constexpr size_t kGroupBytes = size_t{256} << 10;
  static constexpr uint32_t kMaxTensors = wire::kMaxFusedTensors;

  /// `coalesce_bytes`: size of a bucket outside of groups; 0: nothing is fused there. `executor`
  /// must outlive it.
  Fused(Executor& executor, size_t coalesce_bytes);
  Fused(const Fused&) = delete;
  Fused& operator=(const Fused&) = delete;

  /// To be told of every operation before it is started. Either collects it and returns a stand-in
  /// until release(). Or returns nullptr: the caller is to submit it, and all that must come before
  /// it has been submitted. `fusable`: it may be started later. Throws std::bad_alloc.
  Operation* collect(const OperationSpec& spec, bool fusable, Nanos now);
  /// Fuses what is collected from now on until submit_collected().
  void start_group(Nanos now);
  /// Submits what is collected, but goes on in the group.
  void submit_collected(Nanos now);
  void end_group(Nanos now);

  /// True if collect() has returned this operation, and it is not submitted yet.
  bool is_collected(const Operation& operation) const;
  /// True if anything is collected and not submitted.
  bool has_collected() const { return !open_.empty(); }
  /// Returns false if the operation is not one of collect()'s. It must be done, or the job ended:
  /// then nothing goes on any more.
  bool release(Operation* operation);

  const FusedCounters& counters() const { return counters_; }

 private:
  enum Kernel : uint32_t { kGather, kScatter };  // argument: index of the bucket
  /// The operation that stands for one tensor.
  struct Tensor : Operation {
    Tensor* next = nullptr;  ///< in its bucket
    bool collected = false;
  };
  struct Bucket {
    size_t index = 0;  ///< in buckets_
    DType dtype{};
    Op op{};
    Tensor* first = nullptr;
    Tensor* last = nullptr;
    uint32_t tensors = 0;
    uint64_t elements = 0;
    uint64_t sizes_hash = 0;
    std::unique_ptr<std::byte[]> scratch;
    std::shared_ptr<scheduler::Schedule> schedule;
  };

  size_t capacity_bytes() const { return in_group_ ? kGroupBytes : coalesce_bytes_; }
  Bucket* open_bucket(const OperationSpec& spec);
  Tensor* new_tensor(const OperationSpec& spec, Nanos now);
  void submit(Bucket& bucket, Nanos now);
  void run(const scheduler::Compute& compute, const Executor::Frame& frame) override;
  static void gather(const Bucket& bucket);
  void scatter(Bucket& bucket);

  Executor& executor_;
  const size_t coalesce_bytes_;
  bool in_group_ = false;
  bool ended_ = false;
  FusedCounters counters_;
  // All lists have the capacity that they may need, so that moving between them never fails.
  std::vector<Bucket*> open_;  ///< in the order of their first tensors
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<Bucket*> spare_buckets_;
  std::vector<std::unique_ptr<Tensor>> tensors_;
  std::vector<Tensor*> spare_tensors_;
};

}  // namespace ina::client
