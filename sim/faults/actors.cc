#include "sim/faults/actors.h"

#include <algorithm>

namespace ina::sim::world {

bool Worker::done() const {
  return running.empty() && next_plan == job->plans.size() &&
         (!hierarchical || hierarchical->done());
}

Nanos Worker::release_at() const {
  Nanos at = INT64_MAX;
  for (const Running& operation : running)
    if (operation.held_until != 0) at = std::min(at, operation.held_until);
  return at;
}

}  // namespace ina::sim::world
