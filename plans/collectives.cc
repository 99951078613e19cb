#include "plans/collectives.h"

#include "wire/fingerprint.h"

namespace ina::scheduler {

namespace {

using Numbers = std::span<const uint64_t>;

uint16_t role(size_t rank) {
  return static_cast<uint16_t>(1 + rank);
}

uint16_t fingerprint_of(Collective collective, Numbers counts, Rank root = {},
                        std::span<const int32_t> destinations = {}) {
  uint64_t hash = wire::add_to_hash(wire::kHashStart, counts.size());
  for (const uint64_t count : counts) hash = wire::add_to_hash(hash, count);
  for (const int32_t destination : destinations)
    hash = wire::add_to_hash(hash, static_cast<uint64_t>(destination));
  return wire::blocks_fingerprint(collective, root, hash);
}

/// A block from one rank to one or all, to be cut into pieces.
struct Flow {
  Block block;          ///< as a whole
  uint64_t cut_so_far;  ///< elements
};

/// Pieces of all flows in turns, in the flows' order.
std::vector<Block> take_turns(std::vector<Flow> flows, uint32_t elements_per_fragment) {
  uint64_t fragments = 0;
  for (const Flow& flow : flows)
    fragments += (flow.block.elements + elements_per_fragment - 1) / elements_per_fragment;
  const uint64_t most =
      std::max<uint64_t>(kTurnFragments, (fragments + kMostPieces - 1) / kMostPieces) *
      elements_per_fragment;
  std::vector<Block> blocks;
  for (bool more = true; more;) {
    more = false;
    for (Flow& flow : flows) {
      const uint64_t elements = std::min(most, flow.block.elements - flow.cut_so_far);
      if (elements == 0) continue;
      Block piece = flow.block;
      piece.elements = elements;
      piece.send_offset += flow.cut_so_far;
      piece.receive_offset += flow.cut_so_far;
      blocks.push_back(piece);
      flow.cut_so_far += elements;
      more = more || flow.cut_so_far < flow.block.elements;
    }
  }
  return blocks;
}

}  // namespace

BlockTable reduce_blocks(Rank root, uint64_t count, uint32_t elements_per_fragment) {
  const Block block{.elements = count, .receiver = role(value(root))};
  return {
      {&block, 1}, elements_per_fragment, fingerprint_of(Collective::kReduce, {&count, 1}, root)};
}

BlockTable broadcast_blocks(Rank root, uint64_t count, uint32_t elements_per_fragment) {
  const Block block{.elements = count, .source = role(value(root))};
  return {{&block, 1},
          elements_per_fragment,
          fingerprint_of(Collective::kBroadcast, {&count, 1}, root)};
}

BlockTable reduce_scatter_blocks(Numbers counts, uint32_t elements_per_fragment) {
  std::vector<Block> blocks;
  uint64_t first = 0;
  for (size_t rank = 0; rank < counts.size(); first += counts[rank++])
    blocks.push_back({.elements = counts[rank], .send_offset = first, .receiver = role(rank)});
  return {blocks, elements_per_fragment, fingerprint_of(Collective::kReduceScatter, counts)};
}

BlockTable all_gather_blocks(Numbers counts, Numbers displacements,
                             uint32_t elements_per_fragment) {
  std::vector<Flow> flows;
  for (size_t rank = 0; rank < counts.size(); ++rank)
    flows.push_back(
        {{.elements = counts[rank], .receive_offset = displacements[rank], .source = role(rank)},
         0});
  return {take_turns(std::move(flows), elements_per_fragment), elements_per_fragment,
          fingerprint_of(Collective::kAllGather, counts)};
}

BlockTable gather_blocks(Rank root, Numbers counts, Numbers displacements,
                         uint32_t elements_per_fragment) {
  std::vector<Flow> flows;
  for (size_t rank = 0; rank < counts.size(); ++rank)
    if (rank != value(root))
      flows.push_back({{.elements = counts[rank],
                        .receive_offset = displacements[rank],
                        .source = role(rank),
                        .receiver = role(value(root))},
                       0});
  return {take_turns(std::move(flows), elements_per_fragment), elements_per_fragment,
          fingerprint_of(Collective::kGather, counts, root)};
}

BlockTable scatter_blocks(Rank root, Numbers counts, Numbers displacements,
                          uint32_t elements_per_fragment) {
  std::vector<Flow> flows;
  for (size_t rank = 0; rank < counts.size(); ++rank)
    if (rank != value(root))
      flows.push_back({{.elements = counts[rank],
                        .send_offset = displacements[rank],
                        .source = role(value(root)),
                        .receiver = role(rank)},
                       0});
  return {take_turns(std::move(flows), elements_per_fragment), elements_per_fragment,
          fingerprint_of(Collective::kScatter, counts, root)};
}

BlockTable all_to_all_blocks(Numbers counts, Numbers send_displacements,
                             Numbers receive_displacements, uint32_t elements_per_fragment) {
  const size_t workers = send_displacements.size();
  std::vector<Flow> flows;
  // In each step every rank sends to one and receives from one.
  for (size_t step = 1; step < workers; ++step)
    for (size_t source = 0; source < workers; ++source) {
      const size_t destination = (source + step) % workers;
      flows.push_back({{.elements = counts[source * workers + destination],
                        .send_offset = send_displacements[destination],
                        .receive_offset = receive_displacements[source],
                        .source = role(source),
                        .receiver = role(destination)},
                       0});
    }
  return {take_turns(std::move(flows), elements_per_fragment), elements_per_fragment,
          fingerprint_of(Collective::kAllToAll, counts)};
}

BlockTable permute_blocks(std::span<const int32_t> destinations, Numbers counts,
                          uint32_t elements_per_fragment) {
  std::vector<Flow> flows;
  for (size_t source = 0; source < counts.size(); ++source) {
    const int32_t destination = destinations[source];
    if (destination == kNobody || destination == static_cast<int32_t>(source)) continue;
    flows.push_back({{.elements = counts[source],
                      .source = role(source),
                      .receiver = role(static_cast<size_t>(destination))},
                     0});
  }
  return {take_turns(std::move(flows), elements_per_fragment), elements_per_fragment,
          fingerprint_of(Collective::kPermute, counts, {}, destinations)};
}

BlockTable sizes_blocks(uint32_t workers, uint64_t words, uint16_t fingerprint,
                        uint32_t elements_per_fragment) {
  std::vector<Block> blocks;
  for (size_t rank = 0; rank < workers; ++rank)
    blocks.push_back({.elements = words, .receive_offset = rank * words, .source = role(rank)});
  return {blocks, elements_per_fragment, fingerprint};
}

BlockTable interleaved_blocks(std::span<const Block> blocks, uint32_t elements_per_fragment,
                              uint16_t fingerprint) {
  std::vector<Flow> flows;
  for (const Block& block : blocks) flows.push_back({block, 0});
  return {take_turns(std::move(flows), elements_per_fragment), elements_per_fragment, fingerprint};
}

void pack(Numbers counts, std::span<uint64_t> displacements) {
  uint64_t first = 0;
  for (size_t rank = 0; rank < counts.size(); first += counts[rank++]) displacements[rank] = first;
}

// ---- tables that are used again

bool TableCache::find(Numbers key) {
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return std::ranges::equal(entry.key, key); });
  if (found == entries_.end()) return false;
  entries_.splice(entries_.begin(), entries_, found);
  return true;
}

void TableCache::add(Numbers key, std::shared_ptr<const BlockTable> table) {
  const size_t blocks = table->blocks().size();
  while (!entries_.empty() && (entries_.size() == kMostTables || blocks_ + blocks > kMostBlocks)) {
    blocks_ -= entries_.back().table->blocks().size();
    entries_.pop_back();
  }
  entries_.push_front({{key.begin(), key.end()}, std::move(table)});
  blocks_ += blocks;
}

}  // namespace ina::scheduler
