#include "plans/redistribution/routes.h"

#include <algorithm>
#include <map>

namespace ina::redistribution {
namespace {

uint64_t tile_index(const Mesh& mesh, const Layout& layout, uint32_t rank) {
  uint64_t index = 0;
  for (size_t d = 0; d < layout.dimensions; ++d)
    index = index * parts_of(mesh, layout[d]) + part_index(mesh, layout[d], rank);
  return index;
}

/// The demand of the ranks with certain coordinates for a tile, in one dimension.
struct Demand {
  uint64_t tiles = 0;   ///< that touch it
  uint64_t shared = 0;  ///< sum of the elements that they share with it
};

/// One dimension of an exchange.
class Cut {
 public:
  Cut(const Mesh& mesh, uint64_t size, const Stack& from, const Stack& to, uint32_t from_used)
      : mesh_(mesh), from_(from), to_(to) {
    source_ = size / parts_of(mesh, from);
    target_ = size / parts_of(mesh, to);
    uint64_t free_tiles = 1;
    for (const PrimeId axis : to) {
      is_free_.push_back((from_used >> axis & 1) == 0);
      (is_free_.back() ? free_tiles : choices_) *= mesh.size(axis);
    }
    known_.resize(parts_of(mesh, from) * free_tiles);
  }

  uint64_t own_overlap(uint32_t rank) const {
    return overlap(part_index(mesh_, from_, rank), part_index(mesh_, to_, rank));
  }
  /// The number of source tiles that a rank's target tile touches.
  uint64_t sources(uint32_t rank) const {
    const uint64_t first = part_index(mesh_, to_, rank) * target_;
    return (first + target_ - 1) / source_ - first / source_ + 1;
  }
  /// The demand for a rank's source tile, by all ranks with its coordinates on free axes.
  Demand demand(uint32_t rank) {
    // Many ranks have the same source tile and the same coordinates on free axes.
    Demand& known = known_[place(rank)];
    if (known.tiles == 0) known = count(rank);
    return known;
  }

 private:
  size_t place(uint32_t rank) const {
    uint64_t place = part_index(mesh_, from_, rank);
    for (size_t i = 0; i < to_.size; ++i)
      if (is_free_[i]) place = place * mesh_.size(to_[i]) + mesh_.coordinate(rank, to_[i]);
    return place;
  }
  Demand count(uint32_t rank) const {
    const uint64_t source = part_index(mesh_, from_, rank);
    const uint64_t first = source * source_ / target_;
    const uint64_t last = ((source + 1) * source_ - 1) / target_;
    Demand sum;
    const auto add = [&](uint64_t target) {
      const uint64_t shared = overlap(source, target);
      sum.tiles += shared > 0 ? 1 : 0;
      sum.shared += shared;
    };
    if (last - first + 1 <= choices_) {
      for (uint64_t target = first; target <= last; ++target)
        if (is_asked_by_peers(rank, target)) add(target);
    } else {
      for (uint64_t choice = 0; choice < choices_; ++choice) add(target_of(rank, choice));
    }
    return sum;
  }
  uint64_t overlap(uint64_t source, uint64_t target) const {
    const uint64_t low = std::max(source * source_, target * target_);
    const uint64_t high = std::min((source + 1) * source_, (target + 1) * target_);
    return high > low ? high - low : 0;
  }
  bool is_asked_by_peers(uint32_t rank, uint64_t target) const {
    for (size_t i = to_.size; i-- > 0; target /= mesh_.size(to_[i]))
      if (is_free_[i] && target % mesh_.size(to_[i]) != mesh_.coordinate(rank, to_[i]))
        return false;
    return true;
  }
  /// The target tile of a peer, by the number of its coordinates on the axes that are not free.
  uint64_t target_of(uint32_t rank, uint64_t choice) const {
    uint64_t target = 0;
    for (size_t i = 0; i < to_.size; ++i) {
      const uint32_t size = mesh_.size(to_[i]);
      uint64_t coordinate = mesh_.coordinate(rank, to_[i]);
      if (!is_free_[i]) {
        coordinate = choice % size;
        choice /= size;
      }
      target = target * size + coordinate;
    }
    return target;
  }

  const Mesh& mesh_;
  const Stack& from_;
  const Stack& to_;
  uint64_t source_;  ///< elements of a tile
  uint64_t target_;
  std::vector<bool> is_free_;
  uint64_t choices_ = 1;  ///< coordinates of `to` on axes that are not free
  std::vector<Demand> known_;
};

}  // namespace

std::vector<uint32_t> permutation(const Mesh& mesh, const Layout& from, const Layout& to) {
  constexpr uint32_t kNobody = ~uint32_t{0};
  std::vector<uint32_t> sources(mesh.ranks(), kNobody);
  std::map<uint64_t, std::vector<uint32_t>> senders;  // by tile: has it and no use for it
  for (uint32_t rank = mesh.ranks(); rank-- > 0;) {
    const uint64_t had = tile_index(mesh, from, rank);
    // The numbers of tiles mean the same in both layouts, which cut the array alike.
    if (had == tile_index(mesh, to, rank))
      sources[rank] = rank;
    else
      senders[had].push_back(rank);
  }
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
    if (sources[rank] != kNobody) continue;
    // As many ranks want a tile as have it: all tiles have the same number of replicas in both.
    auto& candidates = senders[tile_index(mesh, to, rank)];
    sources[rank] = candidates.back();
    candidates.pop_back();
  }
  return sources;
}

uint32_t holder(const Mesh& mesh, const Layout& from, const std::vector<uint64_t>& parts,
                uint32_t receiver) {
  uint32_t rank = receiver;
  for (size_t d = 0; d < from.dimensions; ++d) {
    uint64_t index = parts[d];
    for (size_t i = from[d].size; i-- > 0;) {
      const PrimeAxis& axis = mesh.primes()[from[d][i]];
      rank -= mesh.coordinate(receiver, from[d][i]) * axis.stride;
      rank += static_cast<uint32_t>(index % axis.size) * axis.stride;
      index /= axis.size;
    }
  }
  return rank;
}

Load exchange_load(const Mesh& mesh, const Shape& shape, const Layout& from, const Layout& to) {
  const uint32_t from_used = from.used();
  std::vector<Cut> cuts;
  for (size_t d = 0; d < shape.size(); ++d)
    cuts.emplace_back(mesh, shape[d], from[d], to[d], from_used);
  // Axes that only `from` uses: their ranks want the same tile of a sender.
  uint64_t replicas = 1;
  for (PrimeId axis = 0; axis < mesh.prime_count(); ++axis)
    if ((from_used & ~to.used()) >> axis & 1) replicas *= mesh.size(axis);
  const uint64_t target = elements_of(tile_shape(mesh, to, shape));
  Load most;
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
    uint64_t own = 1, sources = 1, takers = replicas, sent = replicas;
    for (Cut& cut : cuts) {
      own *= cut.own_overlap(rank);
      sources *= cut.sources(rank);
      const Demand demand = cut.demand(rank);
      takers *= demand.tiles;
      sent *= demand.shared;
    }
    const uint64_t self = own > 0 ? 1 : 0;
    most.sent_elements = std::max(most.sent_elements, sent - own);
    most.received_elements = std::max(most.received_elements, target - own);
    most.messages =
        std::max(most.messages, static_cast<uint32_t>(std::max(sources, takers) - self));
  }
  return most;
}

}  // namespace ina::redistribution
