#include "switchd/jobs/job_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace ina::switchd {

namespace {

// Bare results wait for others (docs/protocol.md, J5) for no longer than anybody would notice, and
// for no longer than a part of the time after which a worker would ask for them.
constexpr Nanos kJoiningPatienceNs = 2'000'000;
constexpr Nanos kJoiningPatiences = 8;

// Memory of one thread of ina-psd: stack, heap, and the kernel's part.
constexpr uint64_t kServerThreadBytes = 64 << 10;

}  // namespace

io::shm::Geometry JobRules::geometry(const scheduler::Grant& grant) const {
  // Payload rows that a worker runs through again and again should stay in its cache; its window
  // may be much larger.
  constexpr uint32_t kTxBytes = 1 << 20;
  constexpr uint32_t kLeastTxRows = 64;
  // Contributions that found no slot come to the fallback in a worker while that waits for a core.
  constexpr uint32_t kSideBytes = 2 << 20;
  // Parked sums reach their keeper as fast as other workers catch up.
  constexpr uint32_t kParkBytes = 4 << 20;
  const uint32_t window = grant.window;
  io::shm::Geometry geometry;
  geometry.lanes = lanes_;
  geometry.tx_depth =
      std::min(std::bit_ceil(window / lanes_),
               std::max(kLeastTxRows, kTxBytes / std::bit_ceil(config_.aggregator.slot_bytes)));
  // Results of the whole double window, and answers to questions asked again.
  geometry.rx_depth = 2 * std::bit_ceil(2 * window / lanes_);
  geometry.slot_bytes = config_.aggregator.slot_bytes;
  geometry.result_rows = 2 * window;
  geometry.side_rows = std::clamp((grant.park_room != 0 ? kParkBytes : kSideBytes) /
                                      std::bit_ceil(config_.aggregator.slot_bytes),
                                  io::shm::side_rows_for(geometry.rx_depth), geometry.rx_depth);
  return geometry;
}

JobRules::TableWords JobRules::table_words(const Job& job) const {
  const size_t ring = aggregator::JobSpec::seen_words(job.grant.window, lanes_);
  const bool loses = !config_.frame_ports.empty() && !config_.aggregator.fixed_slots();
  return {ring, config_.aggregator.fixed_slots() ? 0 : ring, job.grant.in_switch == 0 ? 0 : ring,
          loses ? ring : 0, home_for(job) == Home::kTree ? ring : 0};
}

std::string JobRules::too_wide_text(uint32_t workers) const {
  if (workers <= kMaxWorkers || !config_.aggregator.fixed_slots()) return {};
  return fmt::format(
      "under the policy static a job has at most {} workers, not {}: its pool has one bit for "
      "each; "
      "choose esa or fcfs (aggregator.policy)",
      kMaxWorkers, workers);
}

uint64_t JobRules::memory_bytes(const Job& job) const {
  const io::shm::Geometry geometry = this->geometry(job.grant);
  const TableWords words = table_words(job);
  const Home home = home_for(job);
  const auto room = static_cast<uint32_t>(kMaxWorkers * job.workers_domains().size());
  const uint32_t members = std::min(job.workers, room);
  const uint64_t endpoints = members + (home == Home::kDedicated ? 1 : 0);
  const uint64_t domain_bytes = io::shm::result_region_bytes(geometry) +
                                (words.seen * sizeof(WorkerSet) + words.ring * sizeof(uint64_t) +
                                 words.parked + words.given * sizeof(aggregator::GivenResult) +
                                 words.rows * (sizeof(aggregator::TreeRow) + sizeof(WorkerSet))) *
                                    lanes_;
  uint64_t bytes =
      job.domains.size() * domain_bytes + endpoints * io::shm::SwitchLayout(geometry).bytes;
  if (home == Home::kDedicated) bytes += server_bytes(job);
  if (home == Home::kSpill)
    bytes += lanes_ * aggregator::Fallback::memory_bytes(spill_config(job, 0, Seq{}));
  return bytes;
}

/// Memory that a fallback server needs for the job.
uint64_t JobRules::server_bytes(const Job& job) const {
  aggregator::FallbackConfig config;
  config.window = job.grant.window;
  config.slot_bytes = config_.aggregator.slot_bytes;
  return aggregator::Fallback::memory_bytes(config) +
         io::shm::WorkerLayout(geometry(job.grant)).bytes + kServerThreadBytes;
}

void JobRules::grant_help(Job& job, uint64_t in_switch) const {
  scheduler::Grant& grant = job.grant;
  const Home home = home_for(job);
  const uint64_t most = aggregator::JobSpec::most_in_switch(grant.ceiling(lanes_), home);
  grant.in_switch = std::max<uint32_t>(
      2 * lanes_, static_cast<uint32_t>(std::min({in_switch, most, uint64_t{grant.window}})));
  if (home == Home::kTree) return;  // rows keep what is parked
  const uint64_t room =
      std::min<uint64_t>(config_.park_bytes() / config_.aggregator.slot_bytes, grant.window);
  grant.park_room = static_cast<uint32_t>(room / lanes_) * lanes_;  // each lane has its share
}

aggregator::FallbackConfig JobRules::spill_config(const Job& job, uint32_t lane, Seq start) const {
  aggregator::FallbackConfig config;
  config.workers = job.workers;
  config.window = job.grant.window;
  config.slot_bytes = config_.aggregator.slot_bytes;
  config.lanes = lanes_;
  config.shards = config.lanes;
  config.shard = lane;
  config.instance = job.epoch;  // never used twice, not even after a restart of the switch
  config.epoch = job.epoch;
  config.min_epoch = job.epoch;
  config.start = start;
  config.bind_at_once = config_.aggregator.fixed_slots();
  return config;
}

void JobRules::fill_spec(Job& job, Domain& domain, uint32_t lane, Seq start,
                         aggregator::JobSpec& spec) const {
  // Domains must not meet in the same slots.
  constexpr uint32_t kApart = 0x9e3779b1;
  spec.id = JobId{value(job.id) + kApart * static_cast<uint32_t>(&domain - job.domains.data())};
  spec.epoch = job.epoch;
  spec.workers = domain.members;
  spec.window = job.grant.window;
  spec.start = start;
  spec.rejoined = job.state == Job::State::kRejoining;
  spec.results = domain.results.map.data();
  spec.rules = rules_of(job);
  spec.joining = aggregator::Joining::of(
      job.grant.in_switch == 0 ? job.grant.window : job.grant.in_switch, lanes_,
      std::min<Nanos>(kJoiningPatienceNs, config_.rules.rto_min_ns / kJoiningPatiences));
  spec.instance = job.instance;
  std::fill(domain.placed[lane].begin(), domain.placed[lane].end(), 0);
  spec.placed = domain.placed[lane].data();
  if (config_.aggregator.fixed_slots()) {
    spec.pool = {job.grant.first_slot, job.grant.slots_per_lane, job.geometry.lanes, lane};
  } else {
    std::fill(domain.seen[lane].begin(), domain.seen[lane].end(), WorkerSet());
    spec.seen = domain.seen[lane].data();
    spec.quota = quota_of(job);
  }
  if (auto& given = domain.given[lane]; !given.empty()) {
    std::ranges::fill(given, aggregator::GivenResult{});
    spec.given = given.data();
  }
  if (job.grant.in_switch != 0) fill_help(job, domain, lane, spec);
  if (job.home == Home::kTree) fill_tree(job, domain, lane, spec);
  if (job.home != Home::kSpill) return;
  domain.spill.resize(job.geometry.lanes);
  domain.spill[lane] = std::make_unique<aggregator::Fallback>(spill_config(job, lane, start));
  spec.spill = domain.spill[lane].get();
  spec.instance = job.epoch;
}

/// Domains share what the job may have; one that may have all slots shares them with the others.
scheduler::Quota JobRules::quota_of(const Job& job) const {
  const auto domains = static_cast<uint32_t>(job.domains.size());
  const bool all = job.grant.ceiling_per_lane >= config_.aggregator.slots / lanes_;
  return {job.grant.floor_per_lane / domains,
          all ? job.grant.ceiling_per_lane : std::max(1u, job.grant.ceiling_per_lane / domains)};
}

void JobRules::fill_tree(const Job& job, Domain& domain, uint32_t lane,
                         aggregator::JobSpec& spec) const {
  std::ranges::fill(domain.rows[lane], aggregator::TreeRow{});
  std::ranges::fill(domain.holders[lane], WorkerSet());
  const bool is_below = job.is_wide() && &domain != &job.root_domain();
  spec.tree = {.rows = domain.rows[lane].data(),
               .holders = domain.holders[lane].data(),
               .member_of = domain.member_of.data(),
               .ranks = job.workers,
               .has_parent = is_below || job.above != nullptr,
               // Domains of one switch begin together.
               .parent_epoch = is_below    ? job.epoch
                               : job.above ? job.above->joined.place.epoch
                                           : 0};
}

void JobRules::fill_help(const Job& job, Domain& domain, uint32_t lane,
                         aggregator::JobSpec& spec) const {
  spec.park_by(job.grant.in_switch, job.grant.ceiling(lanes_));
  spec.park_patience = config_.straggler.patience_ns;
  spec.park_if_it_pays = true;
  std::fill(domain.parked[lane].begin(), domain.parked[lane].end(), 0);
  spec.parked_at = domain.parked[lane].data();
  spec.park_room = job.grant.park_room / job.geometry.lanes;
  spec.park_missing = std::max(1u, job.workers / 8);
  spec.park_home = config_.parks_at_home();
  // Until they have attached.
  spec.parkers = {};
  spec.links_lose = false;
}

scheduler::Rules JobRules::rules_of(const Job& job) const {
  scheduler::Rules rules = config_.rules;
  rules.policy = config_.aggregator.policy.kind;
  rules.home = job.home;
  rules.priority_max = job.grant.priority_max;
  return rules;
}

}  // namespace ina::switchd
