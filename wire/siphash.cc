// The lanes are compiled once per instruction set by foreach_target.h; the best is picked at run
// time.
#include "wire/siphash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "wire/siphash.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef INA_SIPHASH_ONCE
#define INA_SIPHASH_ONCE
namespace ina::wire {

constexpr size_t kWordBytes = 8;
constexpr size_t kMaxLanes = 8;
constexpr uint64_t kInitial[] = {0x736f6d6570736575, 0x646f72616e646f6d, 0x6c7967656e657261,
                                 0x7465646279746573};

inline uint64_t load_word(const std::byte* from) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

/// The bytes left over after whole words, and the length.
inline uint64_t last_word(const std::byte* from, size_t bytes) {
  uint64_t word = uint64_t{bytes} << 56;
  for (size_t i = 0; i < bytes % kWordBytes; ++i)
    word |= std::to_integer<uint64_t>(from[bytes / kWordBytes * kWordBytes + i]) << 8 * i;
  return word;
}

}  // namespace ina::wire
#endif

HWY_BEFORE_NAMESPACE();
namespace ina::wire {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes64 = hn::CappedTag<uint64_t, kMaxLanes>;
using Vector = hn::Vec<Lanes64>;

/// SipRounds over as many states as a vector has lanes.
struct States {
  Vector v0, v1, v2, v3;

  HWY_INLINE void round() {
    v0 = hn::Add(v0, v1);
    v2 = hn::Add(v2, v3);
    v1 = hn::Xor(hn::RotateRight<64 - 13>(v1), v0);
    v3 = hn::Xor(hn::RotateRight<64 - 16>(v3), v2);
    v0 = hn::RotateRight<32>(v0);
    v2 = hn::Add(v2, v1);
    v0 = hn::Add(v0, v3);
    v1 = hn::Xor(hn::RotateRight<64 - 17>(v1), v2);
    v3 = hn::Xor(hn::RotateRight<64 - 21>(v3), v0);
    v2 = hn::RotateRight<32>(v2);
  }

  HWY_INLINE void absorb(Vector word) {
    v3 = hn::Xor(v3, word);
    round();
    round();
    v0 = hn::Xor(v0, word);
  }
};

size_t lanes() {
  return hn::Lanes(Lanes64());
}

/// One text in each lane.
void hash_lanes(const SipInput* inputs, size_t bytes, uint64_t* hashes) {
  const Lanes64 d;
  const size_t count = hn::Lanes(d);
  alignas(64) uint64_t words[kMaxLanes];
  const auto of_each = [&](auto&& word) HWY_ATTR {
    for (size_t i = 0; i < count; ++i) words[i] = word(inputs[i]);
    return hn::Load(d, words);
  };
  const Vector k0 = of_each([](const SipInput& input) { return input.key.k0; });
  const Vector k1 = of_each([](const SipInput& input) { return input.key.k1; });
  States states{hn::Xor(k0, hn::Set(d, kInitial[0])), hn::Xor(k1, hn::Set(d, kInitial[1])),
                hn::Xor(k0, hn::Set(d, kInitial[2])), hn::Xor(k1, hn::Set(d, kInitial[3]))};
  for (size_t at = 0; at + kWordBytes <= bytes; at += kWordBytes)
    states.absorb(of_each([at](const SipInput& input) { return load_word(input.data + at); }));
  states.absorb(of_each([bytes](const SipInput& input) { return last_word(input.data, bytes); }));
  states.v2 = hn::Xor(states.v2, hn::Set(d, 0xff));
  for (int i = 0; i < 4; ++i) states.round();
  hn::Store(hn::Xor(hn::Xor(states.v0, states.v1), hn::Xor(states.v2, states.v3)), d, words);
  std::copy_n(words, count, hashes);
}

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace HWY_NAMESPACE
}  // namespace ina::wire
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ina::wire {

HWY_EXPORT(lanes);
HWY_EXPORT(hash_lanes);
HWY_EXPORT(target_name);

uint64_t siphash(const SipKey& key, std::span<const std::byte> bytes) {
  uint64_t v0 = key.k0 ^ kInitial[0];
  uint64_t v1 = key.k1 ^ kInitial[1];
  uint64_t v2 = key.k0 ^ kInitial[2];
  uint64_t v3 = key.k1 ^ kInitial[3];
  const auto round = [&]() __attribute__((always_inline)) {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  };
  const auto absorb = [&](uint64_t word) __attribute__((always_inline)) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  };
  for (size_t at = 0; at + kWordBytes <= bytes.size(); at += kWordBytes)
    absorb(load_word(bytes.data() + at));
  absorb(last_word(bytes.data(), bytes.size()));
  v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) round();
  return v0 ^ v1 ^ v2 ^ v3;
}

void siphash_many(std::span<const SipInput> inputs, size_t bytes, std::span<uint64_t> hashes) {
  const size_t lanes = HWY_DYNAMIC_DISPATCH(lanes)();
  size_t at = 0;
  // Two lanes without instructions that rotate are slower than none.
  for (; lanes < 4 && at < inputs.size(); ++at)
    hashes[at] = siphash(inputs[at].key, {inputs[at].data, bytes});
  for (; at + lanes <= inputs.size(); at += lanes)
    HWY_DYNAMIC_DISPATCH(hash_lanes)(&inputs[at], bytes, &hashes[at]);
  const size_t left = inputs.size() - at;
  if (left == 0) return;
  if (left == 1) {
    hashes[at] = siphash(inputs[at].key, {inputs[at].data, bytes});
    return;
  }
  // The last vector is filled up with the last text.
  std::array<SipInput, kMaxLanes> rest;
  rest.fill(inputs.back());
  std::copy(inputs.begin() + static_cast<ptrdiff_t>(at), inputs.end(), rest.begin());
  std::array<uint64_t, kMaxLanes> some{};
  HWY_DYNAMIC_DISPATCH(hash_lanes)(rest.data(), bytes, some.data());
  std::copy_n(some.begin(), left, hashes.begin() + static_cast<ptrdiff_t>(at));
}

const char* siphash_target() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

}  // namespace ina::wire
#endif
