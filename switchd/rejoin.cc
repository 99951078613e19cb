// Jobs that outlive the switch: a switch that starts again holds the places of the jobs in its
// state file, and lets their workers back in. See docs/protocol.md, "Restart of the switch".

#include <algorithm>
#include <ctime>
#include <tuple>

#include "common/logging/record.h"
#include "switchd/conductor_state.h"

namespace ina::switchd {

namespace {

constexpr Nanos kSecondNs = 1'000'000'000;

/// The clock of this boot of the machine as one that goes on over it.
int64_t reserved_until_s(Nanos until) {
  if (until == 0) return 0;
  // 0 would mean that the job has begun.
  return std::max<int64_t>(1, ::time(nullptr) + (until - now_ns()) / kSecondNs);
}

}  // namespace

void Conductor::restore_jobs() {
  const Nanos deadline = now_ns() + config_.rejoin_timeout_ns;
  const std::vector<SavedJob> saved_jobs = state_.jobs();
  for (const bool groups : {false, true})  // these need their jobs
    for (const SavedJob& saved : saved_jobs)
      if ((saved.root != 0) == groups) restore(saved, deadline);
  std::vector<SavedJob> restored;
  for (const Job& job : jobs_) restored.push_back(saved_of(job));
  // Once for all of them: each time is a wait for the disk.
  if (auto saved = state_.replace(std::move(restored)); !saved)
    logging::error("jobs not saved")("text", saved.error().text);
}

/// What no switch with this configuration granted: why it cannot go on with the job; empty if it
/// can. The file may have been written by a switch with another one, or by hand.
std::string Conductor::unfit_text(const SavedJob& saved) const {
  const auto lanes = lanes_.count();
  if (saved.lanes != lanes || saved.slot_bytes != config_.slot_bytes)
    return fmt::format("it ran with switch.lcores {} and aggregator.slot_bytes {}", saved.lanes,
                       saved.slot_bytes);
  const uint32_t per_lane = saved.window / lanes;
  if (saved.window % lanes != 0 || per_lane == 0 || per_lane > scheduler::kMostWindowPerLane)
    return fmt::format("its window of {} fragments is none that a switch with {} lanes grants",
                       saved.window, lanes);
  if (saved.root != 0) {
    const Job* root = jobs_.find(JobId{saved.root});
    if (!root || root->state != Job::State::kRejoining ||
        std::ranges::any_of(saved.root_ranks, [&](uint32_t rank) { return rank >= root->workers; }))
      return "it is a group of a job that does not come back";
  }
  if (config_.fixed_slots())
    return saved.slots_per_lane == 2 * per_lane
               ? ""
               : "it has no pool of slots of its own: it ran with another aggregator.policy";
  if (saved.in_switch > saved.window || saved.park_room > saved.window ||
      saved.park_room % lanes != 0 || (saved.in_switch == 0 && saved.park_room != 0))
    return fmt::format(
        "its window is {} fragments, of which {} cannot be in the switch and {} "
        "with a worker",
        saved.window, saved.in_switch, saved.park_room);
  return {};
}

/// Holds the place of a job until its workers are back, or drops it if this switch cannot.
void Conductor::restore(const SavedJob& saved, Nanos deadline) {
  const auto drop = [&](const std::string& why) {
    logging::error("job not restored")("job", saved.name)("id", saved.id)("text", why);
  };
  if (const std::string why = unfit_text(saved); !why.empty()) return drop(why);
  const bool full =
      saved.root != 0 ? jobs_.groups() >= config_.max_groups : jobs_.jobs() >= config_.max_jobs;
  if (full)
    return drop(saved.root != 0 ? "switch.max_groups is smaller than it was"
                                : "switch.max_jobs is smaller than it was");
  auto job = make_job(saved, jobs_.free_place());
  if (auto taken = resources_.retake(*job, saved); !taken) return drop(taken.error().text);
  const auto epoch = state_.epoch_after(saved.epoch);
  if (!epoch) {
    resources_.give_back(*job);
    return drop(epoch.error().text);
  }
  job->epoch = *epoch;
  if (saved.reserved_until != 0) {
    const int64_t left_s = saved.reserved_until - ::time(nullptr);
    job->reserved_until =
        now_ns() + std::clamp<int64_t>(left_s, 0, admin::kMaxTtlNs / kSecondNs) * kSecondNs;
  } else {
    job->state = Job::State::kRejoining;
    job->rejoin_deadline = deadline;
  }
  logging::info("job waits for its workers")("job", job->name)("id", saved.id)("epoch", job->epoch)(
      "workers", job->workers)("owner", job->owner());
  jobs_.add(std::move(job));
}

/// Jobs whose workers have not come yet are the lanes' as soon as those run. Those that wait for
/// their workers to come back are not, before on_rejoined().
void Conductor::begin_reserved_jobs() {
  for (Job& job : jobs_)
    if (job.state == Job::State::kJoining) add_to_lanes(job, Seq{});
}

void Conductor::on_rejoin(Client& client, const request::Rejoin& message) {
  if (client.state != Client::State::kNew)
    return refuse(client, INA_ERR_INVALID, "this connection has joined already");
  const request::Member& member = message.member;
  if (!check_version(client, member)) return;
  const std::string& name = member.job;
  Job* job = jobs_.find(JobId{message.job_id});
  if (!job || job->is_group() || job->name != name)
    return refuse(client, INA_ERR_SWITCH_LOST,
                  fmt::format("the switch was restarted and does not know job '{}' (id {}) any "
                              "more, or the job has ended",
                              name, message.job_id));
  if (const std::string text = foreign_text(client, *job, member.owner.value_or("")); !text.empty())
    return refuse(client, INA_ERR_REFUSED, text);
  rejoin(client, *job, message);
}

/// A worker comes back to a job or group that is its own.
void Conductor::rejoin(Client& client, Job& job, const request::Rejoin& message) {
  const std::string& name = job.name;
  const request::Member& member = message.member;
  const auto [low, next, results_end] = std::tuple(message.low, message.next, message.results_end);
  const auto transport = transport_of(client, member.reach);
  if (!transport) return;
  if (message.job_key != job.key)
    return refuse(client, INA_ERR_REFUSED, fmt::format("this is not the key of job '{}'", name));
  if (member.world_size != job.workers || member.rank < 0 || member.rank >= job.workers)
    return refuse(client, INA_ERR_INVALID,
                  fmt::format("job '{}' has {} workers, not one of rank {} of {}", name,
                              job.workers, member.rank, member.world_size));
  const auto rank = static_cast<uint32_t>(member.rank);
  if (low > next || next - low > job.grant.window || results_end > next)
    return refuse(client, INA_ERR_INVALID,
                  fmt::format("rank {} of job '{}' cannot stand at fragments {}..{} with results "
                              "before {}: its window is {}",
                              rank, name, low, next, results_end, job.grant.window));
  if (job.state != Job::State::kRejoining)
    return refuse(client, INA_ERR_RANK_TAKEN,
                  fmt::format("job '{}' waits for nobody to re-join", name));
  Job::Worker& worker = job.members[rank];
  if (Client* before = worker.client) {
    // A worker that holds the key and starts over: its old connection is about to be closed.
    leave_job(*before);
    connections_.close_later(*before);
    resources_.drop_worker(job, Rank{static_cast<uint8_t>(rank)});
  }
  job.start = std::max(job.start, Seq{results_end});
  job.buffers_shared = std::max(job.buffers_shared, message.buffers_shared);
  job.splits = std::max(job.splits, message.splits);
  logging::info("worker re-joins", client.source())("job", name)("id", value(job.id))("rank", rank)(
      "peer", client.peer.text())("low", low)("next", next)("results_end", results_end);
  answer_join(client, job, Rank{static_cast<uint8_t>(rank)}, *transport);
}

/// All workers are back: only now do the lanes serve the job, so that no contribution is taken by
/// a switch that does not know yet which fragments are complete.
void Conductor::on_rejoined(Job& job) {
  add_to_lanes(job, job.start);
  job.state = Job::State::kRunning;
  for (uint32_t rank = 0; rank < job.workers; ++rank)
    if (auto attached = attach_to_lanes(job, Rank{static_cast<uint8_t>(rank)}); !attached)
      return end_job(job, attached.error().status, attached.error().text);
  if (job.fallback.attached)
    if (auto attached = attach_to_lanes(job, kFallbackRank); !attached)
      return end_job(job, attached.error().status, attached.error().text);
  logging::info("job running again", job.owner())("job", job.name)("id", value(job.id))(
      "epoch", job.epoch)("start", job.start.value);
  for (Job::Worker& member : job.members)
    send(*member.client, answer::Ready{job.buffers_shared, job.splits});
  // Workers come back to its groups from now on.
  for (Job& group : jobs_)
    if (group.root == job.id) group.rejoin_deadline = now_ns() + config_.rejoin_timeout_ns;
}

void Conductor::end_overdue_rejoins(Nanos now) {
  for (Job& job : jobs_) {
    if (job.state != Job::State::kRejoining || now < job.rejoin_deadline) continue;
    end_job(job, INA_ERR_PEER_LOST,
            fmt::format("{} of job '{}' did not come back within {} s after the switch was "
                        "restarted (control.rejoin_timeout)",
                        waiting_.missing_text(job), job.name,
                        static_cast<double>(config_.rejoin_timeout_ns) * 1e-9));
  }
}

SavedJob Conductor::saved_of(const Job& job) {
  return {.name = job.name,
          .id = value(job.id),
          .key = job.key,
          .uid = job.uid,
          .workers = job.workers,
          .epoch = job.epoch,
          .lanes = job.geometry.lanes,
          .slot_bytes = job.geometry.slot_bytes,
          .window = job.grant.window,
          .first_slot = job.grant.first_slot,
          .slots_per_lane = job.grant.slots_per_lane,
          .tenant = job.tenant,
          .floor_per_lane = job.grant.floor_per_lane,
          .ceiling_per_lane = job.grant.ceiling_per_lane,
          .priority_max = job.grant.priority_max,
          .in_switch = job.grant.in_switch,
          .park_room = job.grant.park_room,
          .ticket = job.ticket,
          .reserved_until = reserved_until_s(job.reserved_until),
          .root = value(job.root),
          .root_ranks = job.root_ranks};
}

/// A job that cannot be saved goes on, but would not survive a restart.
void Conductor::save(const Job& job) {
  if (auto saved = state_.put(saved_of(job)); !saved)
    logging::error("job not saved", job.owner())("job", job.name)("text", saved.error().text);
}

void Conductor::forget(const Job& job) {
  if (auto erased = state_.erase(value(job.id)); !erased)
    logging::error("job not erased", job.owner())("job", job.name)("text", erased.error().text);
}

}  // namespace ina::switchd
