// The slots in use, for viewers of the switch: a sample of the array, as JSON.
#pragma once

#include <cstdint>

#include "control/messages.h"
#include "switchd/jobs/job_table.h"
#include "switchd/lanes/lanes.h"

namespace ina::switchd {

/// The slots of each lane that are looked at: every step-th from the first on.
struct SlotSample {
  uint32_t per_lane = 0;
  uint32_t step = 1;

  /// `slots`: of the whole array. As many as there are, but at most so many of all lanes together
  /// that a lane soon goes on.
  static SlotSample of(uint32_t slots, uint32_t lanes);
};

class SlotMap {
 public:
  /// Limit of the cells of all lanes together.
  static constexpr uint32_t kMostCells = 2048;
  /// A lane looks at no more without a look at its ports: 32 KiB of slots.
  static constexpr uint32_t kCellsPerCommand = 512;

  /// `slots`: of the whole array. `lanes` and `jobs` must outlive it.
  SlotMap(uint32_t slots, Lanes& lanes, const JobTable& jobs)
      : slots_(slots), lanes_(lanes), jobs_(jobs) {}

  /// `cells`: how many slots were looked at, those of the first lane first. `used`: those that hold
  /// something, each as a list of the values that `columns` names.
  control::Json make();

 private:
  void add(const SlotView& slot, uint32_t cell, Nanos now, control::Json& used) const;

  const uint32_t slots_;
  Lanes& lanes_;
  const JobTable& jobs_;
};

}  // namespace ina::switchd
