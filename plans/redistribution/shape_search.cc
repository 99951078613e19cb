#include "plans/redistribution/shape_search.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>
#include <unordered_map>

namespace ina::redistribution {
namespace {

/// With this many ways to slice at the start the rest are left out: those that slice most.
constexpr size_t kMostStarts = 50'000;

struct SplitsHash {
  size_t operator()(const Splits& splits) const {
    uint64_t hash = 0xcbf29ce484222325;
    for (const uint32_t split : splits) hash = (hash ^ split) * 0x100000001b3;
    return hash ^ hash >> 29;
  }
};

class ShapeSearch {
 public:
  ShapeSearch(const Problem& problem, const Bound& bound, uint64_t most_moved)
      : problem_(problem),
        bound_(bound),
        most_moved_(most_moved),
        elements_(elements_of(problem.shape)),
        target_(splits_of(problem.mesh, problem.to)) {
    for (uint32_t factor = 1; factor <= problem.mesh.ranks(); ++factor)
      if (problem.mesh.ranks() % factor == 0) factors_.push_back(factor);
  }

  std::optional<ShapePath> run() {
    const Splits source = splits_of(problem_.mesh, problem_.from);
    uint32_t used = 1;
    for (size_t d = 0; d < problem_.shape.size(); ++d) used *= source[d];
    add_starts(source, problem_.mesh.ranks() / used, 0);
    while (!queue_.empty()) {
      const Entry entry = queue_.top();
      queue_.pop();
      if (entry.us > nodes_[entry.node].bound_us) continue;  // a cheaper way came later
      if (is_goal(nodes_[entry.node].splits)) return path_to(entry.node);
      expand(entry.node);
    }
    return std::nullopt;
  }

 private:
  struct Node {
    Splits splits{};
    double us = 0;        ///< so far
    double bound_us = 0;  ///< of the whole path
    uint32_t parent = kNone;
    ShapeMove move{};
  };
  struct Entry {
    double us;
    uint32_t node;
    /// The later of two alike first: that goes deep.
    bool operator<(const Entry& other) const {
      return us != other.us ? us > other.us : node < other.node;
    }
  };
  static constexpr uint32_t kNone = ~uint32_t{0};

  /// Every way to cut dimensions from `first` on further by parts of `free`, the axes not in use.
  void add_starts(const Splits& splits, uint32_t free, size_t first) {
    if (starts_ > kMostStarts) return;
    if (first == problem_.shape.size()) {
      ++starts_;
      add_start(splits);
      return;
    }
    const uint64_t local = problem_.shape[first] / splits[first];
    for (const uint32_t factor : factors_) {
      if (free % factor != 0 || local % factor != 0) continue;
      Splits cut = splits;
      cut[first] *= factor;
      add_starts(cut, free / factor, first + 1);
    }
  }

  void add_start(const Splits& splits) {
    const uint64_t tile = tile_of(splits);
    if (tile > most_moved_ || bound_.target() % tile != 0) return;
    const double permute_us =
        problem_.costs.time_us(1, static_cast<double>(tile) * problem_.element_bytes);
    reach({splits, permute_us, 0, kNone, {}});
  }

  void expand(uint32_t index) {
    const Splits splits = nodes_[index].splits;
    const double us = nodes_[index].us;
    const uint64_t tile = tile_of(splits);
    const double copy_us =
        problem_.costs.copies_us(static_cast<double>(tile) * problem_.element_bytes);
    for (uint8_t from = 0; from < problem_.from.dimensions; ++from)
      for (const uint32_t factor : factors_) {
        if (factor == 1 || splits[from] % factor != 0) continue;
        const uint64_t bytes = tile / factor * (factor - 1) * problem_.element_bytes;
        const double move_us = problem_.costs.time_us(factor - 1, static_cast<double>(bytes));
        for (uint8_t to = 0; to < problem_.from.dimensions; ++to) {
          if (to == from || problem_.shape[to] / splits[to] % factor != 0) continue;
          Splits next = splits;
          next[from] /= factor;
          next[to] *= factor;
          const int copies = (lies_apart(splits, to) ? 1 : 0) + (lies_apart(next, from) ? 1 : 0);
          reach({next, us + move_us + copies * copy_us, 0, index, {from, to, factor}});
        }
      }
  }

  void reach(Node node) {
    node.bound_us =
        node.us + bound_.us(missing(node.splits), static_cast<double>(tile_of(node.splits)));
    const auto [known, is_new] = index_.try_emplace(node.splits, nodes_.size());
    if (is_new) {
      nodes_.push_back(node);
    } else if (node.bound_us < nodes_[known->second].bound_us) {
      nodes_[known->second] = node;
    } else {
      return;
    }
    queue_.push({node.bound_us, static_cast<uint32_t>(known->second)});
  }

  Splits missing(const Splits& splits) const {
    Splits missing{};
    for (size_t d = 0; d < problem_.shape.size(); ++d)
      missing[d] = target_[d] / std::gcd(target_[d], splits[d]);
    return missing;
  }
  bool is_goal(const Splits& splits) const {
    for (size_t d = 0; d < problem_.shape.size(); ++d)
      if (splits[d] % target_[d] != 0) return false;
    return true;
  }
  /// lies_apart() for the tile of these splits.
  bool lies_apart(const Splits& splits, size_t dimension) const {
    for (size_t d = 0; d < dimension; ++d)
      if (problem_.shape[d] > splits[d]) return true;
    return false;
  }
  uint64_t tile_of(const Splits& splits) const {
    uint64_t parts = 1;
    for (size_t d = 0; d < problem_.shape.size(); ++d) parts *= splits[d];
    return elements_ / parts;
  }

  ShapePath path_to(uint32_t node) const {
    ShapePath path;
    path.gathered = nodes_[node].splits;
    for (; nodes_[node].parent != kNone; node = nodes_[node].parent)
      path.moves.push_back(nodes_[node].move);
    std::reverse(path.moves.begin(), path.moves.end());
    path.sliced = nodes_[node].splits;
    return path;
  }

  const Problem& problem_;
  const Bound& bound_;
  uint64_t most_moved_;
  uint64_t elements_;
  Splits target_;
  std::vector<uint32_t> factors_;  ///< of the number of ranks
  size_t starts_ = 0;
  std::vector<Node> nodes_;
  std::unordered_map<Splits, size_t, SplitsHash> index_;
  std::priority_queue<Entry> queue_;
};

}  // namespace

Bound::Bound(const Problem& problem)
    : costs_(problem.costs),
      dimensions_(problem.shape.size()),
      ranks_(problem.mesh.ranks()),
      element_bytes_(problem.element_bytes),
      target_(problem.target_elements()) {
  for (uint32_t factor = 1; factor <= ranks_; ++factor)
    if (ranks_ % factor == 0) factors_.push_back(factor);
  gathers_us_ = cheapest_chains(
      [this](uint32_t factor) { return costs_.time_us(gather_messages(factor, ranks_), 0); });
}

template <class Time>
std::vector<double> Bound::cheapest_chains(Time time_us_of) const {
  std::vector<double> chains(ranks_ + 1);
  for (const uint32_t product : factors_) {
    if (product == 1) continue;
    double least = std::numeric_limits<double>::infinity();
    for (const uint32_t factor : factors_)
      if (factor > 1 && product % factor == 0)
        least = std::min(least, chains[product / factor] + time_us_of(factor));
    chains[product] = least;
  }
  return chains;
}

const std::vector<double>& Bound::moves_us(double tile) const {
  const auto known = moves_us_.find(tile);
  if (known != moves_us_.end()) return known->second;
  const double bytes = tile * element_bytes_;
  return moves_us_[tile] = cheapest_chains([&](uint32_t factor) {
           return costs_.time_us(factor - 1, bytes * (1 - 1.0 / factor));
         });
}

double Bound::moves_us(const Splits& missing, double tile) const {
  const std::vector<double>& chains = moves_us(tile);
  double us = 0;
  for (size_t d = 0; d < dimensions_; ++d) us += missing[d] > 1 ? chains[missing[d]] : 0;
  return us;
}

double Bound::gather_bytes_us(double tile) const {
  return (static_cast<double>(target_) - tile) * element_bytes_ / costs_.bytes_per_us;
}

double Bound::us(const Splits& missing, double tile) const {
  const double us = moves_us(missing, tile);
  const auto target = static_cast<double>(target_);
  if (tile >= target) return us;
  return us + gathers_us_[static_cast<size_t>(target / tile)] + gather_bytes_us(tile);
}

double Bound::slicing_us(const Splits& missing, double smallest, double tile) const {
  // Between tiles of the target's size and one end or the other the time of the moves is concave.
  // That of the gathers is linear but for its operations, of which one is enough for a bound.
  const auto target = static_cast<double>(target_);
  double least = std::numeric_limits<double>::infinity();
  for (const double moved : {smallest, tile, std::clamp(target, smallest, tile)}) {
    double us = moves_us(missing, moved);
    if (moved < target) us += costs_.time_us(1, 0) + gather_bytes_us(moved);
    least = std::min(least, us);
  }
  return least;
}

Splits splits_of(const Mesh& mesh, const Layout& layout) {
  Splits splits;
  splits.fill(1);
  for (size_t d = 0; d < layout.dimensions; ++d)
    splits[d] = static_cast<uint32_t>(parts_of(mesh, layout[d]));
  return splits;
}

std::optional<ShapePath> search_shapes(const Problem& problem, const Bound& bound,
                                       uint64_t most_moved) {
  return ShapeSearch(problem, bound, most_moved).run();
}

}  // namespace ina::redistribution
