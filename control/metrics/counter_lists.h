// What the metrics are told of the switch's counters.
#pragma once

#include <vector>

#include "wire/counter_field.h"

namespace ina::metrics {

/// The counters that members of the status show, by the list or object that they are in.
struct CounterLists {
  std::vector<CounterText> lanes{};  ///< `lcores`
  std::vector<CounterText> ports{};
  std::vector<CounterText> aggregator{};
  std::vector<CounterText> jobs{};
};

}  // namespace ina::metrics
