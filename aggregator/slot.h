// An aggregator slot: the metadata of one fragment under summation, in one cache line. The value
// row of accumulators lies apart, so that a look-up does not pull values into the cache.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>

#include "aggregator/packet.h"
#include "wire/message.h"

namespace ina::aggregator {

enum class SlotState : uint8_t {
  kEmpty = 0,
  kFilling,   ///< holds some contributions
  kComplete,  ///< all contributions came; the result is in the job's result ring (pools only)
  kAnswered,  ///< the fallback gave the result (pools only)
  kFrozen,    ///< the sum went to the fallback and waits for its acknowledgement
              ///< (held_until_acknowledged)
};

/// As users see it, e.g. "filling".
inline const char* name(SlotState state) {
  static constexpr const char* kNames[] = {"empty", "filling", "complete", "answered", "frozen"};
  return kNames[static_cast<size_t>(state)];
}

struct alignas(64) Slot {
  Seq seq{};
  WorkerSet bits = {};  ///< workers whose contributions the row holds
  /// Workers whose contributions have gone to the fallback already. When all others are here, the
  /// sum follows them without a timeout. A hint: the fallback counts for itself.
  WorkerSet at_fallback = {};
  uint64_t operation_elements = 0;
  Nanos first_arrival = 0;
  uint32_t operation = 0;
  uint32_t row = 0;  ///< index of the value row; one that leaves as a PART is exchanged
  // As wire::Message has them, so that a contribution is compared in words: expects().
  uint16_t elements = 0;
  uint16_t flags = 0;  ///< of the finished result; kFlagBare: marks alone have come
  SlotState state = SlotState::kEmpty;
  DType dtype{};
  Op op{};
  Collective collective{};
  uint16_t receiver : 13 = 0;  ///< of the result: wire::Message::receiver
  JobIndex job = 0;
  uint8_t priority = 0;
  uint32_t target : 24 = 0;  ///< destination of the result: wire::Message::target

  /// True if a sum's contribution has the signature and the elements of those that are here.
  bool expects(const wire::Message& message) const {
    return operation_elements == message.operation_elements && operation == message.operation &&
           ((word(this, kShapeAt) ^ word(&message, kMessageShapeAt)) & kShape) == 0 &&
           ((word(this, kPlaceAt) ^ word(&message, kMessagePlaceAt)) & kPlace) == 0;
  }
  /// A worker whose contribution is here: it is named when signatures differ.
  Rank any_rank() const { return bits.empty() ? Rank{} : *bits.begin(); }
  wire::Signature signature() const {
    return {operation_elements, operation, dtype, op, collective, target, receiver};
  }
  void set_signature(const wire::Signature& s) {
    operation_elements = s.elements;
    operation = s.operation;
    dtype = s.dtype;
    op = s.op;
    collective = s.collective;
    target = s.target & wire::kMaxTargetUnits;
    receiver = s.receiver;
  }
  /// True for a fragment that one worker's payload moves through, rather than a sum.
  bool moves() const {
    return is_moved(collective) && (elements != 0 || (flags & wire::kFlagBare) != 0);
  }
  /// Contributions that it holds; marks are none.
  uint32_t contributions() const { return moves() ? elements != 0 : bits.size(); }

 private:
  static uint64_t word(const void* object, size_t at) {
    uint64_t word;
    std::memcpy(&word, static_cast<const std::byte*>(object) + at, sizeof word);
    return word;
  }
  static constexpr size_t kShapeAt = 48, kPlaceAt = 56;  ///< elements to collective; the rest
  static constexpr size_t kMessageShapeAt = 32, kMessagePlaceAt = 40;
  static constexpr uint64_t kShape = 0xffffff000000ffff;  ///< all but flags and state, or type
  static constexpr uint64_t kPlace = 0xffffff0000001fff;  ///< receiver and target
  static_assert(std::endian::native == std::endian::little);
  static_assert(offsetof(wire::Message, elements) == kMessageShapeAt &&
                offsetof(wire::Message, dtype) == kMessageShapeAt + 5 &&
                offsetof(wire::Message, op) == kMessageShapeAt + 6 &&
                offsetof(wire::Message, collective) == kMessageShapeAt + 7 &&
                offsetof(wire::Message, priority) == kMessagePlaceAt + 4);
};
static_assert(sizeof(Slot) == 64 && offsetof(Slot, elements) == 48 &&
              offsetof(Slot, priority) == 60);

}  // namespace ina::aggregator
