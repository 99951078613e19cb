// Workers join jobs: their requests are checked, and they get their places. See docs/protocol.md,
// "Control socket".
#pragma once

#include "control/messages.h"
#include "switchd/connections.h"
#include "switchd/identification.h"
#include "switchd/jobs/job_ending.h"
#include "switchd/jobs/job_maker.h"
#include "switchd/jobs/job_offers.h"
#include "switchd/jobs/job_records.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/placement.h"
#include "switchd/jobs/wait_reasons.h"
#include "switchd/ports/ports.h"

namespace ina::switchd {

/// Checks that there could be such a member, in any state of the switch.
Result<void> check(const control::request::Member& member);
/// How a member's settings differ from those of the workers that are there; empty: they do not. One
/// that only one side knows is no difference: the other's library is older.
std::string difference(const Job& job, const control::request::Join& join);

class Joining {
 public:
  /// All of them must outlive it.
  Joining(const JobTable& jobs, Identification& identification, Ports& ports, Placement& placement,
          JobRecords& records, JobMaker& maker, JobEnding& ending, JobOffers& offers,
          const WaitReasons& wait_reasons, Connections& connections)
      : jobs_(jobs),
        identification_(identification),
        ports_(ports),
        placement_(placement),
        records_(records),
        maker_(maker),
        ending_(ending),
        offers_(offers),
        wait_reasons_(wait_reasons),
        connections_(connections) {}

  void on_join(Client& client, const control::request::Join& join);

 private:
  bool refuse(Client& client, const std::string& owner, const Error& error);
  Result<Job*> find_or_admit(const Client& client, const control::request::Join& join);
  Result<Job*> admit(const Client& client, const control::request::Join& join);
  static Result<void> check_free(const Client& client, const Job& job,
                                 const control::request::Join& join);

  const JobTable& jobs_;
  Identification& identification_;
  Ports& ports_;
  Placement& placement_;
  JobRecords& records_;
  JobMaker& maker_;
  JobEnding& ending_;
  JobOffers& offers_;
  const WaitReasons& wait_reasons_;
  Connections& connections_;
};

}  // namespace ina::switchd
