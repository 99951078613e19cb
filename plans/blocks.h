// The source, the destination and the place of each part of an operation: a collective is first cut
// into a table of blocks, and then its blocks are cut into fragments. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/message.h"

namespace ina::scheduler {

/// Neighbouring elements with the same roles. All ranks must have the same elements, sources and
/// receivers; the offsets are each rank's own, and count only where it has that role.
struct Block {
  uint64_t elements = 0;
  uint64_t send_offset = 0;     ///< in elements, within a source's `send`
  uint64_t receive_offset = 0;  ///< in elements, within a receiver's `recv`
  uint16_t source = 0;          ///< 1 + rank; 0: all contribute (sums)
  uint16_t receiver = 0;        ///< 1 + rank; 0: all
};

/// Blocks in the order in which their fragments are numbered. Made once, and used by any number of
/// operations.
class BlockTable {
 public:
  /// Where a fragment lies.
  struct Place {
    const Block* block;
    uint64_t first;     ///< element within the block
    uint16_t elements;  ///< of the fragment
  };

  /// Blocks without elements are left out. `fingerprint`: of root and sizes; all ranks must have
  /// the same (wire::blocks_bits()).
  BlockTable(std::span<const Block> blocks, uint32_t elements_per_fragment, uint16_t fingerprint)
      : elements_per_fragment_(elements_per_fragment), fingerprint_(fingerprint) {
    blocks_.reserve(blocks.size());
    ends_.reserve(blocks.size());
    for (const Block& block : blocks) {
      if (block.elements == 0) continue;
      blocks_.push_back(block);
      elements_ += block.elements;
      fragments_ += (block.elements + elements_per_fragment - 1) / elements_per_fragment;
      ends_.push_back(fragments_);
    }
  }

  uint64_t elements() const { return elements_; }
  /// 0: there are no elements.
  uint64_t fragments() const { return fragments_; }
  uint32_t elements_per_fragment() const { return elements_per_fragment_; }
  uint16_t fingerprint() const { return fingerprint_; }
  std::span<const Block> blocks() const { return blocks_; }

  /// `fragment` < fragments().
  Place place_of(uint64_t fragment) const {
    const size_t at = index_of(fragment);
    const uint64_t first = (fragment - (at == 0 ? 0 : ends_[at - 1])) * elements_per_fragment_;
    return {&blocks_[at], first,
            static_cast<uint16_t>(
                std::min<uint64_t>(elements_per_fragment_, blocks_[at].elements - first))};
  }
  /// 1 + the last fragment, from this one on, that `rank` adds nothing to; the fragment itself if
  /// it does.
  uint64_t end_of_marks(uint64_t fragment, Rank rank) const {
    if (fragment >= fragments_) return fragment;
    for (size_t at = index_of(fragment); at < blocks_.size(); ++at) {
      if (has_role(blocks_[at].source, rank)) return fragment;
      fragment = ends_[at];
    }
    return fragment;
  }

 private:
  size_t index_of(uint64_t fragment) const {
    return static_cast<size_t>(std::ranges::upper_bound(ends_, fragment) - ends_.begin());
  }

  uint32_t elements_per_fragment_;
  uint16_t fingerprint_;
  uint64_t elements_ = 0;
  uint64_t fragments_ = 0;
  std::vector<Block> blocks_;
  std::vector<uint64_t> ends_;  ///< 1 + the last fragment of each block
};

}  // namespace ina::scheduler
