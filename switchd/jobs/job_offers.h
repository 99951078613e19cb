// Tells the fallback server (ina-psd) of the jobs that it is to serve.
#pragma once

#include <string>

#include "switchd/connections.h"
#include "switchd/jobs/job_table.h"

namespace ina::switchd {

class JobOffers {
 public:
  /// Both must outlive it.
  JobOffers(const JobTable& jobs, Connections& connections)
      : jobs_(jobs), connections_(connections) {}

  /// A job after the other, each when the server asks for it: so a message at most is under way,
  /// however many jobs there are. Owners take turns: each job costs the server some milliseconds.
  void offer();
  /// A server that is new knows of none.
  void begin_anew();

 private:
  Job* next();

  const JobTable& jobs_;
  Connections& connections_;
  std::string last_owner_;
};

}  // namespace ina::switchd
