#include "switchd/jobs/fallback_places.h"

#include <algorithm>
#include <utility>

#include "common/logging/record.h"

namespace ina::switchd {

namespace answer = control::answer;

Result<void> FallbackPlaces::give(Client& client, Job& job, Way way) {
  // The sums that its predecessor held are lost, so all state of the switch and the workers about
  // them belongs to an epoch that has passed.
  const bool successor = job.instance != 0;
  const auto epoch = successor ? records_.next_epoch(job) : job.epoch;
  if (!epoch) return tl::unexpected(epoch.error());
  const Seq start = successor ? std::max(job.start, lane_jobs_.results_end(job)) : job.start;
  resources_.drop_worker(job, kServerPlace);
  answer::FallbackJoined reply{.place = placement_.common(job),
                               .job = job.name,
                               .workers = job.workers,
                               .instance = *epoch,
                               .start = start.value,
                               .bind_at_once = config_.fixed_slots()};
  reply.place.epoch = *epoch;
  const auto fds = placement_.give(job, kServerPlace, std::move(way), reply.place);
  if (!fds) return tl::unexpected(fds.error());
  job.fallback.client = &client;
  client.role = Client::Role::kFallback;
  client.job = &job;
  client.rank = kServerPlace;
  client.state = Client::State::kJoined;
  connections_.send(client, reply, *fds);
  return {};
}

Result<void> FallbackPlaces::attach(Client& client) {
  Job& job = *client.job;
  const bool successor = job.instance != 0;
  if (successor) {
    const auto epoch = records_.next_epoch(job);
    if (!epoch) return tl::unexpected(epoch.error());
    job.epoch = *epoch;
    (void)records_.save(job);  // on disk before anybody hears of it
  }
  job.instance = job.epoch;  // epochs are never used twice, not even after a restart of the switch
  if (auto attached = attach_to_lanes(job); !attached) return attached;
  job.fallback.attached = true;
  client.state = Client::State::kAttached;
  logging::info("fallback server attached", job.owner())("job", job.name)("id", value(job.id))(
      "instance", job.instance)("epoch", job.epoch)("pid", client.peer.pid);
  if (successor)
    for (Job::Worker& member : job.members)
      if (member.client) connections_.send(*member.client, answer::Epoch{job.epoch});
  gathering_.look(job);
  return {};
}

Result<void> FallbackPlaces::attach_to_lanes(Job& job) {
  // The lanes hear of a job that waits for its workers when these are back.
  if (job.state == Job::State::kRejoining) return {};
  // Before the successor hears anything, so that nothing of the old epoch reaches it.
  lane_jobs_.begin_epoch(job);
  return lane_jobs_.attach(job, kServerPlace);
}

void FallbackPlaces::lose(Client& client) {
  Job& job = *client.job;
  client.job = nullptr;
  logging::warn("fallback server lost", job.owner())("job", job.name)("id", value(job.id))(
      "pid", client.peer.pid);
  if (job.fallback.attached && job.state != Job::State::kRejoining)
    lane_jobs_.detach(job, kServerPlace);
  resources_.drop_worker(job, kServerPlace);
  if (job.state == Job::State::kJoining || job.state == Job::State::kRejoining)
    gathering_.tell_missing(job);
}

}  // namespace ina::switchd
