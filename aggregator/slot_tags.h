// The fragment of each slot, as tags side by side. One comparison finds a fragment among its
// choices, or an empty choice. The slots themselves are a cache line each.
#pragma once

#include <emmintrin.h>

#include <bit>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "aggregator/slot.h"
#include "scheduler/policy.h"

namespace ina::aggregator {

/// The tags of an array of slots that is divided into sets of `ways` neighbours, a power of two. A
/// fragment may lie in any slot of the set that its hash names. The last set is smaller if the
/// slots do not divide. A tag is a hint, because two fragments may have the same: the slot says
/// which of them it is.
class SlotTags {
 public:
  static constexpr uint32_t kEmpty = 0;

  /// `ways` 1: there is nothing to choose, and there are no tags.
  SlotTags(uint32_t slots, uint32_t ways,
           std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : ways_(ways), lines_(ways == 1 ? 0 : slots / kTagsPerLine + 1, memory) {
    // Slots that do not exist are never empty, nor anybody's.
    const uint64_t room = uint64_t{kTagsPerLine} * lines_.size();
    for (uint64_t slot = slots; slot < room; ++slot) set(static_cast<uint32_t>(slot), kNone);
  }

  /// Odd, where the others are even.
  static uint32_t tag_of(JobIndex job, uint64_t number) {
    return (2 * static_cast<uint32_t>(number) + job * 0x9e3779b1u) | 1;
  }

  void set(uint32_t slot, uint32_t tag) {
    lines_[slot / kTagsPerLine].tag[slot % kTagsPerLine] = tag;
  }

  uint32_t ways() const { return ways_; }
  /// First slot of the set in which `slot` lies.
  uint32_t set_of(uint32_t slot) const { return slot & ~(ways_ - 1); }

  /// Bit i: slot i of the set of `first` has the tag.
  uint32_t matches(uint32_t first, uint32_t tag) const {
    switch (ways_) {
      case 2:
        return matches<2>(data(), first, tag);
      case 4:
        return matches<4>(data(), first, tag);
      case 8:
        return matches<8>(data(), first, tag);
      default:
        return 1;
    }
  }
  /// matches() for kWays ways, 2 to 8. `tags`: data(). For loops over many fragments.
  template <uint32_t kWays>
  static uint32_t matches(const uint32_t* tags, uint32_t first, uint32_t tag) {
    const uint32_t* const set = tags + (first & ~(kWays - 1));
    const __m128i wanted = _mm_set1_epi32(static_cast<int>(tag));
    if constexpr (kWays == 2)
      return mask(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(set)), wanted) & 3;
    uint32_t found = mask(_mm_load_si128(reinterpret_cast<const __m128i*>(set)), wanted);
    if constexpr (kWays == 8)
      found |= mask(_mm_load_si128(reinterpret_cast<const __m128i*>(set + 4)), wanted) << 4;
    return found;
  }
  const uint32_t* data() const { return lines_.empty() ? nullptr : lines_[0].tag; }

  /// An empty slot of the set of `first`, that one before others; otherwise `first`.
  uint32_t empty_or(uint32_t first) const {
    const uint32_t empty = matches(first, kEmpty);
    if (empty == 0) return first;
    const uint32_t set = set_of(first);
    const uint32_t from = first - set;
    const uint32_t turned = empty >> from | empty << (ways_ - from);
    return set + ((static_cast<uint32_t>(std::countr_zero(turned)) + from) & (ways_ - 1));
  }

 private:
  static constexpr uint32_t kNone = 2;
  static constexpr uint32_t kTagsPerLine = 16;
  static_assert(scheduler::kMaxWays == 8);
  struct alignas(64) Line {
    uint32_t tag[kTagsPerLine] = {};
  };

  static uint32_t mask(__m128i tags, __m128i wanted) {
    return static_cast<uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(tags, wanted))));
  }

  uint32_t ways_;
  std::pmr::vector<Line> lines_;
};

}  // namespace ina::aggregator
