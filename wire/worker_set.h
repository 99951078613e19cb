// A set of a job's workers: whose contributions a payload holds, who is late, who is to get a
// message. On the wire it is the worker bitmap (docs/protocol.md).
#pragma once

#include <bit>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "wire/types.h"

namespace ina {

/// One word, of which bit r stands for rank r; so it costs no more than the word. Ranks given to it
/// must be below kMaxWorkers, which is not checked: a shift by more is undefined. kFallbackRank is
/// in no set.
class WorkerSet {
 public:
  /// The empty set.
  constexpr WorkerSet() = default;
  static constexpr WorkerSet of(Rank rank) { return WorkerSet(uint64_t{1} << value(rank)); }
  /// The ranks 0..workers-1; `workers` in 1..kMaxWorkers.
  static constexpr WorkerSet first(uint32_t workers) {
    return WorkerSet(~uint64_t{0} >> (kMaxWorkers - workers));
  }

  /// The worker bitmap, for the wire and for texts.
  static constexpr WorkerSet from_bits(uint64_t bits) { return WorkerSet(bits); }
  constexpr uint64_t bits() const { return bits_; }

  constexpr bool empty() const { return bits_ == 0; }
  /// True for a set of one.
  constexpr bool is_single() const { return std::has_single_bit(bits_); }
  constexpr uint32_t size() const { return static_cast<uint32_t>(std::popcount(bits_)); }
  constexpr bool contains(Rank rank) const { return intersects(of(rank)); }
  /// True if some worker is in both.
  constexpr bool intersects(WorkerSet other) const { return (bits_ & other.bits_) != 0; }
  /// True if all of `other` are in this set.
  constexpr bool covers(WorkerSet other) const { return (other - *this).empty(); }
  friend constexpr bool operator==(WorkerSet, WorkerSet) = default;

  constexpr void insert(Rank rank) { *this |= of(rank); }
  constexpr void erase(Rank rank) { *this -= of(rank); }
  /// Inserts or erases it.
  constexpr void set(Rank rank, bool is_in) {
    *this = (*this - of(rank)) | (is_in ? of(rank) : WorkerSet());
  }

  constexpr WorkerSet& operator|=(WorkerSet other) {
    bits_ |= other.bits_;
    return *this;
  }
  constexpr WorkerSet& operator&=(WorkerSet other) {
    bits_ &= other.bits_;
    return *this;
  }
  /// Without those of `other`.
  constexpr WorkerSet& operator-=(WorkerSet other) {
    bits_ &= ~other.bits_;
    return *this;
  }
  friend constexpr WorkerSet operator|(WorkerSet a, WorkerSet b) { return a |= b; }
  friend constexpr WorkerSet operator&(WorkerSet a, WorkerSet b) { return a &= b; }
  friend constexpr WorkerSet operator-(WorkerSet a, WorkerSet b) { return a -= b; }

  /// Its ranks, in ascending order. The set may be changed meanwhile: the iterator has its own.
  class Iterator {
   public:
    constexpr explicit Iterator(uint64_t left) : left_(left) {}
    constexpr Rank operator*() const { return Rank{static_cast<uint8_t>(std::countr_zero(left_))}; }
    constexpr Iterator& operator++() {
      left_ &= left_ - 1;
      return *this;
    }
    constexpr bool operator==(std::default_sentinel_t) const { return left_ == 0; }

   private:
    uint64_t left_;
  };
  constexpr Iterator begin() const { return Iterator(bits_); }
  constexpr std::default_sentinel_t end() const { return {}; }

 private:
  constexpr explicit WorkerSet(uint64_t bits) : bits_(bits) {}

  uint64_t bits_ = 0;
};
// Messages in shared memory have one, and lanes have rings of them.
static_assert(sizeof(WorkerSet) == 8 && std::is_trivially_copyable_v<WorkerSet>);

}  // namespace ina
