#include "fragments/delivery_rate.h"

#include <algorithm>

namespace ina::client {

uint64_t DeliveryRate::results_in(Nanos time) const {
  return static_cast<uint64_t>(*std::ranges::max_element(per_ns_) * static_cast<double>(time));
}

Nanos DeliveryRate::time_of(uint64_t results) const {
  const double best = *std::ranges::max_element(per_ns_);
  return best == 0 ? 0 : static_cast<Nanos>(static_cast<double>(results) / best);
}

}  // namespace ina::client
