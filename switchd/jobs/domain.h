// A job as the lanes know it. One of more workers than a switch has bits is several: the domains of
// its workers, and their root (docs/protocol.md, "Trees").
#pragma once

#include <memory>
#include <vector>

#include "aggregator/fallback.h"
#include "aggregator/given_results.h"
#include "aggregator/packet.h"
#include "aggregator/tree_row.h"
#include "io/shm/region.h"
#include "switchd/memory/handles.h"
#include "wire/worker_set.h"

namespace ina::switchd {

struct Domain {
  aggregator::JobIndex index = 0;
  uint32_t members = 0;  ///< workers, or the domains below
  /// Of a job in a tree: by rank, which member it is, or is below (TreePlace::member_of). Otherwise
  /// empty: members are numbered as ranks.
  std::vector<uint8_t> member_of;
  io::shm::Region results;
  Handles::Share share;  ///< of what is made for it

  // By lane; read and written by the lane.
  std::vector<std::vector<WorkerSet>> seen;
  std::vector<std::vector<uint64_t>> placed;
  std::vector<std::vector<uint8_t>> parked;  ///< straggler help only
  /// Where workers may be on links that lose frames.
  std::vector<std::vector<aggregator::GivenResult>> given;
  std::vector<std::unique_ptr<aggregator::Fallback>> spill;  ///< home spill only
  // Jobs in trees only.
  std::vector<std::vector<aggregator::TreeRow>> rows;
  std::vector<std::vector<WorkerSet>> holders;

  uint8_t member_at(uint32_t rank) const {
    return member_of.empty() ? static_cast<uint8_t>(rank) : member_of[rank];
  }
};

}  // namespace ina::switchd
