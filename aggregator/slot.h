// An aggregator slot: the metadata of one fragment under summation, in one cache line. The value
// row of accumulators lies apart, so that a look-up does not pull values into the cache.
#pragma once

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
  uint32_t row = 0;          ///< index of the value row; one that leaves as a PART is exchanged
  uint32_t target : 24 = 0;  ///< destination of the result: wire::Message::target
  Rank first_rank : 8 {};    ///< the worker that installed the slot: named when signatures differ
  JobIndex job = 0;
  uint16_t elements = 0;
  uint16_t flags = 0;     ///< of the finished result; kFlagBare: marks alone have come
  uint16_t receiver = 0;  ///< of the result: wire::Message::receiver
  DType dtype{};
  Op op : 4 {};
  Collective collective : 4 {};
  uint8_t priority = 0;
  SlotState state = SlotState::kEmpty;

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
};
static_assert(sizeof(Slot) == 64);

}  // namespace ina::aggregator
