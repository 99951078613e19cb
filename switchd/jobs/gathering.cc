#include "switchd/jobs/gathering.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/clock.h"
#include "common/logging/record.h"
#include "switchd/jobs/wait_reasons.h"

namespace ina::switchd {

namespace answer = control::answer;

namespace {

bool are_attached(const std::vector<std::unique_ptr<Job::Below>>& below) {
  return std::ranges::all_of(
      below, [](const auto& one) { return one->place.attached || one->ranks.empty(); });
}

}  // namespace

Result<void> Gathering::check_attach(const Client& client) {
  if (client.state != Client::State::kJoined) return fail(INA_ERR_INVALID, "attach without join");
  if (client.job->at(client.rank).way.shm())
    return fail(INA_ERR_INVALID, "attach must carry one descriptor, the worker region");
  return {};
}

void Gathering::attach(Client& client) {
  Job& job = *client.job;
  // The lanes hear of all members of these at once.
  const bool later = job.state == Job::State::kRejoining || job.spread;
  if (!later)
    if (auto attached = lane_jobs_.attach(job, client.rank); !attached) {
      // A group whose workers cannot all be in it is of no use to the others.
      if (job.is_group()) return ending_.end(job, attached.error().status, attached.error().text);
      return connections_.refuse(client, attached.error());
    }
  job.at(client.rank).attached = true;
  client.state = Client::State::kAttached;
  if (const Job::Below* const below = job.below_at(client.rank)) {
    job.set_attached(*below, true);
    if (job.state == Job::State::kRunning || job.state == Job::State::kLeaving)
      return go_on_below(client);
  }
  look(job);
}

/// A switch below has come back to a job that went on meanwhile.
void Gathering::go_on_below(Client& client) {
  Job& job = *client.job;
  lane_jobs_.set_held(job, client.rank);
  if (auto attached = lane_jobs_.attach(job, client.rank); !attached)
    return ending_.end(job, attached.error().status, attached.error().text);
  (void)records_.save(job);
  logging::info("switch below is back", job.owner())("job", job.name)("id", value(job.id))(
      "peer", client.peer.text());
  connections_.send(client, answer::Ready{});
}

void Gathering::look(Job& job) {
  if (job.state == Job::State::kRejoining) offers_.offer();
  if (!job.missing().empty() || !rules_.has_fallback(job) || !are_attached(job.below))
    return tell_missing(job);
  if (job.state == Job::State::kRejoining) return job.above ? back_above_(job) : go_on(job, 0);
  if (job.state != Job::State::kJoining) return;
  if (!job.spread) return begin(job);
  job.above.reset();  // nobody is there
  begin_spread(job, 0);
}

/// Switches below whose workers have all gone again.
void Gathering::drop_empty(Job& job) {
  for (const auto& below : job.below)
    if (below->ranks.empty() && below->place.client) {
      ending_.leave(*below->place.client);
      connections_.close_later(*below->place.client);
    }
  std::erase_if(job.below, [](const auto& below) { return below->ranks.empty(); });
  for (size_t i = 0; i < job.below.size(); ++i)
    if (Client* const client = job.below[i]->place.client) client->rank = Job::place_below(i);
}

/// All members of this switch are known only now.
void Gathering::begin_spread(Job& job, uint32_t port_above) {
  drop_empty(job);
  if (!job.settle())
    return ending_.end(
        job, INA_ERR_PEER_LOST,
        fmt::format("a worker of job '{}' left while it gathered: join again", job.name));
  lane_jobs_.add(job, Seq{});
  Result<void> attached;
  job.for_each_place([&](Rank rank, Job::Worker&) {
    if (attached) attached = lane_jobs_.attach(job, rank);
  });
  if (attached && job.above) attached = lane_jobs_.attach_above(job, port_above);
  if (!attached) return ending_.end(job, attached.error().status, attached.error().text);
  begin(job);
}

void Gathering::begin(Job& job) {
  job.state = Job::State::kRunning;
  job.reserved_until = 0;
  // On disk before anybody may start: a worker that runs must be known after a restart.
  (void)records_.save(job);
  logging::info("job running", job.owner())("job", job.name)("id", value(job.id))(
      "epoch", job.epoch)("workers", job.workers);
  job.for_each_client([&](Client& client) { connections_.send(client, answer::Ready{}); });
}

/// All workers are back: only now do the lanes serve the job, so that no contribution is taken by
/// a switch that does not know yet which fragments are complete.
void Gathering::go_on(Job& job, uint32_t port_above) {
  lane_jobs_.add(job, job.start);
  job.state = Job::State::kRunning;
  Result<void> attached;
  job.for_each_place([&](Rank rank, Job::Worker&) {
    if (attached) attached = lane_jobs_.attach(job, rank);
  });
  if (attached && job.above) attached = lane_jobs_.attach_above(job, port_above);
  if (attached && job.fallback.attached) attached = lane_jobs_.attach(job, kServerPlace);
  if (!attached) return ending_.end(job, attached.error().status, attached.error().text);
  if (job.spread) (void)records_.save(job);  // with the keys of this life
  logging::info("job running again", job.owner())("job", job.name)("id", value(job.id))(
      "epoch", job.epoch)("start", job.start.value);
  job.for_each_client([&](Client& client) {
    connections_.send(client, answer::Ready{job.buffers_shared, job.splits});
  });
  // Workers come back to its groups from now on.
  for (Job& group : jobs_)
    if (group.root == job.id) group.rejoin_deadline = now_ns() + config_.rejoin_timeout_ns;
}

void Gathering::tell_missing(Job& job) {
  if (job.spread && job.state == Job::State::kJoining) {
    if (tell_above_) tell_above_(job);
    // The one above knows who is missing in all of the tree.
    if (job.above && job.above->joined.place.job_id != 0) return;
  }
  // Each of many workers would have all others told.
  if (!job.is_wide()) return tell_missing_now(job);
  job.tells_missing = true;
  if (next_tell_ == kNever) next_tell_ = now_ns() + kTellPauseNs;
}

void Gathering::turn(Nanos now) {
  if (now < next_tell_) return;
  next_tell_ = kNever;
  for (Job& job : jobs_)
    if (std::exchange(job.tells_missing, false) && !job.missing().empty()) tell_missing_now(job);
}

void Gathering::tell_missing_now(Job& job) {
  answer::Waiting waiting{.missing = ranks_of(job.missing()),
                          .fallback_missing = !rules_.has_fallback(job)};
  if (waiting.missing.size() > kMostNamed) {
    waiting.more = static_cast<uint32_t>(waiting.missing.size() - kMostNamed);
    waiting.missing.resize(kMostNamed);
  }
  job.for_each_place([&](Rank, Job::Worker& member) {
    if (member.attached && member.client) connections_.send(*member.client, waiting);
  });
}

}  // namespace ina::switchd
