#include "switchd/fallback_server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "common/logging/record.h"

namespace ina::switchd {

namespace answer = control::answer;
namespace request = control::request;

bool FallbackServers::is_from_server(const Client& client, const request::Message& message) {
  return client.role != Client::Role::kWorker || std::holds_alternative<request::Serve>(message) ||
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
  if (config_.home != Home::kDedicated)
    return refuse(INA_ERR_UNSUPPORTED,
                  fmt::format("this switch needs no fallback server: its fallback.home is {}",
                              name(config_.home)));
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
  auto transport = transports_.choose(client.peer, join.reach);
  if (!transport) return connections_.refuse(client, transport.error());
  transport->multicast = false;  // the group's results are the workers'
  if (auto taken = take(client, **job, *transport); !taken)
    connections_.refuse(client, taken.error());
}

/// The job in which the server asks for a place, if it may have one.
Result<Job*> FallbackServers::job_of_join(const Client& client,
                                          const request::JoinFallback& join) const {
  if (client.state != Client::State::kNew)
    return fail(INA_ERR_INVALID, "this connection has joined already");
  if (config_.home != Home::kDedicated)
    return fail(INA_ERR_UNSUPPORTED, "this switch needs no fallback server");
  Job* const job = jobs_.find(JobId{join.job_id});
  if (!job) return fail(INA_ERR_ABORTED, fmt::format("job {} has ended", join.job_id));
  if (job->fallback.client)
    return fail(INA_ERR_RANK_TAKEN, fmt::format("job '{}' has a fallback server (pid {})",
                                                job->name, job->fallback.client->peer.pid));
  return job;
}

Result<void> FallbackServers::take(Client& client, Job& job, const MemberTransport& transport) {
  // What its predecessor held is lost, so whatever the switch and the workers hold of it belongs to
  // an epoch that has passed.
  const bool successor = job.instance != 0;
  const auto epoch = successor ? records_.next_epoch(job) : job.epoch;
  if (!epoch) return tl::unexpected(epoch.error());
  const Seq start = successor ? std::max(job.start, lane_jobs_.results_end(job)) : job.start;
  resources_.drop_worker(job, kFallbackRank);
  answer::FallbackJoined reply{.place = placement_.common(job),
                               .job = job.name,
                               .workers = job.workers,
                               .instance = *epoch,
                               .start = start.value,
                               .bind_at_once = config_.fixed_slots()};
  reply.place.epoch = *epoch;
  const auto fds = placement_.give(job, kFallbackRank, transport, reply.place);
  if (!fds) return tl::unexpected(fds.error());
  job.fallback.client = &client;
  client.role = Client::Role::kFallback;
  client.job = &job;
  client.rank = kFallbackRank;
  client.state = Client::State::kJoined;
  connections_.send(client, reply, *fds);
  return {};
}

void FallbackServers::on_attach(Client& client) {
  if (auto may = Gathering::check_attach(client); !may)
    return connections_.refuse(client, may.error());
  attach(client);
}

void FallbackServers::attach(Client& client) {
  Job& job = *client.job;
  const bool successor = job.instance != 0;
  if (successor) {
    const auto epoch = records_.next_epoch(job);
    if (!epoch) return connections_.refuse(client, epoch.error());
    job.epoch = *epoch;
    records_.save(job);  // on disk before anybody hears of it
  }
  job.instance = job.epoch;  // epochs are never used twice, not even after a restart of the switch
  if (auto attached = attach_to_lanes(job); !attached)
    return connections_.refuse(client, attached.error());
  job.fallback.attached = true;
  client.state = Client::State::kAttached;
  logging::info("fallback server attached", client.source())("job", job.name)("id", value(job.id))(
      "instance", job.instance)("epoch", job.epoch)("pid", client.peer.pid);
  if (successor)
    for (Job::Worker& member : job.members)
      if (member.client) connections_.send(*member.client, answer::Epoch{job.epoch});
  gathering_.look(job);
}

Result<void> FallbackServers::attach_to_lanes(Job& job) {
  // The lanes hear of a job that waits for its workers when these are back.
  if (job.state == Job::State::kRejoining) return {};
  // Before the successor hears anything, so that nothing of the old epoch reaches it.
  lane_jobs_.begin_epoch(job);
  return lane_jobs_.attach(job, kFallbackRank);
}

void FallbackServers::on_gone(Client& client) {
  Job& job = *client.job;
  client.job = nullptr;
  logging::warn("fallback server lost", client.source())("job", job.name)("id", value(job.id))(
      "pid", client.peer.pid);
  if (job.fallback.attached && job.state != Job::State::kRejoining)
    lane_jobs_.detach(job, kFallbackRank);
  resources_.drop_worker(job, kFallbackRank);
  if (job.state == Job::State::kJoining || job.state == Job::State::kRejoining)
    gathering_.tell_missing(job);
}

}  // namespace ina::switchd
