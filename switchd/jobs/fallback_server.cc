#include "switchd/jobs/fallback_server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "common/logging/record.h"
#include "switchd/jobs/gathering.h"

namespace ina::switchd {

namespace answer = control::answer;
namespace request = control::request;

bool FallbackServers::is_from_server(const Client& client, const request::Message& message) {
  return client.role == Client::Role::kServer || client.role == Client::Role::kFallback ||
         std::holds_alternative<request::Serve>(message) ||
         std::holds_alternative<request::JoinFallback>(message);
}

void FallbackServers::handle(Client& client, const request::Message& message) {
  // It sees every job's contributions: nobody else may take its place.
  if (client.peer.uid != 0 && client.peer.uid != ::geteuid())
    return connections_.refuse(
        client, INA_ERR_REFUSED,
        fmt::format("only root and the switch's own user may serve as fallback, not uid {}",
                    client.peer.uid));
  if (const auto* serve = std::get_if<request::Serve>(&message)) return on_serve(client, *serve);
  if (const auto* join = std::get_if<request::JoinFallback>(&message))
    return on_join(client, *join);
  const bool serves_job = client.role == Client::Role::kFallback;
  if (std::holds_alternative<request::Attach>(message) && serves_job && client.job)
    return on_attach(client);
  if (std::holds_alternative<request::NextJob>(message) && client.role == Client::Role::kServer) {
    client.wants_job = true;
    return offers_.offer();
  }
  if (const auto* mismatch = std::get_if<request::Mismatch>(&message); mismatch && serves_job)
    return ending_.on_mismatch(client, *mismatch);
  connections_.refuse(client, INA_ERR_INVALID,
                      "a fallback server cannot say '" + control::type_of(message) + "' here");
}

void FallbackServers::on_serve(Client& client, const request::Serve& serve) {
  const auto refuse = [&](ina_status status, const std::string& text) {
    connections_.refuse(client, status, text);
  };
  if (client.state != Client::State::kNew)
    return refuse(INA_ERR_INVALID, "this connection has joined already");
  if (serve.version != control::kControlVersion)
    return refuse(INA_ERR_VERSION,
                  fmt::format("ina-psd speaks control version {}, this switch ({}) version {}: "
                              "install matching versions",
                              serve.version, INA_PROJECT_VERSION, control::kControlVersion));
  if (rules_.home != Home::kDedicated)
    return refuse(INA_ERR_UNSUPPORTED,
                  fmt::format("this switch needs no fallback server: its fallback.home is {}",
                              name(rules_.home)));
  for (const auto& [fd, other] : connections_.all())
    if (other->role == Client::Role::kServer)
      return refuse(INA_ERR_REFUSED, fmt::format("another fallback server (pid {}) serves already",
                                                 other->peer.pid));
  offers_.begin_anew();
  client.role = Client::Role::kServer;
  client.state = Client::State::kAttached;
  logging::info("fallback server connected", client.source())("pid", client.peer.pid);
  connections_.send(client, answer::Serving{INA_PROJECT_VERSION});
}

void FallbackServers::on_join(Client& client, const request::JoinFallback& join) {
  const auto job = job_of_join(client, join);
  if (!job) return connections_.refuse(client, job.error());
  request::Reach reach = join.reach;
  if (reach.frame) reach.frame->multicast = false;  // the group's results are the workers'
  auto way = ports_.choose(client.peer, reach);
  if (!way) return connections_.refuse(client, way.error());
  if (auto given = places_.give(client, **job, std::move(*way)); !given)
    end_without_place(client, **job, given.error());
}

/// Without the server the job would wait in silence, for as long as its owner does not know what is
/// lacking. For the server the job has ended, and it goes on with the others.
void FallbackServers::end_without_place(Client& client, Job& job, const Error& error) {
  const std::string text = fmt::format(
      "job '{}' has ended, because there is no place in it for the "
      "fallback server (ina-psd): {}",
      job.name, error.text);
  ending_.end(job, error.status, text);
  // It is in the log already, on its owner's account.
  connections_.send(client, answer::Refused{INA_ERR_ABORTED, text});
}

/// The job in which the server asks for a place, if it may have one.
Result<Job*> FallbackServers::job_of_join(const Client& client,
                                          const request::JoinFallback& join) const {
  if (client.state != Client::State::kNew)
    return fail(INA_ERR_INVALID, "this connection has joined already");
  if (rules_.home != Home::kDedicated)
    return fail(INA_ERR_UNSUPPORTED, "this switch needs no fallback server");
  Job* const job = jobs_.find(JobId{join.job_id});
  if (!job) return fail(INA_ERR_ABORTED, fmt::format("job {} has ended", join.job_id));
  if (job->fallback.client)
    return fail(INA_ERR_RANK_TAKEN, fmt::format("job '{}' has a fallback server (pid {})",
                                                job->name, job->fallback.client->peer.pid));
  return job;
}

void FallbackServers::on_attach(Client& client) {
  if (auto may = Gathering::check_attach(client); !may)
    return connections_.refuse(client, may.error());
  attach(client);
}

void FallbackServers::attach(Client& client) {
  if (auto attached = places_.attach(client); !attached)
    connections_.refuse(client, attached.error());
}

}  // namespace ina::switchd
