// The blocks of each collective (plans/blocks.h), and tables of them that are used again. Pure.
//
// Counts and displacements are in elements, by rank. Counts must be the same on all ranks;
// displacements are each rank's own: where the block of another rank lies in its buffer.
//
// Where several ranks send to several, they take turns. A block is cut into pieces of
// kTurnFragments fragments (more if there were too many pieces). Each rank sends one piece in turn,
// so that all links are busy at a time. A block that a rank would send to itself alone is left out:
// its caller copies it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "plans/blocks.h"

namespace ina::scheduler {

inline constexpr uint32_t kTurnFragments = 16;
/// How many of `pieces`, of so many fragments each, are a turn.
constexpr uint64_t pieces_in_turn(uint64_t pieces, uint64_t fragments) {
  return std::clamp<uint64_t>(kTurnFragments / std::max<uint64_t>(fragments, 1), 1, pieces);
}
/// Pieces of all blocks together, beside one for each block.
inline constexpr uint64_t kMostPieces = uint64_t{1} << 16;
/// In `destinations`: it sends to nobody.
inline constexpr int32_t kNobody = -1;

/// One block, of which all ranks have a contribution, for `root`.
BlockTable reduce_blocks(Rank root, uint64_t count, uint32_t elements_per_fragment);
/// One block from `root` to all, itself included.
BlockTable broadcast_blocks(Rank root, uint64_t count, uint32_t elements_per_fragment);
/// A block for each rank, one after the other in `send`; each is received at the start of `recv`.
BlockTable reduce_scatter_blocks(std::span<const uint64_t> counts, uint32_t elements_per_fragment);
/// From each rank to all, itself included.
BlockTable all_gather_blocks(std::span<const uint64_t> counts,
                             std::span<const uint64_t> displacements,
                             uint32_t elements_per_fragment);
/// From each other rank to `root`.
BlockTable gather_blocks(Rank root, std::span<const uint64_t> counts,
                         std::span<const uint64_t> displacements, uint32_t elements_per_fragment);
/// From `root` to each other rank.
BlockTable scatter_blocks(Rank root, std::span<const uint64_t> counts,
                          std::span<const uint64_t> displacements, uint32_t elements_per_fragment);
/// From each rank to each other one. `counts`: those of rank s for rank d at s * workers + d.
BlockTable all_to_all_blocks(std::span<const uint64_t> counts,
                             std::span<const uint64_t> send_displacements,
                             std::span<const uint64_t> receive_displacements,
                             uint32_t elements_per_fragment);
/// counts[s] elements from each rank s to destinations[s], which is kNobody or a rank to which no
/// other one sends.
BlockTable permute_blocks(std::span<const int32_t> destinations, std::span<const uint64_t> counts,
                          uint32_t elements_per_fragment);
/// An all-gather of `words` 64-bit numbers of each of `workers`, told apart from others by
/// `fingerprint` (wire/fingerprint.h).
BlockTable sizes_blocks(uint32_t workers, uint64_t words, uint16_t fingerprint,
                        uint32_t elements_per_fragment);

/// Any blocks, of which all take turns in their order.
BlockTable interleaved_blocks(std::span<const Block> blocks, uint32_t elements_per_fragment,
                              uint16_t fingerprint);

/// Displacements of blocks that lie one after the other.
void pack(std::span<const uint64_t> counts, std::span<uint64_t> displacements);

/// Tables made before, by their input. Nothing is allocated for one that exists.
class TableCache {
 public:
  static constexpr size_t kMostTables = 64;
  /// The most blocks of all tables together; more only if one table alone has more.
  static constexpr size_t kMostBlocks = size_t{1} << 18;

  /// `key`: numbers that tell tables apart. `make()` gives the BlockTable.
  template <class Make>
  const std::shared_ptr<const BlockTable>& find_or_make(std::span<const uint64_t> key,
                                                        Make&& make) {
    if (!find(key)) add(key, std::make_shared<const BlockTable>(make()));
    return entries_.front().table;
  }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::vector<uint64_t> key;
    std::shared_ptr<const BlockTable> table;
  };
  /// If it is there, it is the first of entries_ afterwards.
  bool find(std::span<const uint64_t> key);
  void add(std::span<const uint64_t> key, std::shared_ptr<const BlockTable> table);

  std::list<Entry> entries_;  ///< the last used first
  size_t blocks_ = 0;         ///< of all tables
};

}  // namespace ina::scheduler
