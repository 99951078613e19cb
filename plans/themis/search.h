// A search for plans that take less time than Themis's. From the best of the known plans it changes
// the ways and sizes of single chunks at random, and keeps a change if the simulated plan is not
// worse.
#pragma once

#include <cstdint>
#include <vector>

#include "plans/themis/chunks.h"
#include "plans/themis/simulate.h"

namespace ina::themis {

/// A chunk before its way is chosen.
struct Piece {
  uint32_t request = 0;
  uint64_t bytes = 0;
};

/// With topology and requests this is a plan.
struct Candidate {
  std::vector<Piece> pieces;  ///< those of a request follow each other
  std::vector<Way> ways;      ///< one for each piece
  Discipline discipline = Discipline::kSmallestFirst;
};

std::vector<Chunk> chunks_of(const Topology& topology, const std::vector<Request>& requests,
                             const Candidate& candidate);

struct SearchLimits {
  uint32_t evaluations = 3000;  ///< simulations beside those of the starts
  uint64_t seed = 1;
  std::vector<uint64_t> granule_bytes{};  ///< of each request: its chunks are multiples of it
  bool may_aggregate = true;              ///< chunks may change to aggregating switches
  bool may_change_discipline = true;
};

/// The best plan found: never worse than any of `starts`, of which there is at least one. It has as
/// many chunks; bytes may have gone from one to another.
Candidate search(const Topology& topology, const std::vector<Request>& requests,
                 const std::vector<Candidate>& starts, const SearchLimits& limits);

}  // namespace ina::themis
