// Members of groups. A group is a job of its own, made of ranks of a job, with its own id, key,
// window and results; its workers speak of it over the connection on which they joined. See
// docs/protocol.md, "Groups".
#pragma once

#include "control/messages.h"
#include "switchd/connections.h"
#include "switchd/jobs/group_places.h"
#include "switchd/jobs/job_ending.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/placement.h"
#include "switchd/jobs/rejoin.h"
#include "switchd/ports/ports.h"

namespace ina::switchd {

class Groups {
 public:
  /// All of them must outlive it.
  Groups(const JobTable& jobs, GroupPlaces& places, Ports& ports, Placement& placement,
         Rejoin& rejoin, JobEnding& ending, Connections& connections)
      : jobs_(jobs),
        places_(places),
        ports_(ports),
        placement_(placement),
        rejoin_(rejoin),
        ending_(ending),
        connections_(connections) {}

  // `line`: the worker's connection. `channel`: the group's id.
  void on_join(Client& line, uint32_t channel, const control::request::Join& join);
  void on_rejoin(Client& line, uint32_t channel, const control::request::Rejoin& message);
  /// Ends a group that gathers: the worker has no place in it yet, and will not take one.
  void on_abort(const Client& line, uint32_t channel, const control::request::Abort& abort);

 private:
  Job* find(const Client& line, uint32_t channel) const;

  const JobTable& jobs_;
  GroupPlaces& places_;
  Ports& ports_;
  Placement& placement_;
  Rejoin& rejoin_;
  JobEnding& ending_;
  Connections& connections_;
};

}  // namespace ina::switchd
