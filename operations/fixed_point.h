// Fixed-point numbers with one exponent per block: floats whose sum does not depend on the order
// in which they are added. Integer additions are associative, so a switch that adds int32 in
// arrival order makes the same bits every time. Pure; Highway, dispatched at run time.
//
// A tensor is cut into blocks of kBlockElements. A block's exponent E is the largest biased float32
// exponent (0..254) of its finite values over all workers, so |x| < 2^(E - 126). Every worker sends
// q = rint(x * 2^k), k = 157 - headroom - E, where 2^headroom >= workers. Then |q| <= 2^(31 -
// headroom) - 2 up to a headroom of 6, even for the largest mantissa, and no sum of q overflows.
// From a headroom of 8 on, the largest mantissa is rounded up to 2^(31 - headroom). So 2^headroom >
// workers there.
//
// Error: each q is off by at most 1/2. So the sum of N workers, before its one rounding, is off by
// at most N * 2^(headroom - 31) * M. M >= 2^(E - 127) is the largest finite magnitude in the block
// over all workers. That is 2^-29 * M for 2 workers, 2^-19 * M for 64, 2^-6 * M for 4096. A value
// is exact if its exponent is at least E - 7 + headroom (float32; E - 23 + headroom for bfloat16, E
// - 20 + headroom for float16). The largest are with up to 128 workers, and all denormals where E =
// 0 and the headroom is at most 8.
//
// NaN and Inf have no place in a sum of integers: they count as 0 there, and the ranks tell each
// other the classes of their blocks' elements instead. A sum that is zero is +0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/types.h"

namespace ina::client {

inline constexpr size_t kBlockElements = 256;

constexpr size_t blocks_of(size_t elements) {
  return (elements + kBlockElements - 1) / kBlockElements;
}

/// Bits that the sum of `workers` (1..kMaxRanks) numbers may need more than one of them.
uint32_t headroom_bits(uint32_t workers);

/// Data types that the functions below take: float32, bfloat16, float16.
constexpr bool has_fixed_point(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

// Values are `count` elements of `dtype` in the host's order, unaligned; the last block may be
// partial. Exponents are stored as E - 128, so that int8's order is theirs.

/// Per block: the exponent of the largest finite value, and 1 if a NaN or an Inf is among them,
/// otherwise 0.
void block_exponents(DType dtype, const std::byte* values, size_t count, int8_t* exponents,
                     int8_t* specials);

/// fixed[i] = rint(values[i] * 2^k), 0 for NaN and Inf. The exponents must be at least those of the
/// values; the default floating-point environment is used in place of the caller's.
void quantise(DType dtype, const std::byte* values, size_t count, const int8_t* exponents,
              uint32_t headroom, int32_t* fixed);

/// values[i] = fixed[i] * 2^-k / divisor (1..kMaxRanks), rounded once to nearest even. Returns true
/// if one became Inf.
bool dequantise(DType dtype, const int32_t* fixed, size_t count, const int8_t* exponents,
                uint32_t headroom, uint32_t divisor, std::byte* values);

/// classes[i] = 1 for NaN, 2 for Inf, 4 for -Inf, otherwise 0. The bitwise or of all workers' says
/// which there are.
void classify(DType dtype, const std::byte* values, size_t count, int32_t* classes);

/// fixed[i] = 0 wherever classes[i] says that the sum is not finite.
void clear_specials(const int32_t* classes, size_t count, int32_t* fixed);

/// values[i] = NaN, Inf or -Inf where all workers' classes say so, by IEEE 754: a NaN, or both
/// Infs, make a NaN. There is one NaN per data type, the positive quiet one.
void put_specials(DType dtype, const int32_t* classes, size_t count, std::byte* values);

/// Name of the instruction set in use; for tests.
const char* fixed_point_target();

}  // namespace ina::client
