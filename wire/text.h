// Ranks and operations as text for a person, the same in every program.
#pragma once

#include <bit>
#include <string>

#include "wire/message.h"

namespace ina::wire {

/// "rank 1", "ranks 0, 3"
inline std::string ranks_text(Bitmap ranks) {
  std::string text = std::popcount(ranks) == 1 ? "rank " : "ranks ";
  for (const char* separator = ""; ranks != 0; ranks &= ranks - 1, separator = ", ")
    text += separator + std::to_string(std::countr_zero(ranks));
  return text;
}

/// "operation 7: allreduce of 1000 float32 sum"; ", fused from 3 tensors (sizes 2f0c)" if it is
inline std::string text_of(const Signature& s) {
  const std::string number = "operation " + std::to_string(s.operation) + ": ";
  if (s.collective == Collective::kBarrier) return number + "barrier";
  const bool fused = (s.elements & kFusedBit) != 0;
  std::string text = number + std::string(name(s.collective)) + " of " +
                     std::to_string(fused ? s.elements & 0xffffffff : s.elements) + " " +
                     std::string(name(s.dtype)) + " " + std::string(name(s.op));
  if (s.target != 0)
    text += " into byte " + std::to_string((uint64_t{s.target} - 1) * kTargetUnitBytes) +
            " of the result buffers";
  if (!fused) return text;
  constexpr char kDigits[] = "0123456789abcdef";
  text +=
      ", fused from " + std::to_string(s.elements >> 48 & kMaxFusedTensors) + " tensors (sizes ";
  for (int shift = 44; shift >= 32; shift -= 4) text += kDigits[s.elements >> shift & 15];
  return text + ")";
}

/// What two sides that disagree did.
inline std::string mismatch_text(Bitmap first_ranks, const Signature& first, Bitmap other_ranks,
                                 const Signature& other) {
  return ranks_text(first_ranks) + " started " + text_of(first) + ", " + ranks_text(other_ranks) +
         " started " + text_of(other);
}

}  // namespace ina::wire
