// Ranks and operations as text for a person, the same in every program.
#pragma once

#include <string>

#include "wire/fingerprint.h"
#include "wire/message.h"

namespace ina::wire {

/// "rank 1", "ranks 0, 3"; of a large set (WorkerSet, RankSet): "ranks 0-63, 65"
template <class Ranks>
std::string ranks_text(const Ranks& ranks) {
  constexpr uint32_t kLarge = 16;
  const bool joins = ranks.size() > kLarge;
  std::string text = ranks.is_single() ? "rank " : "ranks ";
  const char* separator = "";
  uint32_t first = 0, next = UINT32_MAX;  // of the ranks that follow each other
  const auto end_run = [&] {
    if (next != UINT32_MAX && next - first > 1) text.append("-").append(std::to_string(next - 1));
  };
  for (const Rank rank : ranks) {
    if (joins && value(rank) == next) {
      ++next;
      continue;
    }
    end_run();
    text += separator + std::to_string(value(rank));
    separator = ", ";
    first = value(rank);
    next = first + 1;
  }
  end_run();
  return text;
}

/// `digits` hexadecimal digits, the last ones of `number`.
inline std::string hex_text(uint64_t number, int digits) {
  std::string text;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    text += "0123456789abcdef"[number >> shift & 15];
  return text;
}

/// The text for an operation with blocks: ", root 3", ", counts with fingerprint 2f0c", or both. A
/// fingerprint tells counts apart: it shows whether they differ, not their values.
inline std::string blocks_text(const Signature& s) {
  const auto fingerprint = static_cast<uint16_t>(s.elements >> kBlocksShift);
  const std::string counts = ", counts with fingerprint " + hex_text(fingerprint, 4);
  if (!has_root(s.collective)) return counts;
  const bool by_rank = s.collective == Collective::kGather || s.collective == Collective::kScatter;
  return ", root " + std::to_string(root_of(fingerprint)) + (by_rank ? counts : "");
}

/// "operation 7: allreduce of 1000 float32 sum"; ", fused from 3 tensors (sizes 2f0c)" if it is;
/// "operation 7: gather of 1000 int8, root 3, counts with fingerprint 2f03"
inline std::string text_of(const Signature& s) {
  const std::string number = "operation " + std::to_string(s.operation) + ": ";
  if (s.collective == Collective::kBarrier) return number + "barrier";
  const bool fused = (s.elements & kFusedBit) != 0;
  const bool blocks = !fused && (s.elements & kBlocksBit) != 0;
  if (blocks && s.collective == Collective::kAllGather) {
    const auto fingerprint = static_cast<uint16_t>(s.elements >> kBlocksShift);
    if (fingerprint == kSizesOfAllToAll) return number + "all-to-all with counts by rank";
    if (fingerprint == kSizesOfSendReceive) return number + "send and receive";
    if (fingerprint == kHashesOfPlans) return number + "redistribution";
  }
  std::string text = number + std::string(name(s.collective)) + " of " +
                     std::to_string(fused    ? s.elements & 0xffffffff
                                    : blocks ? s.elements & kMaxBlocksElements
                                             : s.elements) +
                     " " + std::string(name(s.dtype));
  if (!is_moved(s.collective)) text.append(" ").append(name(s.op));
  // The barriers that need not wait, of PyTorch, Python and MPI.
  if (s.collective == Collective::kAllReduce && s.elements == 0) text += " (a barrier)";
  if (blocks) text += blocks_text(s);
  if (s.receiver != 0 && !has_root(s.collective))
    text += ", for rank " + std::to_string(s.receiver - 1);
  if (s.target != 0)
    text += " into byte " + std::to_string((uint64_t{s.target} - 1) * kTargetUnitBytes) +
            " of the result buffers";
  if (!fused) return text;
  return text + ", fused from " + std::to_string(s.elements >> 48 & kMaxFusedTensors) +
         " tensors (sizes " + hex_text(s.elements >> 32, 4) + ")";
}

/// The text of an error: the operations that the two sides started.
template <class Ranks>
std::string mismatch_text(const Ranks& first_ranks, const Signature& first,
                          const Ranks& other_ranks, const Signature& other) {
  return ranks_text(first_ranks) + " started " + text_of(first) + ", " + ranks_text(other_ranks) +
         " started " + text_of(other);
}

}  // namespace ina::wire
