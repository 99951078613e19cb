// Fallback servers (ina-psd): one process that serves all jobs of a switch whose fallback has a
// home of its own. It has one connection on which it asks for jobs, and one more in each job, on
// which it attaches like a worker, over the shm port or an Ethernet port. docs/protocol.md,
// "Control socket", lists the messages.
#include <fmt/format.h>
#include <unistd.h>

#include "common/logging/record.h"
#include "switchd/conductor_state.h"

namespace ina::switchd {

void Conductor::handle_server(Client& client, const request::Message& message) {
  // It sees every job's contributions: nobody else may take its place.
  if (client.peer.uid != 0 && client.peer.uid != ::geteuid())
    return refuse(client, INA_ERR_REFUSED,
                  fmt::format("only root and the switch's own user may serve as fallback, not uid "
                              "{}",
                              client.peer.uid));
  if (const auto* serve = std::get_if<request::Serve>(&message)) return on_serve(client, *serve);
  if (const auto* join = std::get_if<request::JoinFallback>(&message))
    return on_join_fallback(client, *join);
  const bool serves_job = client.role == Client::Role::kFallback;
  if (std::holds_alternative<request::Attach>(message) && serves_job && client.job)
    return on_attach(client);
  if (std::holds_alternative<request::NextJob>(message) && client.role == Client::Role::kServer) {
    client.wants_job = true;
    return offer_jobs();
  }
  if (const auto* mismatch = std::get_if<request::Mismatch>(&message); mismatch && serves_job)
    return on_mismatch(client, *mismatch);
  refuse(client, INA_ERR_INVALID,
         "a fallback server cannot say '" + control::type_of(message) + "' here");
}

void Conductor::on_serve(Client& client, const request::Serve& serve) {
  if (client.state != Client::State::kNew)
    return refuse(client, INA_ERR_INVALID, "this connection has joined already");
  if (serve.version != control::kControlVersion)
    return refuse(client, INA_ERR_VERSION,
                  fmt::format("ina-psd speaks control version {}, this switch ({}) version {}: "
                              "install matching versions",
                              serve.version, INA_PROJECT_VERSION, control::kControlVersion));
  if (config_.home != Home::kDedicated)
    return refuse(client, INA_ERR_UNSUPPORTED,
                  fmt::format("this switch needs no fallback server: its fallback.home is {}",
                              name(config_.home)));
  for (const auto& [fd, other] : connections_.all())
    if (other->role == Client::Role::kServer)
      return refuse(
          client, INA_ERR_REFUSED,
          fmt::format("another fallback server (pid {}) serves already", other->peer.pid));
  for (Job& job : jobs_) job.offered = false;
  client.role = Client::Role::kServer;
  client.state = Client::State::kAttached;
  logging::info("fallback server connected", client.source())("pid", client.peer.pid);
  send(client, answer::Serving{INA_PROJECT_VERSION});
}

/// Tells the fallback server of one job after the other, each when it asks for it: so a message at
/// most is under way, however many jobs there are.
void Conductor::offer_jobs() {
  for (const auto& [fd, client] : connections_.all()) {
    if (client->role != Client::Role::kServer || !client->wants_job) continue;
    for (Job& job : jobs_) {
      // Where a job goes on after a restart is known when all its workers are back.
      const bool known =
          job.state != Job::State::kRejoining || job.attached() == full_bitmap(job.workers);
      if (!known || job.offered || job.fallback.client) continue;
      client->wants_job = false;
      job.offered = true;
      send(*client, answer::Job{value(job.id), job.name});
      break;
    }
  }
}

void Conductor::on_join_fallback(Client& client, const request::JoinFallback& join) {
  if (client.state != Client::State::kNew)
    return refuse(client, INA_ERR_INVALID, "this connection has joined already");
  if (config_.home != Home::kDedicated)
    return refuse(client, INA_ERR_UNSUPPORTED, "this switch needs no fallback server");
  Job* const found = jobs_.find(JobId{join.job_id});
  if (!found) return refuse(client, INA_ERR_ABORTED, fmt::format("job {} has ended", join.job_id));
  Job& job = *found;
  if (job.fallback.client)
    return refuse(client, INA_ERR_RANK_TAKEN,
                  fmt::format("job '{}' has a fallback server (pid {})", job.name,
                              job.fallback.client->peer.pid));
  auto transport = transport_of(client, join.reach);
  if (!transport) return;
  transport->multicast = false;  // the group's results are the workers'
  // What its predecessor held is lost, so whatever the switch and the workers hold of it belongs to
  // an epoch that has passed.
  const bool successor = job.instance != 0;
  Seq start = job.start;
  const auto epoch = successor ? next_epoch(job) : job.epoch;
  if (!epoch) return refuse(client, epoch.error().status, epoch.error().text);
  if (successor)
    for (const auto& command : lanes_.run(LaneCommand::Kind::kProgress,
                                          [&](LaneCommand&c, uint32_t) { c.job = job.index; }))
      start = std::max(start, command->results_end);
  resources_.drop_worker(job, kFallbackRank);
  answer::FallbackJoined reply{.place = place_in(job),
                               .job = job.name,
                               .workers = job.workers,
                               .instance = *epoch,
                               .start = start.value,
                               .bind_at_once = config_.fixed_slots()};
  reply.place.epoch = *epoch;
  const auto fds = give_place(job, kFallbackRank, *transport, reply.place);
  if (!fds) return refuse(client, fds.error().status, fds.error().text);
  job.fallback.client = &client;
  client.role = Client::Role::kFallback;
  client.job = &job;
  client.rank = kFallbackRank;
  client.state = Client::State::kJoined;
  send(client, reply, *fds);
}

/// Epochs count on within a boot of the switch.
Result<uint32_t> Conductor::next_epoch(const Job& job) const {
  return state_.epoch_after(job.epoch);
}

/// Its region is there, if it needs one.
void Conductor::attach_fallback(Client& client) {
  Job& job = *client.job;
  const bool successor = job.instance != 0;
  if (successor) {
    const auto epoch = next_epoch(job);
    if (!epoch) return refuse(client, epoch.error().status, epoch.error().text);
    job.epoch = *epoch;
    save(job);  // on disk before anybody hears of it
  }
  job.instance = job.epoch;  // epochs are never used twice, not even after a restart of the switch
  // The lanes hear of a job that waits for its workers when these are back.
  if (job.state != Job::State::kRejoining) {
    // Before the successor hears anything, so that nothing of the old epoch reaches it.
    lanes_.run(LaneCommand::Kind::kNewEpoch, [&](LaneCommand& command, uint32_t) {
      command.job = job.index;
      command.spec.epoch = job.epoch;
      command.spec.instance = job.instance;
    });
    if (auto attached = attach_to_lanes(job, kFallbackRank); !attached)
      return refuse(client, attached.error().status, attached.error().text);
  }
  job.fallback.attached = true;
  client.state = Client::State::kAttached;
  logging::info("fallback server attached", client.source())("job", job.name)("id", value(job.id))(
      "instance", job.instance)("epoch", job.epoch)("pid", client.peer.pid);
  if (successor)
    for (Job::Worker& member : job.members)
      if (member.client) send(*member.client, answer::Epoch{job.epoch});
  on_gathered(job);
}

/// The job goes on and waits: what left the switch as partial sums comes back when the server does.
void Conductor::fallback_gone(Client& client) {
  Job& job = *client.job;
  client.job = nullptr;
  logging::warn("fallback server lost", client.source())("job", job.name)("id", value(job.id))(
      "pid", client.peer.pid);
  if (job.fallback.attached && job.state != Job::State::kRejoining)
    lanes_.run(LaneCommand::Kind::kDetach, [&](LaneCommand& command, uint32_t) {
      command.job = job.index;
      command.rank = kFallbackRank;
    });
  resources_.drop_worker(job, kFallbackRank);
  if (job.state == Job::State::kJoining || job.state == Job::State::kRejoining) tell_missing(job);
}

/// The job has ended for the server, too.
void Conductor::release_fallback(Job& job) {
  if (!job.fallback.client) return;
  send(*job.fallback.client, answer::Left{});
  leave_job(*job.fallback.client);
  job.fallback.client = nullptr;
}

}  // namespace ina::switchd
