// Where the lanes have a worker of a job, or a domain of one (switchd/jobs/domain.h).
#pragma once

#include "aggregator/packet.h"

namespace ina::switchd {

struct LanePlace {
  aggregator::JobIndex job = 0;
  Rank member{};
};

}  // namespace ina::switchd
