#include "switchd/jobs/job_records.h"

#include <algorithm>
#include <ctime>

#include "common/clock.h"
#include "common/logging/record.h"
#include "control/messages.h"
#include "switchd/random.h"

namespace ina::switchd {

namespace {

constexpr Nanos kSecondNs = 1'000'000'000;

/// Of a spread job that has begun.
std::vector<SavedJob::Member> members_of(const Job& job) {
  std::vector<SavedJob::Member> members;
  if (!job.spread || job.state == Job::State::kJoining) return members;
  job.for_each_place([&](Rank place, const Job::Worker& worker) {
    const Job::Below* const below = job.below_at(place);
    members.push_back({worker.number, runs_of(below ? below->ranks : RankSet::of(place)),
                       below ? below->key : 0});
  });
  return members;
}

/// The members of this switch, which wait to come back; all other workers are at the one above.
void place_members(const SavedJob& saved, Job& job) {
  RankSet elsewhere = job.all();
  for (const SavedJob::Member& member : saved.tree_members) {
    const RankSet ranks = ranks_of_runs(member.ranks, job.workers).value();
    elsewhere -= ranks;
    if (member.key == 0) {
      job.at(*ranks.begin()).number = member.number;
      continue;
    }
    job.below.push_back(std::make_unique<Job::Below>());
    Job::Below& below = *job.below.back();
    below.key = member.key;
    below.place.number = member.number;
    job.set_below(below, ranks);
    job.set_attached(below, false);
  }
  for (const Rank rank : elsewhere) job.at(rank).elsewhere = job.at(rank).attached = true;
  job.settle();
}

int64_t saved_until_s(Nanos until, const Moment& now) {
  if (until == 0) return 0;
  // 0 would mean that the job has begun.
  return std::max<int64_t>(1, now.utc_s + (until - now.monotonic) / kSecondNs);
}

}  // namespace

Moment Moment::now() {
  return {.monotonic = now_ns(), .utc_s = ::time(nullptr)};
}

SavedJob saved_of(const Job& job, const Moment& now) {
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
          .reserved_until = saved_until_s(job.reserved_until, now),
          .root = value(job.root),
          .root_ranks = job.root_ranks,
          .home = std::string(name(job.home)),
          .spread = job.spread,
          .tree_members = members_of(job),
          .above_id = job.above ? job.above->joined.place.job_id : 0,
          .above_key = job.above ? job.above->joined.place.job_key : 0};
}

namespace {

/// The domains of workers take 64 each, in the order of their ranks, and the root has them all.
std::vector<Domain> domains_at(std::span<const aggregator::JobIndex> places, uint32_t workers) {
  std::vector<Domain> domains(places.size());
  for (size_t i = 0; i < places.size(); ++i) domains[i].index = places[i];
  if (domains.size() == 1) {
    domains[0].members = workers;
    return domains;
  }
  for (Domain& domain : domains)
    domain.member_of.assign(workers, aggregator::TreePlace::kElsewhere);
  Domain& root = domains.back();
  root.members = static_cast<uint32_t>(domains.size() - 1);
  for (uint32_t rank = 0; rank < workers; ++rank) {
    const uint32_t number = rank / kMaxWorkers;
    Domain& domain = domains[number];
    domain.member_of[rank] = static_cast<uint8_t>(domain.members++);
    root.member_of[rank] = static_cast<uint8_t>(number);
  }
  return domains;
}

}  // namespace

uint32_t domains_of(const SavedJob& saved) {
  return Job::domains_for(saved.spread ? saved.tree_members.size() : saved.workers);
}

std::unique_ptr<Job> job_of(const SavedJob& saved, std::span<const aggregator::JobIndex> places) {
  auto job = std::make_unique<Job>();
  job->name = saved.name;
  job->spread = saved.spread;
  job->domains = domains_at(places, saved.workers);
  job->id = JobId{saved.id};
  job->key = saved.key;
  job->uid = saved.uid;
  job->tenant = saved.tenant;
  job->ticket = saved.ticket;
  job->workers = saved.workers;
  job->epoch = saved.epoch;
  job->root = JobId{saved.root};
  job->root_ranks = saved.root_ranks;
  job->payload_key = {random_u64(), random_u64()};
  job->members.resize(saved.workers);
  if (!saved.tree_members.empty()) place_members(saved, *job);
  return job;
}

Nanos reserved_until(const SavedJob& saved, const Moment& now) {
  if (saved.reserved_until == 0) return 0;
  const int64_t left_s = saved.reserved_until - now.utc_s;
  return now.monotonic +
         std::clamp<int64_t>(left_s, 0, control::request::kMaxTtlNs / kSecondNs) * kSecondNs;
}

SavedJob JobRecords::new_job(const std::string& name, uint32_t workers) {
  SavedJob fresh;
  fresh.name = name;
  fresh.id = state_.new_job_id();
  fresh.key = random_u64();
  fresh.workers = workers;
  fresh.epoch = state_.epoch_after(0).value();
  fresh.spread = spreads_;
  return fresh;
}

Result<void> JobRecords::save(const Job& job) {
  auto saved = state_.put(saved_of(job, Moment::now()));
  if (!saved)
    logging::error("job not saved", job.owner())("job", job.name)("text", saved.error().text);
  return saved;
}

void JobRecords::forget(const Job& job) {
  if (auto erased = state_.erase(value(job.id)); !erased)
    logging::error("job not erased", job.owner())("job", job.name)("text", erased.error().text);
}

}  // namespace ina::switchd
