// Fallback servers (ina-psd): one process that serves all jobs of a switch whose fallback has a
// home of its own. The server has one connection on which it asks for jobs, and one more in each
// job, on which it attaches like a worker, over the shm port or an Ethernet port. This class
// decides who may serve, and handles the servers' messages; their places in jobs are in
// switchd/jobs/fallback_places.h. docs/protocol.md, "Control socket", lists the messages.
#pragma once

#include "control/messages.h"
#include "switchd/config/config.h"
#include "switchd/connections.h"
#include "switchd/jobs/fallback_places.h"
#include "switchd/jobs/job_ending.h"
#include "switchd/jobs/job_offers.h"
#include "switchd/jobs/job_table.h"
#include "switchd/ports/ports.h"

namespace ina::switchd {

class FallbackServers {
 public:
  /// All of them must outlive it.
  FallbackServers(const scheduler::Rules& rules, const JobTable& jobs, Ports& ports,
                  FallbackPlaces& places, JobEnding& ending, JobOffers& offers,
                  Connections& connections)
      : rules_(rules),
        jobs_(jobs),
        ports_(ports),
        places_(places),
        ending_(ending),
        offers_(offers),
        connections_(connections) {}

  /// True if the message is from a fallback server.
  static bool is_from_server(const Client& client, const control::request::Message& message);
  void handle(Client& client, const control::request::Message& message);
  /// Its region is there, if it needs one.
  void attach(Client& client);

 private:
  void on_serve(Client& client, const control::request::Serve& serve);
  void on_join(Client& client, const control::request::JoinFallback& join);
  void end_without_place(Client& client, Job& job, const Error& error);
  void on_attach(Client& client);
  Result<Job*> job_of_join(const Client& client, const control::request::JoinFallback& join) const;

  const scheduler::Rules& rules_;
  const JobTable& jobs_;
  Ports& ports_;
  FallbackPlaces& places_;
  JobEnding& ending_;
  JobOffers& offers_;
  Connections& connections_;
};

}  // namespace ina::switchd
