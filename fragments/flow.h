// What the parts of a worker's protocol share: its rules, its fragments, and how many of them may
// be under way, with the round trips and counters that all parts feed. Each part has further state
// of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fragments/engine_config.h"
#include "fragments/engine_counters.h"
#include "fragments/fragment_ring.h"
#include "fragments/operation.h"
#include "fragments/timeouts.h"
#include "fragments/transport.h"
#include "fragments/windows.h"
#include "wire/message.h"

namespace ina::client {

struct Flow {
  explicit Flow(const EngineConfig& config);
  // The parts refer to it.
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  /// From now on; the job's home is the same.
  void play_by(const scheduler::Rules& rules);

  uint32_t most_in_switch() const {
    return config.in_switch == 0 ? config.window : std::min(config.window, config.in_switch);
  }
  /// Fragments that may be in the switch at once, as congestion and parking allow.
  uint32_t window_now() const {
    const uint32_t window = windows.fragments();
    if (parked == 0 && !catches_up) return window;
    return std::min(window, std::max(1u, most_in_switch() / kInSwitchParts));
  }
  /// True if the worker cannot wait for bare results that the switch keeps: its window is less than
  /// half of the most that it may have in the switch, and with one more fragment than those in
  /// flight half of it is used. A window that is halved then has room for a fragment that says so.
  bool needs_prompt_results(uint32_t fragments_in_flight) const {
    const uint64_t window = window_now();
    return 2 * window < most_in_switch() && 2 * (uint64_t{fragments_in_flight} + 2) > window;
  }
  /// Results that are made here are taken here. If one gets lost, another worker must ask for it.
  /// Otherwise the switch would never hear of it, and refuse fragments W later.
  bool keeps_results() const {
    return config.park_room != 0 && config.workers > 1 && !config.results_stay;
  }

  /// Begins a message of this worker about a fragment.
  void begin(wire::Message& message, wire::Type type, Seq seq) const {
    message = wire::Message{};
    message.type = type;
    message.bitmap = WorkerSet::of(config.at_switch());
    message.epoch = config.epoch;
    message.seq = seq.low();
    message.rank = config.at_switch();
    message.lane = static_cast<uint8_t>(seq.value % config.lanes);
  }
  /// Fills in this worker's contribution, or its mark. `others_in_flight`: besides this one.
  void describe(Seq seq, const Operation& operation, uint32_t others_in_flight,
                TxPacket& packet) const {
    begin(packet.message, wire::Type::kGrad, seq);
    operation.describe(seq, config.rank, packet);
    if (operation.spec.blocks && needs_prompt_results(others_in_flight))
      packet.message.flags |= wire::kFlagPrompt;
  }
  /// Says of a result that is made here that it need not come back.
  void flag_kept(TxPacket& packet) const;

  EngineConfig config;
  FragmentRing ring;
  uint32_t in_flight = 0;   ///< fragments sent that have no result and are not parked
  uint32_t parked = 0;      ///< fragments sent that have no result and are parked
  bool catches_up = false;  ///< the last result was of a fragment parked by others at a worker
  Timeouts timeouts;
  Windows windows;
  EngineCounters counters;

 private:
  /// A worker has only one of so many parts of in_switch in the switch while a fragment of its own
  /// is parked, or while it completes parked ones. So slots come free, and neither spills nor the
  /// results that keepers give out overrun links.
  static constexpr uint32_t kInSwitchParts = 4;
};

}  // namespace ina::client
