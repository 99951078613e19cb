// Where the lanes have a worker of a job, or a domain of one (switchd/jobs/domain.h).
#pragma once

#include "aggregator/packet.h"

namespace ina::switchd {

/// Links between switches, of all jobs: one address at a port may have them all.
inline constexpr JobId kSwitchFamily{UINT32_MAX};

struct LanePlace {
  aggregator::JobIndex job = 0;
  Rank member{};
};

}  // namespace ina::switchd
