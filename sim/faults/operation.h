// An operation as all workers of a job run it, and a naive model of each worker's buffers
// afterwards.
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "plans/blocks.h"
#include "plans/redistribution/plan.h"
#include "wire/types.h"

namespace ina::sim {

struct PlannedOperation {
  Collective collective = Collective::kAllReduce;
  DType dtype{};
  Op op = Op::kSum;
  size_t elements = 0;
  bool in_place = false;
  std::vector<std::vector<std::byte>> inputs;  ///< by worker: the contents of `send`
  /// By worker: bytes of `recv`, and those that nothing may write. In place: of `send`.
  std::vector<size_t> received_bytes;
  /// By worker. None: all-reduce and barrier.
  std::vector<std::shared_ptr<const scheduler::BlockTable>> tables;
  /// The right sums, by element of the operation.
  std::vector<double> sums;

  // Members for a redistribution (sim/faults/redistribution.h), which is in place.
  std::shared_ptr<const redistribution::Plan> redistribution;  ///< none: a collective
  std::vector<std::vector<std::byte>> targets;  ///< by worker: the beginning of `send` afterwards
  std::vector<std::pair<uint64_t, uint64_t>> payloads;  ///< by worker: bytes sent and received
  std::optional<std::string> beyond_memory;  ///< how the plan breaks its promise of memory

  /// Made in the reproducible mode (sim/faults/reproducible.h). `targets` are whole buffers then.
  bool reproducible = false;

  /// `recv` before the operation, with a pattern that shows what was written. Empty: in place.
  std::vector<std::byte> fresh_recv(uint32_t rank) const;
  /// The error in the rank's `recv`; nothing if all is right and nothing else was written.
  std::optional<std::string> wrong(uint32_t rank, const std::vector<std::byte>& got) const;
  /// Payload that the rank must send and get, in bytes.
  uint64_t payload_up(uint32_t rank) const;
  uint64_t payload_down(uint32_t rank) const;
};

/// A fault in all plans of redistributions, for the proof that it is noticed.
enum class BrokenPlans : uint8_t {
  kNone,
  kTooShort,  ///< without their last step
  kTooLarge,  ///< a byte beyond their limit of memory
};

struct OperationLimits {
  uint32_t workers = 0;
  uint32_t max_fragments = 0;
  uint32_t slot_bytes = 0;
  bool floats_only = false;  ///< sums of float32, of many magnitudes
  BrokenPlans broken_plans = BrokenPlans::kNone;
};

/// An all-reduce.
PlannedOperation draw_allreduce(std::mt19937_64& random, const OperationLimits& limits);
/// Any: roots, counts (zero, too), the order of the blocks, where they lie, whether in place.
PlannedOperation draw_operation(std::mt19937_64& random, Collective collective,
                                const OperationLimits& limits);

}  // namespace ina::sim
