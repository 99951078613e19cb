#include "switchd/reports/slot_map.h"

#include <algorithm>

#include "common/clock.h"

namespace ina::switchd {

using control::Json;

SlotSample SlotSample::of(uint32_t slots, uint32_t lanes) {
  const uint32_t in_lane = slots / lanes;
  const uint32_t most = std::max(1u, SlotMap::kMostCells / lanes);
  const uint32_t step = std::max(1u, (in_lane + most - 1) / most);
  return {(in_lane + step - 1) / step, step};
}

Json SlotMap::make() {
  const uint32_t lanes = lanes_.count();
  const SlotSample sample = SlotSample::of(slots_, lanes);
  Json used = Json::array();
  for (uint32_t first = 0; first < sample.per_lane; first += kCellsPerCommand) {
    const uint32_t count = std::min(kCellsPerCommand, sample.per_lane - first);
    const auto commands = lanes_.run(command::LookAtSlots{
        .first = first * sample.step, .step = sample.step, .slots = std::vector<SlotView>(count)});
    const Nanos now = now_ns();
    for (uint32_t lane = 0; lane < lanes; ++lane)
      for (uint32_t i = 0; i < count; ++i)
        add(commands[lane].slots[i], lane * sample.per_lane + first + i, now, used);
  }
  return {{"slots", slots_},
          {"lanes", lanes},
          {"cells", sample.per_lane * lanes},
          {"slots_per_cell", sample.step},
          {"columns", {"cell", "state", "job", "age_us", "contributions"}},
          {"used", std::move(used)}};
}

void SlotMap::add(const SlotView& slot, uint32_t cell, Nanos now, Json& used) const {
  if (slot.state == aggregator::SlotState::kEmpty) return;
  const Job* const job = slot.job < jobs_.places() ? jobs_.at(slot.job) : nullptr;
  used.push_back({cell, aggregator::name(slot.state), job ? Json(value(job->id)) : Json(nullptr),
                  std::max<Nanos>(0, now - slot.first_arrival) / 1000, slot.contributions});
}

}  // namespace ina::switchd
