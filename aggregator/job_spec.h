// A job as the conductor admitted it, for one shard.
#pragma once

#include <algorithm>
#include <cstddef>

#include "aggregator/bare_results.h"
#include "aggregator/fallback.h"
#include "aggregator/given_results.h"
#include "aggregator/replay_window.h"
#include "aggregator/tree_row.h"
#include "scheduler/rules.h"
#include "wire/worker_set.h"

namespace ina::aggregator {

/// How far apart workers may be for their late contributions to wait for each other in a slot: as
/// many slots as that may be taken for each crowd of them.
inline constexpr uint64_t kNearFragments = 128;

/// The memory that the pointers name outlives the job's stay in the shard.
struct JobSpec {
  JobId id{};
  uint32_t epoch = 0;
  uint32_t workers = 0;  ///< 1..64
  uint32_t window = 0;   ///< W in fragments, over all lanes; a multiple of the lanes
  /// Fragments below this are complete: 0 for a new job, as told by the workers after a restart.
  Seq start;
  /// The job comes back after a restart: results of the switch's earlier life may still be on their
  /// way, so its workers may soon be another W ahead.
  bool rejoined = false;
  scheduler::StaticPool pool;  ///< pools only
  scheduler::Quota quota;      ///< hashed slots: this lane's share
  scheduler::Rules rules;
  /// Straggler help: an incomplete fragment this far below the newest is parked. Its partial sum
  /// goes to the fallback, and its contributors may send another fragment in its place. 0: never.
  uint32_t park_after = 0;
  /// A worker no further behind than this is not the first that is found late in a horizon.
  uint32_t park_begin = 0;
  /// A worker for which fragments so far below the newest have waited all this time is late, until
  /// it has caught up, and only late workers' fragments are parked. A worker that only waits for
  /// its turn on a busy core, or is behind without holding others up, needs no help. 0: fragments
  /// are parked as soon as they are left behind.
  uint32_t park_pressure = 0;
  Nanos park_patience = 0;
  /// The window that workers have without help: in fragments, over all lanes.
  uint32_t park_window = 0;
  /// Parked fragments load links: where that costs more than waiting (Lockstep), none is parked for
  /// a while. False: parks always.
  bool park_if_it_pays = false;
  /// The part of its time that the job must lose to slow workers before help is tried.
  double park_worth = 0;
  /// Ring of seen_words() zeros: the keeper of a fragment (1 + rank, or kParkedHome). Without it
  /// the fallback keeps all.
  uint8_t* parked_at = nullptr;
  /// Parked fragments of this lane that a leading worker keeps instead of the fallback.
  uint32_t park_room = 0;
  WorkerSet parkers = WorkerSet::first(kMaxWorkers);  ///< workers that can do that
  /// A worker or the fallback of the job has a link that may lose frames. So questions about
  /// complete fragments say that help's own messages were lost.
  bool links_lose = true;
  /// A fragment that more workers than this still miss goes to the fallback all the same. A leader
  /// would get each late contribution over its one link; the fallback's shards share that load.
  uint32_t park_missing = kMaxWorkers;
  /// The fallback at the workers keeps parked fragments. A leading worker keeps only those whose
  /// shard would be at the one worker that they wait for: that worker must not be slowed further.
  bool park_home = false;
  Joining joining;               ///< of bare results
  uint32_t instance = 0;         ///< of the fallback; other instances' messages are dropped
  std::byte* results = nullptr;  ///< ring of 2W rows of slot_bytes; row = seq mod 2W
  /// Ring of seen_words() zeros: whose contribution to a fragment has come (the anti-replay
  /// window).
  WorkerSet* seen = nullptr;
  /// Ring of seen_words() empty entries: results that were given out, for workers that lose some of
  /// them on links. nullptr: the fallback alone answers their questions.
  GivenResult* given = nullptr;
  /// Ring of seen_words() zeros: 1 + the last fragment whose result went into a result buffer.
  /// Needed by jobs that have such buffers.
  uint64_t* placed = nullptr;
  Fallback* spill = nullptr;  ///< the job's fallback if its home is this lane
  TreePlace tree;             ///< home kTree

  /// Fragments that each worker may have in the switch with help, where there are so many slots. A
  /// hashed array has no room for some fragment long before its last slot is taken, and then the
  /// fragment goes over links. Where the fallback is in the switch, that costs nothing.
  static uint32_t most_in_switch(uint64_t slots, Home home_of_fallback) {
    if (keeps_in_switch(home_of_fallback)) return UINT32_MAX;
    return static_cast<uint32_t>(std::clamp<uint64_t>(slots / 4 * 3, 1, UINT32_MAX));
  }
  /// Help with `in_switch` fragments that each worker may have in the switch. A worker with almost
  /// none of them left, or with almost as many as there are slots, is held up. From then on
  /// fragments are parked at half the distance that workers keep to (client::Engine): half of them
  /// wait for others, and half go on. Where the fallback is in the switch, help begins later:
  /// nothing tells it that it does not pay.
  void park_by(uint32_t in_switch, uint64_t slots) {
    const auto most = static_cast<uint32_t>(std::min<uint64_t>(in_switch, slots));
    park_window = most;
    park_begin = most / (keeps_in_switch(rules.home) ? 2 : 4);
    park_pressure = most / 8 * 7;
    park_after = std::max(1u, most / 8);
    park_worth = keeps_in_switch(rules.home)
                     ? 0
                     : std::max(kWorthOfMessages, kWorthOfTries + 1.0 / workers);
  }

  /// Messages of parked fragments go over links that all-reduces fill already: about one for two
  /// contributions. So a third of the time must be lost before help gains anything, and somewhat
  /// more for a try to be worth its cost.
  static constexpr double kWorthOfMessages = 0.4;
  /// The results of parked fragments go over the links of all workers but one: of two workers, each
  /// over the same one, as many as its own contributions.
  static constexpr double kWorthOfTries = 0.1;
  /// Help is judged over so many patiences, to see if it pays: several turns of a slow worker.
  static constexpr Nanos kHorizonPatiences = 500;
  /// Where help did not pay, it is tried again after so many horizons, then twice as many.
  static constexpr Nanos kRestHorizons = 8;
  static constexpr Nanos kLongestRestHorizons = 128;
  /// Nor longer than this, however long the patience: it shall help again when somebody becomes
  /// slow for good, and a try takes milliseconds.
  static constexpr Nanos kRestNs = 1'000'000'000;
  static constexpr Nanos kLongestRestNs = 4'000'000'000;

  /// In `parked_at`: it is at the fallback, where all else goes, too.
  static constexpr uint8_t kParkedHome = 0x80;

  static size_t seen_words(uint32_t window, uint32_t lanes) {
    return ReplayWindow::entries(window, lanes);
  }
};

}  // namespace ina::aggregator
