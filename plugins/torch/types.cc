#include "plugins/torch/types.h"

#include <optional>

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

namespace ina::plugin {

namespace {

std::optional<ina_dtype> type_of(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return INA_UINT8;
    case at::kChar:
      return INA_INT8;
    case at::kInt:
      return INA_INT32;
    case at::kLong:
      return INA_INT64;
    case at::kHalf:
      return INA_FLOAT16;
    case at::kFloat:
      return INA_FLOAT32;
    case at::kDouble:
      return INA_FLOAT64;
    case at::kBFloat16:
      return INA_BFLOAT16;
    case at::kBool:
      return INA_BOOL;
    default:
      return std::nullopt;
  }
}

}  // namespace

ina_dtype summed_type(at::ScalarType type) {
  const auto found = type_of(type);
  TORCH_CHECK(found, "ina: tensors of ", c10::toString(type),
              " cannot be reduced; the types are uint8, int8, int32, int64, float16, float32, "
              "float64, bfloat16 and bool");
  return *found;
}

MovedType moved_type(at::ScalarType type) {
  if (const auto found = type_of(type)) return {*found, 1};
  const size_t bytes = c10::elementSize(type);
  if (bytes % 8 == 0) return {INA_INT64, bytes / 8};
  if (bytes % 4 == 0) return {INA_INT32, bytes / 4};
  if (bytes % 2 == 0) return {INA_FLOAT16, bytes / 2};
  return {INA_INT8, bytes};
}

ina_op reduction(const c10d::ReduceOp& op) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
      return INA_SUM;
    case c10d::ReduceOp::AVG:
      return INA_AVG;
    case c10d::ReduceOp::PRODUCT:
      return INA_PROD;
    case c10d::ReduceOp::MIN:
      return INA_MIN;
    case c10d::ReduceOp::MAX:
      return INA_MAX;
    case c10d::ReduceOp::BAND:
      return INA_BAND;
    case c10d::ReduceOp::BOR:
      return INA_BOR;
    case c10d::ReduceOp::BXOR:
      return INA_BXOR;
    default:
      TORCH_CHECK(false,
                  "ina: the reduction is none of SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR");
  }
}

}  // namespace ina::plugin
