// SipHash-2-4 with 64-bit output (Aumasson and Bernstein, "SipHash: a fast short-input PRF",
// Indocrypt 2012). Without the key nobody can tell it from a random number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ina::wire {

/// 128 bits: the paper's 16 bytes, little-endian.
struct SipKey {
  uint64_t k0 = 0;
  uint64_t k1 = 0;
  friend bool operator==(const SipKey&, const SipKey&) = default;
};

uint64_t siphash(const SipKey& key, std::span<const std::byte> bytes);

/// A text whose length is known otherwise.
struct SipInput {
  SipKey key;
  const std::byte* data = nullptr;  ///< any alignment
};

/// Texts of `bytes` bytes each, several at a time in the lanes of vectors; `hashes` has room for as
/// many.
void siphash_many(std::span<const SipInput> inputs, size_t bytes, std::span<uint64_t> hashes);

/// The instruction set that siphash_many() uses.
const char* siphash_target();

}  // namespace ina::wire
