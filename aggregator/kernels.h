// Reduction kernels: the arithmetic on one fragment. Highway, dispatched at run time.
//
// Rows hold accumulators (accumulator_of(dtype)). Payloads hold the wire's data type,
// little-endian, and may be unaligned. Counts are elements. Nothing here allocates or fails.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/types.h"

namespace ina::aggregator {

/// The steps of a fragment's life, for one data type and operation. Sums and products of floats are
/// made in call order. Semantics of min, max, avg, wrapping, rounding and NaN: include/ina/ina.h.
struct Kernels {
  /// row[i] = widen(payload[i]): the first contribution.
  void (*load)(std::byte* row, const std::byte* payload, size_t count);
  /// row[i] = op(row[i], widen(payload[i])).
  void (*add)(std::byte* row, const std::byte* payload, size_t count);
  /// row[i] = op(row[i], other[i]), both rows of accumulators: merging partial sums.
  void (*merge)(std::byte* row, const std::byte* other, size_t count);
  /// result[i] = narrow(row[i] / divisor), divisor 1 unless the operation is avg. Returns true if
  /// an int8 or uint8 saturated, or a float16 became Inf though its accumulator was finite.
  /// Also returns true if a bfloat16 of a sum, avg or product or a float16 of a product is Inf
  /// (docs/protocol.md, "Numeric semantics").
  bool (*finish)(std::byte* result, const std::byte* row, size_t count, uint32_t divisor);
  /// finish(op(row, widen(payload))) in one pass, the last contribution; the row is not written.
  bool (*add_finish)(std::byte* result, const std::byte* row, const std::byte* payload,
                     size_t count, uint32_t divisor);
  /// add_finish past the caches, for results that this core does not read again: a line that is
  /// written whole need not be fetched first. `result` is aligned to 64 bytes. Ordered before later
  /// writes.
  bool (*add_finish_stream)(std::byte* result, const std::byte* row, const std::byte* payload,
                            size_t count, uint32_t divisor);

  // Several contributions in one pass, in the order of `payloads`: bit for bit what the steps above
  // make of them one after the other. 1 <= payload_count.
  /// row = op(...op(op(row, widen(payloads[0])), widen(payloads[1]))...). The row is read if `held`
  /// says that it holds something.
  void (*add_all)(std::byte* row, bool held, const std::byte* const* payloads, size_t payload_count,
                  size_t count);
  /// finish() of that sum. The row is not written, and nullptr where nothing is held.
  bool (*finish_all)(std::byte* result, const std::byte* row, const std::byte* const* payloads,
                     size_t payload_count, size_t count, uint32_t divisor);
  /// finish_all() past the caches, as add_finish_stream().
  bool (*finish_all_stream)(std::byte* result, const std::byte* row,
                            const std::byte* const* payloads, size_t payload_count, size_t count,
                            uint32_t divisor);
};

/// Kernels for the best instruction set of this machine. dtype and op must be valid together.
const Kernels& kernels(DType dtype, Op op);

/// Name of the instruction set in use, e.g. "AVX3_ZEN4"; for logs and benchmarks.
const char* kernel_target();

}  // namespace ina::aggregator
