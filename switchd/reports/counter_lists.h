// The tables of counters that StatusReport shows, as the metrics need them.
#pragma once

#include "aggregator/counters.h"
#include "control/metrics/counter_lists.h"
#include "io/bridge/mac_counters.h"
#include "io/ethdev/ethdev_counters.h"
#include "io/port_counters.h"
#include "switchd/lanes/lane_counters.h"

namespace ina::switchd {

/// The texts of several tables, one after another.
template <class... Tables>
std::vector<CounterText> texts_of(const Tables&... tables) {
  std::vector<CounterText> texts;
  const auto append = [&texts](const auto& rows) {
    for (const auto& row : rows) texts.push_back(row.text);
  };
  (append(tables), ...);
  return texts;
}

inline metrics::CounterLists counter_lists() {
  return {.lanes = texts_of(kLaneCounterFields, kLaneTimeFields),
          .ports = texts_of(io::kPortCounterFields, io::kEthdevCounterFields,
                            bridge::kPortAddressFields),
          .aggregator = texts_of(aggregator::kCounterFields, kLaneTotalFields),
          .jobs = texts_of(aggregator::kJobCounterFields, aggregator::kJobParkingFields)};
}

}  // namespace ina::switchd
