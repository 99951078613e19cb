// A set of ranks of a job, which may have more than a switch has members (WorkerSet).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "wire/types.h"
#include "wire/worker_set.h"

namespace ina {

/// Ranks below kMaxRanks. 512 bytes: not for the packet path.
class RankSet {
 public:
  /// The empty set.
  RankSet() = default;
  static RankSet of(Rank rank) {
    RankSet set;
    set.insert(rank);
    return set;
  }
  /// The ranks 0..ranks-1.
  static RankSet first(uint32_t ranks) {
    RankSet set;
    for (uint32_t rank = 0; rank < ranks; ++rank) set.insert(Rank{static_cast<uint16_t>(rank)});
    return set;
  }

  bool empty() const { return *this == RankSet(); }
  bool is_single() const { return size() == 1; }
  uint32_t size() const {
    uint32_t ranks = 0;
    for (const uint64_t word : words_) ranks += static_cast<uint32_t>(std::popcount(word));
    return ranks;
  }
  bool contains(Rank rank) const { return (words_[value(rank) / 64] >> value(rank) % 64 & 1) != 0; }
  void insert(Rank rank) { words_[value(rank) / 64] |= uint64_t{1} << value(rank) % 64; }

  RankSet& operator|=(const RankSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
  }
  RankSet& operator&=(const RankSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
    return *this;
  }
  /// Without those of `other`.
  RankSet& operator-=(const RankSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= ~other.words_[i];
    return *this;
  }
  friend RankSet operator|(RankSet a, const RankSet& b) { return a |= b; }
  friend RankSet operator&(RankSet a, const RankSet& b) { return a &= b; }
  friend RankSet operator-(RankSet a, const RankSet& b) { return a -= b; }
  friend bool operator==(const RankSet&, const RankSet&) = default;

  /// Its ranks, in ascending order.
  class Iterator {
   public:
    using value_type = Rank;
    using difference_type = ptrdiff_t;
    Iterator() = default;
    explicit Iterator(const RankSet& set) : set_(&set) { skip(); }
    Rank operator*() const { return Rank{static_cast<uint16_t>(at_)}; }
    Iterator& operator++() {
      ++at_;
      skip();
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }
    bool operator==(std::default_sentinel_t) const { return at_ == kMaxRanks; }

   private:
    void skip() {
      while (at_ < kMaxRanks) {
        const uint64_t left = set_->words_[at_ / 64] >> at_ % 64;
        if (left != 0) {
          at_ += static_cast<uint32_t>(std::countr_zero(left));
          return;
        }
        at_ = (at_ / 64 + 1) * 64;
      }
    }

    const RankSet* set_ = nullptr;
    uint32_t at_ = 0;
  };
  Iterator begin() const { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  std::array<uint64_t, kMaxRanks / 64> words_{};
};

}  // namespace ina
