// What has left the slots of a job in a tree of switches: a row for each fragment of its window.
#pragma once

#include "wire/message.h"

namespace ina::aggregator {

/// The fragment's values lie in its row of the job's result ring: accumulators while members'
/// contributions are missing, or a payload that is moved; then the result.
struct alignas(64) TreeRow {
  enum class State : uint8_t {
    kEmpty,      ///< nothing has left the slots
    kSum,        ///< the contributions of the members in message.bitmap, or the payload
    kWhole,      ///< those of all members: waits for the result of the switch above
    kElsewhere,  ///< as kWhole, and decided: the result is for another domain
    kDone,       ///< the result
  };

  uint64_t mark = 0;      ///< 1 + the fragment's number; 0: none
  wire::Message message;  ///< as the PART; kDone: as the RESULT
  uint32_t asked_us = 0;  ///< when a member last asked for it, modulo 2^32
  State state = State::kEmpty;
};
static_assert(sizeof(TreeRow) == 64);

/// A job's place in a tree of switches (docs/protocol.md, "Trees"). The memory outlives the job's
/// stay in the shard.
struct TreePlace {
  static constexpr uint8_t kElsewhere = 0xff;

  /// Ring of seen_words() empty entries; nullptr: the job is in no tree.
  TreeRow* rows = nullptr;
  /// Ring of seen_words(): the members that have the result of a fragment from an earlier life of
  /// this switch, as they said when they attached. nullptr: the job is new.
  WorkerSet* holders = nullptr;
  /// By rank of the job: the member that it is, or is below; kElsewhere: in another domain.
  const uint8_t* member_of = nullptr;
  uint32_t ranks = 0;  ///< of the whole job
  bool has_parent = false;
  uint32_t parent_epoch = 0;  ///< 0: not attached to the switch above
};

}  // namespace ina::aggregator
