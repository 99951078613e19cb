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

struct alignas(64) Slot {
  Seq seq{};
  Bitmap bits = 0;  ///< workers whose contributions the row holds
  /// Workers whose contributions have gone to the fallback already. When all others are here, the
  /// sum follows them without a timeout. A hint: the fallback counts for itself.
  Bitmap base = 0;
  uint64_t operation_elements = 0;
  Nanos first_arrival = 0;
  uint32_t operation = 0;
  uint32_t row = 0;     ///< index of the value row; one that leaves as a PART is exchanged
  uint32_t target = 0;  ///< where the result goes: wire::Message::target
  JobIndex job = 0;
  uint16_t elements = 0;
  uint16_t flags = 0;  ///< of the finished result
  DType dtype{};
  Op op{};
  Collective collective{};
  Rank first_rank{};  ///< who installed the slot: named when signatures differ
  uint8_t priority = 0;
  SlotState state = SlotState::kEmpty;

  wire::Signature signature() const {
    return {operation_elements, operation, dtype, op, collective, target};
  }
};
static_assert(sizeof(Slot) == 64);

}  // namespace ina::aggregator
