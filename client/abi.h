// The enumerations of the C interface and those of the protocol. Their numbers are the same, which
// is checked here; a number from outside becomes an enumerator by these functions only.
#pragma once

#include <optional>

#include "common/idle.h"
#include "ina/ina.h"
#include "wire/types.h"

namespace ina::client {

static_assert(kMaxRanks == INA_MAX_WORLD_SIZE);
static_assert(static_cast<int>(DType::kInt8) == INA_INT8 &&
              static_cast<int>(DType::kInt32) == INA_INT32 &&
              static_cast<int>(DType::kInt64) == INA_INT64 &&
              static_cast<int>(DType::kFloat32) == INA_FLOAT32 &&
              static_cast<int>(DType::kFloat64) == INA_FLOAT64 &&
              static_cast<int>(DType::kBFloat16) == INA_BFLOAT16 &&
              static_cast<int>(DType::kFloat16) == INA_FLOAT16 &&
              static_cast<int>(DType::kUInt8) == INA_UINT8 &&
              static_cast<int>(DType::kBool) == INA_BOOL);
static_assert(static_cast<int>(Op::kSum) == INA_SUM && static_cast<int>(Op::kMin) == INA_MIN &&
              static_cast<int>(Op::kMax) == INA_MAX && static_cast<int>(Op::kAvg) == INA_AVG &&
              static_cast<int>(Op::kProduct) == INA_PROD &&
              static_cast<int>(Op::kBand) == INA_BAND && static_cast<int>(Op::kBor) == INA_BOR &&
              static_cast<int>(Op::kBxor) == INA_BXOR);
static_assert(static_cast<int>(IdleMode::kAuto) == INA_IDLE_AUTO &&
              static_cast<int>(IdleMode::kSpin) == INA_IDLE_SPIN &&
              static_cast<int>(IdleMode::kYield) == INA_IDLE_YIELD &&
              static_cast<int>(IdleMode::kBackoff) == INA_IDLE_BACKOFF &&
              static_cast<int>(IdleMode::kInterrupt) == INA_IDLE_INTERRUPT);

/// Nothing for a number that is no ina_dtype.
constexpr std::optional<DType> dtype_of(int number) {
  for (const DType dtype : kAllDTypes)
    if (static_cast<int>(dtype) == number) return dtype;
  return std::nullopt;
}

/// Nothing for a number that is no ina_op.
constexpr std::optional<Op> op_of(int number) {
  for (const Op op : kAllOps)
    if (static_cast<int>(op) == number) return op;
  return std::nullopt;
}

/// Nothing for a number that is no ina_idle.
constexpr std::optional<IdleMode> idle_of(int number) {
  for (const Named<IdleMode>& mode : kIdleModeNames)
    if (static_cast<int>(mode.value) == number) return mode.value;
  return std::nullopt;
}

}  // namespace ina::client
