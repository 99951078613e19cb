// Compiled once per instruction set by foreach_target.h; kernels() picks one at run time.
#include "aggregator/kernels.h"

#include <cstring>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "aggregator/kernels.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// float16 conversions in hardware. Highway emulates them elsewhere, but truncates instead of
// rounding and mishandles Inf and NaN, so there we convert ourselves.
#undef INA_HAVE_F16C
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
#define INA_HAVE_F16C 1
#else
#define INA_HAVE_F16C 0
#endif

HWY_BEFORE_NAMESPACE();
namespace ina::aggregator {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// ------------------------------------------------------------------------------- memory

// How a step reads and writes its elements: a whole vector, or only the first few lanes of one.
struct Whole {
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) const {
    return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(from));
  }
  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> v, std::byte* to) const {
    hn::StoreU(v, d, reinterpret_cast<hn::TFromD<D>*>(to));
  }
};

// Stores whole vectors past the caches, to aligned memory.
struct Streamed : Whole {
  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> v, std::byte* to) const {
    hn::Stream(v, d, reinterpret_cast<hn::TFromD<D>*>(to));
  }
};

// Touches no byte beyond its `lanes` elements; lanes above load as 0. Only AVX-512 has masked
// accesses of every width that cannot fault, the others go through a buffer.
struct First {
  size_t lanes;

  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) const {
    using T = hn::TFromD<D>;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    return hn::MaskedLoad(hn::FirstN(d, lanes), d, reinterpret_cast<const T*>(from));
#else
    HWY_ALIGN T buffer[hn::MaxLanes(D())] = {};
    std::memcpy(buffer, from, lanes * sizeof(T));
    return hn::Load(d, buffer);
#endif
  }
  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> v, std::byte* to) const {
    using T = hn::TFromD<D>;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    hn::BlendedStore(v, hn::FirstN(d, lanes), d, reinterpret_cast<T*>(to));
#else
    HWY_ALIGN T buffer[hn::MaxLanes(D())];
    hn::Store(v, d, buffer);
    std::memcpy(to, buffer, lanes * sizeof(T));
#endif
  }
};

// Without vector instructions, which every machine with SSE4 has, an element is a vector, and one
// step at a time is enough: several take the compiler longer than for any instruction set.
constexpr bool kOneByOne = HWY_TARGET == HWY_SCALAR;

// Calls step(access, i) for the vectors that start at element i and together cover `count`.
template <class Access = Whole, class D, class Step>
HWY_INLINE void for_each_vector(D d, size_t count, Step step) {
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  if constexpr (!kOneByOne) {
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
      step(Access{}, i);
      step(Access{}, i + lanes);
      step(Access{}, i + 2 * lanes);
      step(Access{}, i + 3 * lanes);
    }
  }
  for (; i + lanes <= count; i += lanes) step(Access{}, i);
  if constexpr (!kOneByOne)
    if (i < count) step(First{count - i}, i);
}

// --------------------------------------------------------------------------- data types

// Results never show which of several NaNs won, nor an instruction set's taste: all are this one.
template <class D, HWY_IF_FLOAT(hn::TFromD<D>)>
HWY_INLINE hn::Vec<D> with_one_nan(D d, hn::Vec<D> v) {
  using Bits = hwy::MakeUnsigned<hn::TFromD<D>>;
  constexpr Bits kQuietNan =
      sizeof(Bits) == 4 ? static_cast<Bits>(0x7FC00000u) : static_cast<Bits>(0x7FF8000000000000ull);
  const hn::Rebind<Bits, D> bits;
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(bits, kQuietNan)), v);
}
template <class D, HWY_IF_NOT_FLOAT(hn::TFromD<D>)>
HWY_INLINE hn::Vec<D> with_one_nan(D, hn::Vec<D> v) {
  return v;
}

// A data type names its accumulator, widens a vector of elements at `from` and narrows one to
// `to`, adding to `overflow` the lanes whose results say that numbers were too large. kInfinite<O>:
// whether operation O may make the accumulator infinite of what is not, which narrow() is told. It
// is told no more of the operation, so that not every one has its own code.

template <class T>
struct Native {
  using Accumulator = T;
  static constexpr size_t kWireBytes = sizeof(T);
  template <class O>
  static constexpr bool kInfinite = false;

  template <class D, class Access>
  static HWY_INLINE hn::Vec<D> widen(D d, Access access, const std::byte* from) {
    return access.load(d, from);
  }
  template <bool kMayBeInfinite, class D, class Access>
  static HWY_INLINE void narrow(D d, Access access, hn::Vec<D> v, std::byte* to, hn::Mask<D>&) {
    access.store(d, with_one_nan(d, v), to);
  }
};

// int8, uint8
template <class T>
struct Byte {
  using Accumulator = int32_t;
  static constexpr size_t kWireBytes = 1;
  template <class O>
  static constexpr bool kInfinite = false;

  template <class D, class Access>
  static HWY_INLINE hn::Vec<D> widen(D d, Access access, const std::byte* from) {
    return hn::PromoteTo(d, access.load(hn::Rebind<T, D>(), from));
  }
  template <bool kMayBeInfinite, class D, class Access>
  static HWY_INLINE void narrow(D d, Access access, hn::Vec<D> v, std::byte* to,
                                hn::Mask<D>& overflow) {
    const auto above = hn::Gt(v, hn::Set(d, std::numeric_limits<T>::max()));
    const auto below = hn::Lt(v, hn::Set(d, std::numeric_limits<T>::min()));
    overflow = hn::Or(overflow, hn::Or(above, below));
    const hn::Rebind<T, D> narrow_d;
    access.store(narrow_d, hn::DemoteTo(narrow_d, v), to);
  }
};

// Any byte but 0 is true, and 1 in the result.
struct Bool {
  using Accumulator = uint8_t;
  static constexpr size_t kWireBytes = 1;
  template <class O>
  static constexpr bool kInfinite = false;

  template <class D, class Access>
  static HWY_INLINE hn::Vec<D> widen(D d, Access access, const std::byte* from) {
    return hn::Min(access.load(d, from), hn::Set(d, 1));
  }
  template <bool kMayBeInfinite, class D, class Access>
  static HWY_INLINE void narrow(D d, Access access, hn::Vec<D> v, std::byte* to, hn::Mask<D>&) {
    access.store(d, hn::Min(v, hn::Set(d, 1)), to);
  }
};

// Lanes of `v` that are finite, but Inf once rounded to a narrower type. `limit`: its largest
// finite number plus half a unit in the last place, where ties round to even, that is to Inf.
template <class D>
HWY_INLINE hn::Mask<D> rounds_to_inf(D d, hn::Vec<D> v, float limit) {
  const auto magnitude = hn::Abs(v);
  const hn::Rebind<uint32_t, D> bits;
  const auto infinity = hn::BitCast(d, hn::Set(bits, 0x7F800000u));
  return hn::And(hn::Ge(magnitude, hn::Set(d, limit)), hn::Lt(magnitude, infinity));
}

struct BFloat16 {
  using Accumulator = float;
  static constexpr size_t kWireBytes = 2;
  template <class O>
  static constexpr bool kInfinite = O::kLeavesRange;

  template <class D, class Access>
  static HWY_INLINE hn::Vec<D> widen(D d, Access access, const std::byte* from) {
    const hn::Rebind<uint32_t, D> bits;
    const auto half = access.load(hn::Rebind<uint16_t, D>(), from);
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, half)));
  }
  // Not Highway's DemoteTo, which truncates, nor AVX512_BF16, which flushes denormals.
  template <bool kMayBeInfinite, class D, class Access>
  static HWY_INLINE void narrow(D d, Access access, hn::Vec<D> v, std::byte* to,
                                hn::Mask<D>& overflow) {
    constexpr float kLimit = 0x1.FFp127f;
    // The accumulator has no greater range than the addends, so a sum of finite numbers may be
    // infinite already. It does not remember whether one of them was.
    overflow = hn::Or(overflow, kMayBeInfinite ? hn::Ge(hn::Abs(v), hn::Set(d, kLimit))
                                               : rounds_to_inf(d, v, kLimit));
    const hn::Rebind<uint32_t, D> bits;
    const hn::Rebind<int32_t, D> signed_bits;
    const hn::Rebind<uint16_t, D> narrow_d;
    const auto exact = hn::BitCast(bits, with_one_nan(d, v));
    const auto odd = hn::And(hn::ShiftRight<16>(exact), hn::Set(bits, 1));
    const auto rounded = hn::Add(exact, hn::Add(odd, hn::Set(bits, 0x7FFF)));
    const auto upper = hn::BitCast(signed_bits, hn::ShiftRight<16>(rounded));
    access.store(narrow_d, hn::DemoteTo(narrow_d, upper), to);
  }
};

struct Float16 {
  using Accumulator = float;
  static constexpr size_t kWireBytes = 2;
  template <class O>
  static constexpr bool kInfinite = O::kLeavesFloat32;

  template <class D, class Access>
  static HWY_INLINE hn::Vec<D> widen(D d, Access access, const std::byte* from) {
    const auto half = access.load(hn::Rebind<uint16_t, D>(), from);
#if INA_HAVE_F16C
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), half));
#else
    const hn::Rebind<uint32_t, D> bits;
    const auto wide = hn::PromoteTo(bits, half);
    const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(bits, 0x8000)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(bits, 0x7FFF)));
    // From bias 15 to bias 127; the exponent of Inf and NaN goes on to 255.
    const auto is_special = hn::Gt(magnitude, hn::Set(bits, 0x0F7FFFFF));
    const auto rebias =
        hn::IfThenElse(is_special, hn::Set(bits, 224u << 23), hn::Set(bits, 112u << 23));
    const auto normal = hn::Add(magnitude, rebias);
    // A denormal m * 2^-24 is 2^-14 * (1 + m / 1024) - 2^-14, which is exact.
    const auto is_denormal = hn::Lt(magnitude, hn::Set(bits, 1u << 23));
    const auto with_one = hn::BitCast(d, hn::Add(normal, hn::Set(bits, 1u << 23)));
    const auto denormal = hn::BitCast(bits, hn::Sub(with_one, hn::Set(d, 0x1p-14f)));
    return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_denormal, denormal, normal)));
#endif
  }

  template <bool kMayBeInfinite, class D, class Access>
  static HWY_INLINE void narrow(D d, Access access, hn::Vec<D> v, std::byte* to,
                                hn::Mask<D>& overflow) {
    constexpr float kLimit = 65520.0f;
    overflow = hn::Or(overflow, kMayBeInfinite ? hn::Ge(hn::Abs(v), hn::Set(d, kLimit))
                                               : rounds_to_inf(d, v, kLimit));
    const hn::Rebind<uint16_t, D> narrow_d;
#if INA_HAVE_F16C
    const auto half = hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), with_one_nan(d, v));
    access.store(narrow_d, hn::BitCast(narrow_d, half), to);
#else
    const hn::Rebind<uint32_t, D> bits;
    const hn::Rebind<int32_t, D> signed_bits;
    const auto exact = hn::BitCast(bits, with_one_nan(d, v));
    const auto magnitude = hn::And(exact, hn::Set(bits, 0x7FFFFFFF));
    const auto sign = hn::ShiftRight<16>(hn::Xor(exact, magnitude));
    // Below 2^-14: adding 2^-1 makes the float adder round to multiples of 2^-24.
    const auto shifted = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
    const auto denormal = hn::Sub(hn::BitCast(bits, shifted), hn::Set(bits, 126u << 23));
    // From bias 127 to bias 15, rounding to even at bit 13; a carry out of the largest is Inf.
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(bits, 1));
    const auto rounded = hn::Add(magnitude, hn::Add(odd, hn::Set(bits, 0xFFF)));
    const auto normal = hn::ShiftRight<13>(hn::Sub(rounded, hn::Set(bits, 112u << 23)));
    const auto special = hn::IfThenElse(hn::Gt(magnitude, hn::Set(bits, 0x7F800000)),
                                        hn::Set(bits, 0x7E00), hn::Set(bits, 0x7C00));
    const auto is_denormal = hn::Lt(magnitude, hn::Set(bits, 113u << 23));
    const auto is_special = hn::Gt(magnitude, hn::Set(bits, (143u << 23) - 1));
    const auto half =
        hn::IfThenElse(is_denormal, denormal, hn::IfThenElse(is_special, special, normal));
    const auto signed_half = hn::BitCast(signed_bits, hn::Or(sign, half));
    access.store(narrow_d, hn::DemoteTo(narrow_d, signed_half), to);
#endif
  }
};

// --------------------------------------------------------------------------- operations

// kLeavesRange: a result may be larger than all that it is made of. kLeavesFloat32: so much larger
// that float16 numbers, of at most 64 workers, make a float32 infinite.

struct Sum {
  static constexpr bool kLeavesRange = true;
  static constexpr bool kLeavesFloat32 = false;

  template <class D, HWY_IF_FLOAT(hn::TFromD<D>)>
  static HWY_INLINE hn::Vec<D> apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Add(a, b);
  }
  template <class D, HWY_IF_NOT_FLOAT(hn::TFromD<D>)>  // unsigned, so that wrapping is defined
  static HWY_INLINE hn::Vec<D> apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    const hn::Rebind<hwy::MakeUnsigned<hn::TFromD<D>>, D> bits;
    return hn::BitCast(d, hn::Add(hn::BitCast(bits, a), hn::BitCast(bits, b)));
  }
};

struct Product {
  static constexpr bool kLeavesRange = true;
  static constexpr bool kLeavesFloat32 = true;

  template <class D, HWY_IF_FLOAT(hn::TFromD<D>)>
  static HWY_INLINE hn::Vec<D> apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Mul(a, b);
  }
  template <class D, HWY_IF_NOT_FLOAT(hn::TFromD<D>)>  // unsigned, so that wrapping is defined
  static HWY_INLINE hn::Vec<D> apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    const hn::Rebind<hwy::MakeUnsigned<hn::TFromD<D>>, D> bits;
    return hn::BitCast(d, hn::Mul(hn::BitCast(bits, a), hn::BitCast(bits, b)));
  }
};

// A product of bytes. Once out of their range it comes back by a factor 0 only. So it need not grow
// beyond 15 bits, which products of two do not wrap in, and the result is that of the true product
// in any order.
struct BoundedProduct {
  static constexpr int32_t kBound = 32767;

  template <class D>
  static HWY_INLINE hn::Vec<D> apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    const auto product = Product::apply(d, a, b);
    return hn::Max(hn::Min(product, hn::Set(d, kBound)), hn::Set(d, -kBound));
  }
};

struct And {
  template <class D>
  static HWY_INLINE hn::Vec<D> apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::And(a, b);
  }
};

struct Or {
  template <class D>
  static HWY_INLINE hn::Vec<D> apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Or(a, b);
  }
};

struct Xor {
  template <class D>
  static HWY_INLINE hn::Vec<D> apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Xor(a, b);
  }
};

// The greater of a and b in an order in which NaN wins and -0 < +0. x86's max does neither. Numbers
// that compare equal have the same bits, except zeros: `equal` picks the right one of those.
template <class V, class M>
HWY_INLINE V pick(V a, V b, M a_wins, V equal) {
  const V unequal = hn::IfThenElse(hn::Or(a_wins, hn::IsNaN(a)), a, b);
  return hn::IfThenElse(hn::Eq(a, b), equal, unequal);
}

struct Min {
  static constexpr bool kLeavesRange = false;
  static constexpr bool kLeavesFloat32 = false;

  template <class D, HWY_IF_FLOAT(hn::TFromD<D>)>
  static HWY_INLINE hn::Vec<D> apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return pick(a, b, hn::Lt(a, b), hn::Or(a, b));
  }
  template <class D, HWY_IF_NOT_FLOAT(hn::TFromD<D>)>
  static HWY_INLINE hn::Vec<D> apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Min(a, b);
  }
};

struct Max {
  static constexpr bool kLeavesRange = false;
  static constexpr bool kLeavesFloat32 = false;

  template <class D, HWY_IF_FLOAT(hn::TFromD<D>)>
  static HWY_INLINE hn::Vec<D> apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return pick(a, b, hn::Gt(a, b), hn::And(a, b));
  }
  template <class D, HWY_IF_NOT_FLOAT(hn::TFromD<D>)>
  static HWY_INLINE hn::Vec<D> apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Max(a, b);
  }
};

// The first step of `finish` on the accumulator.
struct Keep {
  template <class D>
  static HWY_INLINE hn::Vec<D> apply(D, hn::Vec<D> v, hn::Vec<D>) {
    return v;
  }
};
struct Divide {
  template <class D>
  static HWY_INLINE hn::Vec<D> apply(D, hn::Vec<D> v, hn::Vec<D> divisor) {
    return hn::Div(v, divisor);
  }
};

// -------------------------------------------------------------------------------- steps

template <class W>
void load(std::byte* row, const std::byte* payload, size_t count) {
  using T = typename W::Accumulator;
  const hn::ScalableTag<T> d;
  for_each_vector(d, count, [=](auto access, size_t i) HWY_ATTR {
    access.store(d, W::widen(d, access, payload + i * W::kWireBytes), row + i * sizeof(T));
  });
}

template <class W, class O>
void add(std::byte* row, const std::byte* payload, size_t count) {
  using T = typename W::Accumulator;
  const hn::ScalableTag<T> d;
  for_each_vector(d, count, [=](auto access, size_t i) HWY_ATTR {
    std::byte* const sum = row + i * sizeof(T);
    const auto more = W::widen(d, access, payload + i * W::kWireBytes);
    access.store(d, O::apply(d, access.load(d, sum), more), sum);
  });
}

template <class W, bool kMayBeInfinite, class F>
bool finish(std::byte* result, const std::byte* row, size_t count, uint32_t divisor) {
  using T = typename W::Accumulator;
  const hn::ScalableTag<T> d;
  const auto by = hn::Set(d, static_cast<T>(divisor));
  auto overflow = hn::FirstN(d, 0);
  for_each_vector(d, count, [=, &overflow](auto access, size_t i) HWY_ATTR {
    const auto sum = access.load(d, row + i * sizeof(T));
    W::template narrow<kMayBeInfinite>(d, access, F::apply(d, sum, by), result + i * W::kWireBytes,
                                       overflow);
  });
  return !hn::AllFalse(d, overflow);
}

template <class W, class O, class F, class Access = Whole>
bool add_finish(std::byte* result, const std::byte* row, const std::byte* payload, size_t count,
                uint32_t divisor) {
  using T = typename W::Accumulator;
  const hn::ScalableTag<T> d;
  const auto by = hn::Set(d, static_cast<T>(divisor));
  auto overflow = hn::FirstN(d, 0);
  for_each_vector<Access>(d, count, [=, &overflow](auto access, size_t i) HWY_ATTR {
    const auto more = W::widen(d, access, payload + i * W::kWireBytes);
    const auto sum = O::apply(d, access.load(d, row + i * sizeof(T)), more);
    W::template narrow<W::template kInfinite<O>>(d, access, F::apply(d, sum, by),
                                                 result + i * W::kWireBytes, overflow);
  });
  return !hn::AllFalse(d, overflow);
}

// Narrower results come in parts of vectors, which Highway streams as whole ones.
template <class W>
using StreamedResult =
    std::conditional_t<W::kWireBytes == sizeof(typename W::Accumulator), Streamed, Whole>;

template <class W, class O, class F>
bool add_finish_stream(std::byte* result, const std::byte* row, const std::byte* payload,
                       size_t count, uint32_t divisor) {
  const bool overflow =
      add_finish<W, O, F, StreamedResult<W>>(result, row, payload, count, divisor);
  hwy::FlushStream();
  return overflow;
}

// Calls done(access, i, sum) for vectors of sums. The loop over payloads is inside: a sum stays in
// a register. Four of them at a time, as additions take longer than loads. `row`: nullptr if
// nothing is held.
template <class W, class O, class Access, class D, class Done>
HWY_INLINE void for_each_sum(D d, const std::byte* row, const std::byte* const* payloads,
                             size_t payload_count, size_t count, Done done) {
  using T = typename W::Accumulator;
  const size_t lanes = hn::Lanes(d);
  const size_t first_added = row ? 0 : 1;
  const auto begin = [=](auto access, size_t i) HWY_ATTR {
    return row ? access.load(d, row + i * sizeof(T))
               : W::widen(d, access, payloads[0] + i * W::kWireBytes);
  };
  size_t i = 0;
  if constexpr (!kOneByOne) {
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
      auto sum0 = begin(Whole{}, i);
      auto sum1 = begin(Whole{}, i + lanes);
      auto sum2 = begin(Whole{}, i + 2 * lanes);
      auto sum3 = begin(Whole{}, i + 3 * lanes);
      for (size_t p = first_added; p < payload_count; ++p) {
        const std::byte* const from = payloads[p] + i * W::kWireBytes;
        const size_t step = lanes * W::kWireBytes;
        sum0 = O::apply(d, sum0, W::widen(d, Whole{}, from));
        sum1 = O::apply(d, sum1, W::widen(d, Whole{}, from + step));
        sum2 = O::apply(d, sum2, W::widen(d, Whole{}, from + 2 * step));
        sum3 = O::apply(d, sum3, W::widen(d, Whole{}, from + 3 * step));
      }
      done(Access{}, i, sum0);
      done(Access{}, i + lanes, sum1);
      done(Access{}, i + 2 * lanes, sum2);
      done(Access{}, i + 3 * lanes, sum3);
    }
  }
  const auto one = [=](auto access, size_t at) HWY_ATTR {
    auto sum = begin(access, at);
    for (size_t p = first_added; p < payload_count; ++p)
      sum = O::apply(d, sum, W::widen(d, access, payloads[p] + at * W::kWireBytes));
    return sum;
  };
  for (; i + lanes <= count; i += lanes) done(Access{}, i, one(Whole{}, i));
  if constexpr (!kOneByOne)
    if (i < count) done(First{count - i}, i, one(First{count - i}, i));
}

template <class W, class O>
void add_all(std::byte* row, bool held, const std::byte* const* payloads, size_t payload_count,
             size_t count) {
  using T = typename W::Accumulator;
  const hn::ScalableTag<T> d;
  for_each_sum<W, O, Whole>(d, held ? row : nullptr, payloads, payload_count, count,
                            [=](auto access, size_t i, hn::Vec<decltype(d)> sum)
                                HWY_ATTR { access.store(d, sum, row + i * sizeof(T)); });
}

template <class W, class O, class F, class Access = Whole>
bool finish_all(std::byte* result, const std::byte* row, const std::byte* const* payloads,
                size_t payload_count, size_t count, uint32_t divisor) {
  using T = typename W::Accumulator;
  const hn::ScalableTag<T> d;
  const auto by = hn::Set(d, static_cast<T>(divisor));
  auto overflow = hn::FirstN(d, 0);
  for_each_sum<W, O, Access>(
      d, row, payloads, payload_count, count,
      [=, &overflow](auto access, size_t i, hn::Vec<decltype(d)> sum) HWY_ATTR {
        W::template narrow<W::template kInfinite<O>>(d, access, F::apply(d, sum, by),
                                                     result + i * W::kWireBytes, overflow);
      });
  return !hn::AllFalse(d, overflow);
}

template <class W, class O, class F>
bool finish_all_stream(std::byte* result, const std::byte* row, const std::byte* const* payloads,
                       size_t payload_count, size_t count, uint32_t divisor) {
  const bool overflow =
      finish_all<W, O, F, StreamedResult<W>>(result, row, payloads, payload_count, count, divisor);
  hwy::FlushStream();
  return overflow;
}

// --------------------------------------------------------------------------------- table

template <class W, class O, class F>
constexpr Kernels kTable = {load<W>,
                            add<W, O>,
                            add<Native<typename W::Accumulator>, O>,
                            finish<W, W::template kInfinite<O>, F>,
                            add_finish<W, O, F>,
                            add_finish_stream<W, O, F>,
                            add_all<W, O>,
                            finish_all<W, O, F>,
                            finish_all_stream<W, O, F>};

template <class W, class P = Product>
const Kernels* of_number(Op op) {
  switch (op) {
    case Op::kMin:
      return &kTable<W, Min, Keep>;
    case Op::kMax:
      return &kTable<W, Max, Keep>;
    case Op::kProduct:
      return &kTable<W, P, Keep>;
    default:
      return &kTable<W, Sum, Keep>;
  }
}

template <class W, class P = Product>
const Kernels* of_integer(Op op) {
  switch (op) {
    case Op::kBand:
      return &kTable<W, And, Keep>;
    case Op::kBor:
      return &kTable<W, Or, Keep>;
    case Op::kBxor:
      return &kTable<W, Xor, Keep>;
    default:
      return of_number<W, P>(op);
  }
}

template <class W>
const Kernels* of_float(Op op) {
  return op == Op::kAvg ? &kTable<W, Sum, Divide> : of_number<W>(op);
}

const Kernels* of_bool(Op op) {
  switch (op) {
    case Op::kMin:
    case Op::kProduct:
    case Op::kBand:
      return &kTable<Bool, And, Keep>;
    case Op::kBxor:
      return &kTable<Bool, Xor, Keep>;
    default:
      return &kTable<Bool, Or, Keep>;
  }
}

const Kernels* find_kernels(DType dtype, Op op) {
  switch (dtype) {
    case DType::kInt8:
      return of_integer<Byte<int8_t>, BoundedProduct>(op);
    case DType::kUInt8:
      return of_integer<Byte<uint8_t>, BoundedProduct>(op);
    case DType::kBool:
      return of_bool(op);
    case DType::kInt32:
      return of_integer<Native<int32_t>>(op);
    case DType::kInt64:
      return of_integer<Native<int64_t>>(op);
    case DType::kFloat32:
      return of_float<Native<float>>(op);
    case DType::kFloat64:
      return of_float<Native<double>>(op);
    case DType::kBFloat16:
      return of_float<BFloat16>(op);
    case DType::kFloat16:
      break;
  }
  return of_float<Float16>(op);
}

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace HWY_NAMESPACE
}  // namespace ina::aggregator
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ina::aggregator {

HWY_EXPORT(find_kernels);
HWY_EXPORT(target_name);

const Kernels& kernels(DType dtype, Op op) {
  return *HWY_DYNAMIC_DISPATCH(find_kernels)(dtype, op);
}

const char* kernel_target() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

}  // namespace ina::aggregator
#endif
