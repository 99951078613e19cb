// Jobs that their workers split into groups. See docs/protocol.md, "Groups".
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "control/messages.h"
#include "switchd/conductor_config.h"
#include "switchd/connections.h"
#include "switchd/job_ending.h"
#include "switchd/job_offers.h"
#include "switchd/job_records.h"
#include "switchd/job_table.h"
#include "switchd/lane_jobs.h"
#include "switchd/resources.h"

namespace ina::switchd {

/// Ranks that become a group.
struct Colour {
  int64_t colour = 0;
  std::vector<uint32_t> ranks;  ///< of the job that is split, by rank in the group
  JobId group{};                ///< once it is made
  bool operator==(const Colour&) const = default;
};
/// The colours that all members of the job have asked for, each for its own rank. Error: they
/// disagree, and its text names the difference.
Result<std::vector<Colour>> colours_of(const Job& job);

class Splits {
 public:
  /// All of them must outlive it.
  Splits(const ConductorConfig& config, JobTable& jobs, JobRecords& records, LaneJobs& lane_jobs,
         Resources& resources, JobEnding& ending, JobOffers& offers, Connections& connections)
      : config_(config),
        jobs_(jobs),
        records_(records),
        lane_jobs_(lane_jobs),
        resources_(resources),
        ending_(ending),
        offers_(offers),
        connections_(connections) {}

  /// Collective: happens once all workers have asked.
  void on_split(Client& client, const control::request::Split& split);
  /// Makes one group of the split whose turn it is: nobody waits for many groups of another.
  void go_on();
  bool under_way() const { return !splits_.empty(); }
  /// A worker has called ina_finalize: the splits that others ask for can never be made.
  void refuse(Job& job);

 private:
  /// A split that all members have asked for.
  struct Split {
    JobId job{};
    uint32_t number = 0;
    std::vector<Colour> colours;
    size_t made = 0;
  };
  void begin(Job& job);
  Result<JobId> make_group(const Job& job, const Colour& colour);
  SavedJob new_group(const Job& job, const Colour& colour);
  Result<void> check_room(const Job& job) const;
  void answer(Job& job, const Split& split);
  void give_up(const Split& split, Job* job, const Error& error);

  const ConductorConfig& config_;
  JobTable& jobs_;
  JobRecords& records_;
  LaneJobs& lane_jobs_;
  Resources& resources_;
  JobEnding& ending_;
  JobOffers& offers_;
  Connections& connections_;
  std::deque<Split> splits_;
};

}  // namespace ina::switchd
