// Hashes of plans, which ranks compare before they carry one out. Pure.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "wire/rank_set.h"
#include "wire/text.h"

namespace ina::client {

/// `hashes`: of all ranks, one after the other, 8 bytes each. `started`: "the redistribution".
/// Names the ranks of rank 0's plan, and those of the first other one; empty if there is none.
inline std::string disagreement_text(const std::byte* hashes, uint32_t ranks,
                                     std::string_view started) {
  const auto hash_of = [&](uint32_t rank) {
    uint64_t hash;
    std::memcpy(&hash, hashes + rank * sizeof(hash), sizeof(hash));
    return hash;
  };
  const auto text_of = [&](uint64_t hash) {
    RankSet with;
    for (const Rank rank : RankSet::first(ranks))
      if (hash_of(value(rank)) == hash) with.insert(rank);
    return wire::ranks_text(with) + " started " + std::string(started) + " with plan hash " +
           wire::hex_text(hash, 16);
  };
  for (uint32_t rank = 1; rank < ranks; ++rank)
    if (hash_of(rank) != hash_of(0)) return text_of(hash_of(0)) + ", " + text_of(hash_of(rank));
  return {};
}

}  // namespace ina::client
