#include "aggregator/kernels.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace ina::aggregator {
namespace {

template <class Acc, class Wire, Op kOp>
struct Scalar {
  static Acc get(const std::byte* p, size_t i) {
    Wire w;
    std::memcpy(&w, p + i * sizeof(Wire), sizeof(Wire));
    return static_cast<Acc>(w);
  }
  static Acc op(Acc a, Acc b) {
    if constexpr (kOp == Op::kMin) return b < a ? b : a;
    else if constexpr (kOp == Op::kMax) return a < b ? b : a;
    else return a + b;
  }
  static void load(std::byte* row, const std::byte* in, size_t n) {
    auto* r = reinterpret_cast<Acc*>(row);
    for (size_t i = 0; i < n; ++i) r[i] = get(in, i);
  }
  static void add(std::byte* row, const std::byte* in, size_t n) {
    auto* r = reinterpret_cast<Acc*>(row);
    for (size_t i = 0; i < n; ++i) r[i] = op(r[i], get(in, i));
  }
  static void merge(std::byte* row, const std::byte* in, size_t n) {
    auto* r = reinterpret_cast<Acc*>(row);
    auto* o = reinterpret_cast<const Acc*>(in);
    for (size_t i = 0; i < n; ++i) r[i] = op(r[i], o[i]);
  }
  static bool put(std::byte* out, size_t i, Acc a, uint32_t d) {
    bool over = false;
    if constexpr (kOp == Op::kAvg) a /= static_cast<Acc>(d);
    if constexpr (sizeof(Wire) == 1) {
      over = a > 127 || a < -128;
      a = a > 127 ? 127 : a < -128 ? -128 : a;
    }
    Wire w = static_cast<Wire>(a);
    std::memcpy(out + i * sizeof(Wire), &w, sizeof(Wire));
    return over;
  }
  static bool finish(std::byte* out, const std::byte* row, size_t n, uint32_t d) {
    auto* r = reinterpret_cast<const Acc*>(row);
    bool over = false;
    for (size_t i = 0; i < n; ++i) over |= put(out, i, r[i], d);
    return over;
  }
  static bool add_finish(std::byte* out, const std::byte* row, const std::byte* in, size_t n,
                         uint32_t d) {
    auto* r = reinterpret_cast<const Acc*>(row);
    bool over = false;
    for (size_t i = 0; i < n; ++i) over |= put(out, i, op(r[i], get(in, i)), d);
    return over;
  }
  static constexpr Kernels kernels{load, add, merge, finish, add_finish};
};
template <class A, class W>
const Kernels& pick(Op op) {
  switch (op) {
    case Op::kMin: return Scalar<A, W, Op::kMin>::kernels;
    case Op::kMax: return Scalar<A, W, Op::kMax>::kernels;
    case Op::kAvg: return Scalar<A, W, Op::kAvg>::kernels;
    default: return Scalar<A, W, Op::kSum>::kernels;
  }
}
}  // namespace
const Kernels& kernels(DType dtype, Op op) {
  switch (dtype) {
    case DType::kInt8: return pick<int32_t, int8_t>(op);
    case DType::kInt32: return pick<uint32_t, uint32_t>(op);
    case DType::kInt64: return pick<int64_t, int64_t>(op);
    case DType::kFloat64: return pick<double, double>(op);
    default: return pick<float, float>(op);
  }
}
const char* kernel_target() { return "scalar"; }
}  // namespace ina::aggregator
