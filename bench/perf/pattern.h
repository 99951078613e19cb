// Inputs whose sums are known exactly, so that every element can be checked bit for bit.
//
// A buffer repeats a block of kPatternElements values, different for each rank and round. The
// length is a prime, so a fragment that landed at another fragment's place is noticed. Fragments
// hold a power of two of elements, so two of them show the same values only if they are a multiple
// of 65,521 fragments apart, far more than any window.
//
// Integers use their full range (sums and products wrap; int8 and uint8 saturate). Floats are
// integers small enough that every partial result, in any order, is exact in the data type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ina/ina.h"

namespace ina::perf {

inline constexpr size_t kPatternElements = 65521;

/// One block of the contribution of `rank` of `ranks` in a round, or its beginning.
std::vector<std::byte> input_block(ina_dtype dtype, ina_op op, int rank, int ranks, uint32_t round,
                                   size_t elements = kPatternElements);
/// One block of the result, or its beginning.
std::vector<std::byte> expected_block(ina_dtype dtype, ina_op op, int ranks, uint32_t round,
                                      size_t elements = kPatternElements);

/// Fills `buffer` with repetitions of `block`.
void fill(std::span<std::byte> buffer, std::span<const std::byte> block);

/// Byte offset of the first difference from repetitions of `block`, of which the buffer begins
/// `first_byte` bytes behind the beginning; nothing if there is none.
std::optional<size_t> find_difference(std::span<const std::byte> buffer,
                                      std::span<const std::byte> block, uint64_t first_byte = 0);

/// An element as a person reads it.
std::string format_element(ina_dtype dtype, const std::byte* element);

std::string_view name(ina_dtype dtype);
std::string_view name(ina_op op);

inline constexpr ina_dtype kAllDtypes[] = {INA_INT8,    INA_INT32,   INA_INT64,
                                           INA_FLOAT32, INA_FLOAT64, INA_BFLOAT16,
                                           INA_FLOAT16, INA_UINT8,   INA_BOOL};
inline constexpr ina_op kAllOps[] = {INA_SUM,  INA_MIN,  INA_MAX, INA_AVG,
                                     INA_PROD, INA_BAND, INA_BOR, INA_BXOR};

constexpr bool is_float(ina_dtype dtype) {
  return dtype >= INA_FLOAT32 && dtype <= INA_FLOAT16;
}

/// True if ina.h offers the combination.
constexpr bool is_offered(ina_dtype dtype, ina_op op) {
  if (op == INA_AVG) return is_float(dtype);
  return !is_float(dtype) || (op != INA_BAND && op != INA_BOR && op != INA_BXOR);
}

}  // namespace ina::perf
