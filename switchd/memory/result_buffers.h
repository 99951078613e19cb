// The result buffers of a job, into which results are written once for all workers. See
// docs/protocol.md, "Registered memory and result buffers".
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/messages.h"
#include "switchd/config/config.h"
#include "switchd/connections.h"
#include "switchd/jobs/job_ending.h"
#include "switchd/jobs/job_table.h"
#include "switchd/lanes/lanes.h"
#include "switchd/memory/mapper.h"
#include "switchd/memory/resources.h"

namespace ina::switchd {

class ResultBuffers {
 public:
  /// All of them must outlive it.
  ResultBuffers(const config::AggregatorConfig& config, Lanes& lanes, Resources& resources,
                const JobTable& jobs, Connections& connections, JobEnding& ending)
      : config_(config),
        lanes_(lanes),
        resources_(resources),
        jobs_(jobs),
        connections_(connections),
        ending_(ending) {}

  /// Collective: happens once all workers have asked.
  void on_share(Client& client, const control::request::ShareResults& message);
  /// Collective, too; not answered. A buffer that only some have freed stays.
  void on_free(Client& client, const control::request::FreeResults& message);
  /// A task of the mapper has ended; another's is left alone.
  void on_made(Mapper::Done& done);

 private:
  struct Making {
    JobId job{};
    std::optional<uid_t> user;  ///< whose job it is; none: a tenant's
  };
  void share(Job& job);
  void make(Job& job, uint64_t bytes);
  Job* maker(const Making& making) const;
  void forget_ended();
  void add(Job& job, Result<io::shm::Region>& region);
  void tell(Job& job, const control::answer::Results& results, const std::vector<int>& fds = {});

  const config::AggregatorConfig& config_;
  Lanes& lanes_;
  Resources& resources_;
  const JobTable& jobs_;
  Connections& connections_;
  JobEnding& ending_;
  std::map<uint64_t, Making> making_;  ///< for which the mapper makes one, by token
};

}  // namespace ina::switchd
