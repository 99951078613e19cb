// The reasons why the frames of a worker on an Ethernet port do not arrive: the lanes'
// observations, put into words for the worker. See docs/protocol.md, `dropped`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "switchd/conductor_config.h"
#include "switchd/connections.h"
#include "switchd/jobs/job_table.h"
#include "switchd/lanes/lanes.h"

namespace ina::switchd {

class DroppedFrames {
 public:
  /// All of them must outlive it.
  DroppedFrames(const ConductorConfig& config, Lanes& lanes, Connections& connections)
      : config_(config), lanes_(lanes), connections_(connections) {}

  /// A worker, or the fallback server, whose frames do not arrive.
  struct Unheard {
    Rank rank;
    std::optional<DropReason>
        reason;  ///< none: nothing was seen of it, and it may have sent nothing
    uint64_t dropped = 0;
    std::string text;  ///< a sentence
  };
  /// All of them; workers whose frames were dropped come first.
  std::vector<Unheard> unheard(Job& job) const;
  /// Tells workers and fallback servers whose frames do not arrive, from time to time.
  void tell(const JobTable& jobs, Nanos now) const;

 private:
  /// The lanes' counts of a worker's frames.
  struct Arrivals {
    bool heard = false;
    uint64_t dropped = 0;
    std::optional<PortDrops> most;  ///< of these, those with one fate of which there are most
  };
  std::vector<Arrivals> arrivals_of(Job& job) const;
  std::string cause(Job& job, Rank rank, const PortDrops& drops) const;
  std::string text(Job& job, Rank rank, const Arrivals& arrivals) const;
  void tell(Job& job, Rank rank, const Arrivals& arrivals) const;

  const ConductorConfig& config_;
  Lanes& lanes_;
  Connections& connections_;
};

}  // namespace ina::switchd
