// The last W fragments that are complete and the next W, each with what is known of it. The numbers
// `low` <= `next` divide them: complete, under way or complete out of order, and still to be sent.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fragments/operation.h"
#include "wire/types.h"

namespace ina::client {

struct alignas(64) Fragment {
  enum class State : uint8_t { kUnsent, kSent, kOverdue, kDone };

  /// Until done. If it is `bare`, until the operation is complete.
  Operation* operation = nullptr;
  const std::byte* result = nullptr;  ///< once done, while it is kept
  Nanos sent_at = 0;
  union {
    Nanos deadline = 0;  ///< until done: when its result is asked for
    Nanos done_at;       ///< once done: when its result was taken
  };
  uint64_t operation_elements = 0;  ///< signature, for HAVE
  uint32_t operation_number = 0;
  uint32_t epoch = 0;  ///< in which it was sent
  uint32_t bound = 0;  ///< 1 + instance of the fallback whose result it waits for; 0: anybody's
  uint32_t target : 24 = 0;  ///< of the result, for HAVE
  uint32_t flags : 4 = 0;    ///< of the result, for HAVE
  bool mark : 1 = false;     ///< this worker adds nothing to it: it takes no place in the window
  bool bare : 1 = false;     ///< done without bytes, which were for others
  bool to_one : 1 = false;   ///< this worker alone gets its bytes
  bool prompt : 1 = false;   ///< the switch was told not to keep its bare result
  uint16_t elements = 0;
  DType dtype{};
  Op op{};
  Collective collective{};
  State state = State::kUnsent;
  uint8_t timeouts = 0;
  bool queried : 1 = false;
  /// Left its slot because a worker is slow: takes no place in the window.
  bool parked : 1 = false;
  /// Parked here and passed on to the fallback, as later parts are.
  bool all_to_fallback : 1 = false;
  /// Certainly lost, or gone round by the fallback: no need for patience.
  bool overtaken : 1 = false;
  bool again : 1 = false;       ///< overdue: the switch asks for it
  bool clocked : 1 = false;     ///< a result made room for it
  bool waited : 1 = false;      ///< longer than its time-out, while earlier results came
  bool asked_once : 1 = false;  ///< once done: its result came after a single question

  bool is_done() const { return state == State::kDone; }
  /// Sent, and without a result.
  bool awaits_result() const { return state == State::kSent || state == State::kOverdue; }
};
static_assert(sizeof(Fragment) == 64);

class FragmentRing {
 public:
  explicit FragmentRing(uint32_t window) : ring_(2 * size_t{window}) {}

  /// `seq` is in [low() - W, low() + W).
  Fragment& operator[](Seq seq) { return ring_[seq.value % ring_.size()]; }
  const Fragment& operator[](Seq seq) const { return ring_[seq.value % ring_.size()]; }
  size_t size() const { return ring_.size(); }

  Seq low() const { return low_; }                  ///< oldest fragment without a result
  Seq next() const { return next_; }                ///< next fragment to be sent
  Seq results_end() const { return results_end_; }  ///< 1 + highest fragment with a result
  /// The number that a message carries.
  Seq extended(uint32_t number) const { return extend(number, low_); }
  /// At or above low(), and not still to be sent.
  bool is_started(Seq seq) const { return seq >= low_ && seq < next_; }
  /// Sent, and without a result.
  bool awaits(Seq seq) const { return is_started(seq) && (*this)[seq].awaits_result(); }
  /// Its result has been taken.
  bool has_result(Seq seq) const { return seq < low_ || (seq < next_ && (*this)[seq].is_done()); }

  /// The next fragment is to be sent.
  Fragment& start_next() {
    Fragment& fragment = (*this)[next_];
    ++next_;
    return fragment = Fragment{};
  }
  /// A fragment at or above results_end() has its result.
  void extend_results(Seq seq) { results_end_ = seq + 1; }
  /// Moves low() up, over the fragments that are done.
  void pass_done() {
    while (low_ < next_ && (*this)[low_].is_done()) ++low_;
  }

  /// The operation has ended, and its buffers are the user's again.
  void forget(const Operation& operation) {
    const Seq end = operation.end();
    const uint64_t count = std::min<uint64_t>(operation.fragments, ring_.size());
    for (Seq seq = end - count; seq < end; ++seq)
      if ((*this)[seq].operation == &operation) (*this)[seq].operation = nullptr;
  }
  /// The job has lost its result buffers.
  void forget_targets() {
    for (Fragment& fragment : ring_) fragment.target = 0;
  }

 private:
  std::vector<Fragment> ring_;  ///< at seq mod 2W
  Seq low_;
  Seq next_;
  Seq results_end_;
};

}  // namespace ina::client
