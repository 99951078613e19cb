// The fingerprint of an operation's blocks, by which ranks notice that they disagree about root or
// sizes (blocks_bits() puts it into a signature), and its text for a person.
#pragma once

#include <cstdint>

#include "wire/types.h"

namespace ina::wire {

constexpr bool has_root(Collective c) {
  return c == Collective::kReduce || c == Collective::kBroadcast || c == Collective::kGather ||
         c == Collective::kScatter;
}

/// All-gathers in which ranks tell each other sizes, or hashes of plans, before the operation that
/// they are for.
inline constexpr uint16_t kSizesOfAllToAll = 0xffff;
inline constexpr uint16_t kSizesOfSendReceive = 0xfffe;
inline constexpr uint16_t kHashesOfPlans = 0xfffd;

inline constexpr uint64_t kHashStart = 0xcbf29ce484222325;  // FNV-1a
constexpr uint64_t add_to_hash(uint64_t hash, uint64_t value) {
  for (int byte = 0; byte < 8; ++byte, value >>= 8) hash = (hash ^ (value & 0xff)) * 0x100000001b3;
  return hash;
}

/// `hash`: of counts. With a root, the low 7 bits are the root's. Its other bits, in a job of more
/// than 128 ranks, are added to the hash: roots of the same counts always differ.
constexpr uint16_t blocks_fingerprint(Collective collective, Rank root, uint64_t hash) {
  const auto folded = static_cast<uint16_t>(hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48);
  if (has_root(collective)) return static_cast<uint16_t>((folded & ~uint32_t{0x7f}) ^ value(root));
  return static_cast<uint16_t>(folded % kHashesOfPlans);
}
/// The root, in a job of more than 128 ranks its remainder by 128.
constexpr uint32_t root_of(uint16_t fingerprint) {
  return fingerprint & 0x7f;
}

}  // namespace ina::wire
