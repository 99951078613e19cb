// The conductor's state of its workers and jobs; for the conductor's own files only.
#pragma once

#include <fmt/format.h>
#include <sched.h>

#include <cassert>

#include "common/clock.h"
#include "common/debt.h"
#include "switchd/conductor.h"
#include "switchd/look_schedule.h"
#include "wire/text.h"

namespace ina::switchd {

using wire::ranks_text;
using wire::text_of;

/// For keys.
uint64_t random_u64();

/// How a worker that joins or re-joins wants to be reached.
struct Conductor::Transport {
  bool shm = false;
  bool takes_buffers = false;  ///< reads results where a result buffer has them
  uint32_t frame_port = 0;
  std::optional<wire::Address> address = std::nullopt;  ///< on an Ethernet port
  bool multicast = false;                               ///< results by the job's group
  bool parks = false;  ///< keeps sums for the switch while somebody is slow
};

}  // namespace ina::switchd
