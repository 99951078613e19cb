// One worker process of the demo: a rank that trains on its shards and all-reduces through the
// switch.
#pragma once

#include <string>

#include "examples/demo/channel.h"
#include "examples/demo/train.h"

namespace ina::demo {

struct WorkerSetup {
  std::string url;  ///< of the switch, as ina_config has it
  int rank = 0;
  int world = 1;
  Hyper hyper;
};

/// Trains and reports to the launcher: kEpoch after each epoch, then kWeights; leaves the job when
/// told kLeave. A failure is reported as kError. Returns the exit status of the process.
int run_worker(const WorkerSetup& setup, const Split& data, Channel& launcher);

}  // namespace ina::demo
