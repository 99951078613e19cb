#include "fragments/flow.h"

#include "wire/rules.h"

namespace ina::client {

namespace {

/// True if splits count. Over a network they cost bandwidth of links, but for those that meet in
/// the switch's own memory.
bool counts_splits(const EngineConfig& config) {
  return config.rules.aggregator_window && !config.rules.fixed_slots() &&
         !(config.lossy_link && config.rules.home == Home::kSpill);
}

/// True if what waits in queues or slots may be in others' way, and nobody is to run ahead.
bool is_capped(const EngineConfig& config) {
  return config.window_cap && config.lossy_link && counts_splits(config) && config.in_switch == 0;
}

/// What workers send ahead of each other meets on the link of a fallback server. Few workers may
/// send a whole window.
uint32_t ahead_of(const EngineConfig& config) {
  constexpr uint32_t kAhead = 32;
  if (!config.lossy_link || config.rules.home != Home::kDedicated) return 0;
  const uint32_t share = share_of(kAhead, config.workers);
  return share < kAhead ? share : config.window;
}

WindowConfig window_config(const EngineConfig& config) {
  return {.most = config.in_switch == 0 ? config.window : std::min(config.window, config.in_switch),
          .workers = config.lossy_link ? config.workers : 1,
          .first = config.lossy_link ? share_of(Windows::kFirstOnLossyLink, config.workers)
                                     : config.first_window,
          .congestion = config.rules.ecn,
          .aggregators = counts_splits(config),
          .first_aggregators =
              config.lossy_link ? share_of(Windows::kFirstAggregators, config.workers) : 0,
          .capped = is_capped(config),
          .paced = config.lossy_link,
          .ahead = ahead_of(config),
          .distances = config.lossy_link};
}

}  // namespace

Flow::Flow(const EngineConfig& told)
    : config(told),
      ring(told.window),
      timeouts(told.rules.rto_min_ns, told.rules.rto_max_ns),
      windows(window_config(told)) {}

void Flow::play_by(const scheduler::Rules& rules) {
  config.rules = rules;
  timeouts.use(rules.rto_min_ns, rules.rto_max_ns);
  windows.use(rules.ecn, counts_splits(config), is_capped(config));
}

/// Only a result that this worker has taken may be kept from it: it would not be told again.
void Flow::flag_kept(TxPacket& packet) const {
  if (packet.message.type != wire::Type::kResult || !keeps_results()) return;
  const bool taken = ring.has_result(ring.extended(packet.message.seq));
  if (taken || !rule(Rule::kKeptResult)) packet.message.flags |= wire::kFlagKept;
}

}  // namespace ina::client
