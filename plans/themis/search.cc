#include "plans/themis/search.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace ina::themis {
namespace {

/// A change may make a plan worse than the current one, but not than that of so many steps ago
/// (late acceptance hill climbing, Burke and Bykov, 2017).
constexpr size_t kPatience = 40;
/// Changes tried for each one that is simulated, at most.
constexpr uint32_t kMostTries = 20;

/// SplitMix64 (Steele et al., 2014): the same numbers on every machine.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  uint64_t below(uint64_t limit) {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % limit;
  }

 private:
  uint64_t state_;
};

/// A plan under way: its chunks are kept beside its ways.
class Climber {
 public:
  Climber(const Topology& topology, const std::vector<Request>& requests,
          const SearchLimits& limits)
      : topology_(topology),
        requests_(requests),
        limits_(limits),
        numbers_(limits.seed),
        simulator_(topology, requests) {
    for (size_t d = 0; d < topology.dimensions.size(); ++d)
      if (topology.dimensions[d].aggregates()) aggregating_.push_back(static_cast<uint8_t>(d));
  }

  /// Evaluates `start` and `evaluations` changes of it.
  void climb_from(const Candidate& start, uint32_t evaluations) {
    set(start);
    current_ps_ = evaluate();
    keep_if_best();
    climb(evaluations);
  }

  void climb_from_best(uint32_t evaluations) {
    set(best_);
    current_ps_ = best_ps_;
    climb(evaluations);
  }

  const Candidate& best() const { return best_; }

 private:
  /// The state that a change of two chunks replaced.
  struct Before {
    uint32_t a = 0, b = 0;
    Way way_a, way_b;
    uint64_t bytes_a = 0, bytes_b = 0;
    Discipline discipline = Discipline::kFifo;
  };

  void climb(uint32_t evaluations) {
    std::vector<Picos> late(kPatience, current_ps_);
    for (uint32_t i = 0; i < evaluations; ++i) {
      const Picos limit_ps = std::max(current_ps_, late[i % kPatience]);
      // Ways first: sizes balance the rest, which whole chunks cannot.
      const bool may_resize = i >= evaluations / 2;
      const std::optional<Before> before = promising_change(limit_ps, may_resize);
      if (!before) continue;
      const Picos now_ps = evaluate();
      if (now_ps <= limit_ps) {
        current_ps_ = now_ps;
        keep_if_best();
      } else {
        undo(*before);
      }
      late[i % kPatience] = current_ps_;
    }
  }

  void set(const Candidate& candidate) {
    current_ = candidate;
    chunks_ = chunks_of(topology_, requests_, current_);
    loads_.assign(topology_.dimensions.size(), {});
    for (const Chunk& chunk : chunks_) add_load(chunk, 1);
  }

  /// `sign` -1 takes it away.
  void add_load(const Chunk& chunk, Picos sign) {
    for (const Stage& stage : chunk.stages) {
      loads_[stage.dimension].tx_ps += sign * stage.tx_ps;
      loads_[stage.dimension].rx_ps += sign * stage.rx_ps;
    }
  }

  /// No plan ends before its busiest link has sent and got everything.
  Picos bound_ps() const {
    Picos most_ps = 0;
    for (const Load& load : loads_) most_ps = std::max({most_ps, load.tx_ps, load.rx_ps});
    return most_ps;
  }

  /// Makes a change with which the plan can end by `limit_ps`. Nothing: none was found.
  std::optional<Before> promising_change(Picos limit_ps, bool may_resize) {
    for (uint32_t i = 0; i < kMostTries; ++i) {
      Before before = change(may_resize);
      if (bound_ps() <= limit_ps) return before;
      undo(before);
    }
    return std::nullopt;
  }

  Picos evaluate() { return simulator_.end_ps(chunks_, current_.discipline); }

  void keep_if_best() {
    if (best_ps_ >= 0 && current_ps_ >= best_ps_) return;
    best_ = current_;
    best_ps_ = current_ps_;
  }

  void rebuild(uint32_t chunk) {
    const Piece& piece = current_.pieces[chunk];
    add_load(chunks_[chunk], -1);
    chunks_[chunk] = make_chunk(topology_, piece.request, requests_[piece.request].collective,
                                piece.bytes, current_.ways[chunk]);
    add_load(chunks_[chunk], 1);
  }

  uint32_t any_chunk() { return static_cast<uint32_t>(numbers_.below(current_.pieces.size())); }

  void undo(const Before& before) {
    current_.ways[before.a] = before.way_a;
    current_.ways[before.b] = before.way_b;
    current_.pieces[before.a].bytes = before.bytes_a;
    current_.pieces[before.b].bytes = before.bytes_b;
    current_.discipline = before.discipline;
    rebuild(before.a);
    rebuild(before.b);
  }

  Before change(bool may_resize) {
    const uint32_t a = any_chunk(), b = any_chunk();
    Before before{.a = a,
                  .b = b,
                  .way_a = current_.ways[a],
                  .way_b = current_.ways[b],
                  .bytes_a = current_.pieces[a].bytes,
                  .bytes_b = current_.pieces[b].bytes,
                  .discipline = current_.discipline};
    const uint64_t kind = numbers_.below(may_resize ? 12 : 8);
    if (kind < 2)
      std::swap(current_.ways[a], current_.ways[b]);
    else if (kind == 2)
      current_.ways[b] = current_.ways[a];
    else if (kind == 3)
      change_discipline();
    else if (kind == 4)
      change_network(current_.ways[a]);
    else if (kind < 8)
      change_order(current_.ways[a]);
    else
      move_bytes(a, b);
    rebuild(a);
    rebuild(b);
    return before;
  }

  void change_discipline() {
    if (limits_.may_change_discipline)
      current_.discipline = static_cast<Discipline>(numbers_.below(kDisciplineNames.size()));
  }

  void change_network(Way& way) {
    if (limits_.may_aggregate && !aggregating_.empty())
      way.in_network ^= 1u << aggregating_[numbers_.below(aggregating_.size())];
  }

  void change_order(Way& way) {
    const size_t i = numbers_.below(way.order.size()), j = numbers_.below(way.order.size());
    std::swap(way.order[i], way.order[j]);
  }

  /// A part of a chunk, from half of it to 1/64, goes to another one of the same collective.
  void move_bytes(uint32_t from, uint32_t to) {
    if (current_.pieces[from].request != current_.pieces[to].request) return;
    const uint64_t granule_bytes = limits_.granule_bytes[current_.pieces[from].request];
    const uint64_t granules = current_.pieces[from].bytes / granule_bytes;
    const uint64_t bytes = (granules >> (1 + numbers_.below(6))) * granule_bytes;
    current_.pieces[from].bytes -= bytes;
    current_.pieces[to].bytes += bytes;
  }

  const Topology& topology_;
  const std::vector<Request>& requests_;
  const SearchLimits& limits_;
  std::vector<uint8_t> aggregating_;
  Numbers numbers_;
  Simulator simulator_;
  std::vector<Chunk> chunks_;
  std::vector<Load> loads_;  ///< of the chunks, by dimension; only times
  Candidate current_;
  Picos current_ps_ = 0;
  Candidate best_;
  Picos best_ps_ = -1;
};

}  // namespace

std::vector<Chunk> chunks_of(const Topology& topology, const std::vector<Request>& requests,
                             const Candidate& candidate) {
  std::vector<Chunk> chunks;
  chunks.reserve(candidate.pieces.size());
  for (size_t i = 0; i < candidate.pieces.size(); ++i) {
    const Piece& piece = candidate.pieces[i];
    chunks.push_back(make_chunk(topology, piece.request, requests[piece.request].collective,
                                piece.bytes, candidate.ways[i]));
  }
  return chunks;
}

Candidate search(const Topology& topology, const std::vector<Request>& requests,
                 const std::vector<Candidate>& starts, const SearchLimits& limits) {
  Climber climber(topology, requests, limits);
  // Half of the changes for a look around, the other half for the best that was found.
  const auto each = static_cast<uint32_t>(limits.evaluations / 2 / starts.size());
  for (const Candidate& start : starts) climber.climb_from(start, each);
  climber.climb_from_best(limits.evaluations - limits.evaluations / 2);
  return climber.best();
}

}  // namespace ina::themis
