#include "switchd/memory/resources.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <new>

#include "switchd/jobs/readmission.h"

namespace ina::switchd {

namespace {

// Pieces of held memory that are looked at in one turn.
constexpr size_t kLookedAt = 1'000;
constexpr Nanos kLookAgainNs = 1'000'000'000;
/// Tables from here on are mappings of their own; each lane has so many of a job.
constexpr uint64_t kLargeTableBytes = 64 * 1024;
constexpr uint64_t kTables = 4;
constexpr uint64_t kTablesOfTree = 2;
// A group may take so much of the memory that its owner may still take: many groups have smaller
// windows, and the last one of many still has one.
constexpr uint64_t kMemoryParts = 32;
// Smaller windows save no memory worth having.
constexpr uint64_t kLeastWindowPerLane = 32;

HandleCount handle_count(const ConductorConfig& config) {
  HandleCount count = Handles::of_this_process(config.control.max_connections);
  if (config.mappings != 0) count.mappings = config.mappings;
  if (config.descriptors != 0) count.descriptors = config.descriptors;
  return count;
}

}  // namespace

scheduler::AdmissionConfig admission_config(const ConductorConfig& config, size_t lanes) {
  scheduler::AdmissionConfig admission;
  admission.fixed_slots = config.aggregator.fixed_slots();
  admission.slots = config.aggregator.slots;
  admission.lanes = static_cast<uint32_t>(lanes);
  admission.memory_bytes = config.jobs.memory_bytes;
  admission.slots_per_job = config.static_pools.slots_per_job;
  admission.slots_floor = config.jobs.slots_floor;
  admission.slots_ceiling = config.jobs.slots_ceiling;
  admission.priority_max = config.jobs.priority_max;
  admission.tenants = config.tenants;
  return admission;
}

Resources::Resources(const ConductorConfig& config, const JobRules& rules)
    : config_(config),
      rules_(rules),
      admission_(admission_config(config, rules.lanes())),
      handles_(handle_count(config), config.handles_share_percent) {}

void Resources::set_limits() {
  admission_.set_limits(admission_config(config_, rules_.lanes()));
}

// ---- a job's

Result<void> Resources::take(Job& job, scheduler::JobRequest request, uint64_t window_bytes) {
  const uint64_t wanted = window_bytes == 0 ? config_.jobs.window_bytes
                                            : std::min(window_bytes, config_.jobs.window_bytes);
  request.tenant = job.owner();
  request.workers = job.workers;
  const uint64_t in_switch = std::max<uint64_t>(1, wanted / config_.aggregator.slot_bytes);
  request.window =
      config_.helps()
          ? std::max(in_switch, config_.straggler.run_ahead_bytes / config_.aggregator.slot_bytes)
          : in_switch;
  auto grant = admission_.admit(request);
  if (!grant) return fail(INA_ERR_REFUSED, grant.error());
  job.grant = *grant;
  if (config_.helps()) rules_.grant_help(job, in_switch);
  return take_rest(job);
}

Result<void> Resources::retake(Job& job, const SavedJob& saved) {
  auto grant = readmit(config_, rules_.lanes(), admission_, job, saved);
  if (!grant) return tl::unexpected(grant.error());
  job.grant = *grant;
  if (!config_.aggregator.fixed_slots()) {  // as its workers were told
    job.grant.in_switch = saved.in_switch;
    job.grant.park_room = saved.park_room;
  }
  return take_rest(job);
}

Result<void> Resources::take_for_group(Job& group, const Job& parent, uint32_t window) {
  const auto lanes = rules_.lanes();
  const uint64_t ceiling = parent.grant.ceiling(lanes);
  scheduler::JobRequest request{.tenant = group.owner(),
                                .workers = group.workers,
                                .priority_max = parent.grant.priority_max,
                                .group = true};
  // Where the job may not have all slots, its groups share what it may have.
  if (ceiling < config_.aggregator.slots)
    request.slots_ceiling =
        std::max<uint32_t>(1, static_cast<uint32_t>(ceiling * group.workers / parent.workers));
  if (held_.count() != 0) credit_held();
  const uint64_t share = admission_.memory_left(group.owner()) / kMemoryParts;
  const uint64_t in_switch =
      parent.grant.in_switch != 0 ? parent.grant.in_switch : parent.grant.window;
  for (request.window = window != 0 ? window : parent.grant.window;; request.window /= 2) {
    auto grant = admission_.admit(request);
    if (!grant) return fail(INA_ERR_REFUSED, grant.error());
    group.grant = *grant;
    if (config_.helps()) rules_.grant_help(group, std::min(in_switch, request.window));
    if (window != 0 || rules_.memory_bytes(group) <= share ||
        request.window <= kLeastWindowPerLane * lanes)
      break;
    admission_.release(group.owner(), group.workers, group.grant);
  }
  return take_rest(group);
}

/// Takes the rest for a job whose slots are taken; gives the slots back on failure.
Result<void> Resources::take_rest(Job& job) {
  job.home = rules_.home_for(job);
  job.geometry = rules_.geometry(job.grant);
  auto taken = charge(job, rules_.memory_bytes(job));
  for (Domain& domain : job.domains)
    if (taken) taken = make(job, domain);
  // The fallback server's connection is not among those that the workers share.
  if (taken && job.home == Home::kDedicated) {
    auto share = handles_.take(job.owner(), {0, 1}, mapper_.leaving());
    if (!share) taken = tl::unexpected(share.error());
    if (share) job.share = std::move(*share);
  }
  if (taken) return {};
  admission_.release(job.owner(), job.workers, job.grant);
  return taken;
}

Result<void> Resources::grow(Job& job, std::span<const aggregator::JobIndex> places) {
  std::vector<Domain> more(places.size());
  const uint64_t before = rules_.memory_bytes(job);
  for (size_t i = 0; i < more.size(); ++i) {
    more[i].index = places[i];
    if (auto made = make(job, more[i]); !made) return made;
  }
  const auto roots = job.is_wide() ? 1 : 0;
  const auto at =
      job.domains.insert(job.domains.end() - roots, std::make_move_iterator(more.begin()),
                         std::make_move_iterator(more.end()));
  auto charged = charge(job, rules_.memory_bytes(job) - before);
  if (!charged) job.domains.erase(at, job.domains.end() - roots);
  return charged;
}

/// What a domain needs, but for its memory's charge.
Result<void> Resources::make(const Job& job, Domain& domain) {
  if (auto taken = take_tables(job, domain); !taken) return taken;
  const uint32_t lanes = rules_.lanes();
  const uint64_t words = aggregator::JobSpec::seen_words(job.grant.window, lanes);
  const bool large = words * sizeof(WorkerSet) >= kLargeTableBytes || job.home == Home::kSpill;
  const uint64_t tables = kTables + (job.home == Home::kTree ? kTablesOfTree : 0);
  auto share = handles_.take(job.owner(), {1 + (large ? tables * lanes : 0), 1}, mapper_.leaving());
  if (!share) return tl::unexpected(share.error());
  domain.share = std::move(*share);
  auto results = io::shm::make_region("ina-results", io::shm::result_region_bytes(job.geometry));
  if (!results) return tl::unexpected(results.error());
  domain.results = std::move(*results);
  return {};
}

Result<void> Resources::take_tables(const Job& job, Domain& domain) const {
  const JobRules::TableWords words = rules_.table_words(job);
  try {
    domain.seen.assign(rules_.lanes(), std::vector<WorkerSet>(words.seen));
    domain.placed.assign(rules_.lanes(), std::vector<uint64_t>(words.ring));
    domain.parked.assign(rules_.lanes(), std::vector<uint8_t>(words.parked));
    domain.given.assign(rules_.lanes(), std::vector<aggregator::GivenResult>(words.given));
    domain.rows.assign(rules_.lanes(), std::vector<aggregator::TreeRow>(words.rows));
    domain.holders.assign(rules_.lanes(), std::vector<WorkerSet>(words.rows));
  } catch (const std::bad_alloc&) {
    return fail(INA_ERR_NO_MEMORY, "the switch is out of memory for its tables");
  }
  return {};
}

void Resources::give_back(Job& job) {
  drop_worker(job, kServerPlace);
  for (uint32_t rank = 0; rank < job.workers; ++rank)
    drop_worker(job, Rank{static_cast<uint16_t>(rank)});
  job.below.clear();
  admission_.release(job.owner(), job.workers, job.grant);
  for (Job::ResultBuffer& buffer : job.result_buffers) hold(job.owner(), std::move(buffer.region));
  for (Domain& domain : job.domains) hold(job.owner(), std::move(domain.results));
}

// ---- a worker's

Result<std::unique_ptr<io::shm::WorkerSession>> Resources::make_session(Job& job, Rank rank) {
  if (!admission_.within(job.owner())) credit_held();
  if (!admission_.within(job.owner()))
    return fail(
        INA_ERR_REFUSED,
        fmt::format("no memory for another worker of '{}': processes still have {} bytes of "
                    "places that were left (memory_held_bytes); end them",
                    job.owner(), held_.bytes()));
  Job::Worker& worker = job.at(rank);
  Handles::Share share = std::move(worker.share);
  if (!share) {
    auto taken = handles_.take(job.owner(), {2, 1 + rules_.lanes()}, mapper_.leaving());
    if (!taken) return tl::unexpected(taken.error());
    share = std::move(*taken);
  }
  auto session =
      io::shm::WorkerSession::create(job.geometry, job.domain_of(rank).results.map.data());
  if (session) worker.share = std::move(share);
  return session;
}

void Resources::drop_worker(Job& job, Rank rank) {
  Job::Worker& worker = job.at(rank);
  if (ShmWay* const shm = worker.way.shm()) {
    mapper_.discard(job.owner(), std::move(shm->session->worker_region));
    for (Mapping& memory : shm->session->registered)
      mapper_.discard(job.owner(), std::move(memory));
    hold(job.owner(), std::move(shm->session->switch_region));
    while (!shm->registered.empty()) give_back(job, *shm, shm->registered.begin()->first);
  }
  // A fallback server that is lost has a successor: the job must not end because others have taken
  // up its place meanwhile.
  Handles::Share kept = rank == kServerPlace ? std::move(worker.share) : Handles::Share();
  worker = Job::Worker{};
  worker.share = std::move(kept);
}

Result<void> Resources::take(Job& job, ShmWay& shm, uint32_t number, uint64_t bytes) {
  auto share = handles_.take(job.owner(), {.mappings = 1}, mapper_.leaving());
  if (!share) return tl::unexpected(share.error());
  // The pages are the worker's, the tables that lead to them are not.
  constexpr uint64_t kTableBytes = 4096;
  constexpr uint64_t kMappedByTable = kTableBytes * (kTableBytes / sizeof(uint64_t));
  const uint64_t table_bytes = (bytes + kMappedByTable - 1) / kMappedByTable * kTableBytes;
  if (auto charged = charge(job, table_bytes); !charged) return charged;
  shm.registered[number] = {std::move(*share), table_bytes};
  return {};
}

void Resources::give_back(Job& job, ShmWay& shm, uint32_t number) {
  const auto registration = shm.registered.find(number);
  if (registration == shm.registered.end()) return;
  admission_.give_back_memory(job.owner(), job.grant, registration->second.page_table_bytes);
  shm.registered.erase(registration);
}

// ---- memory

Result<void> Resources::charge(Job& job, uint64_t bytes) {
  auto taken = admission_.take_memory(job.owner(), job.grant, bytes);
  if (!taken && held_.count() != 0) {
    credit_held();
    taken = admission_.take_memory(job.owner(), job.grant, bytes);
  }
  if (taken) return {};
  std::string text = taken.error();
  if (held_.count() != 0)
    text += fmt::format(
        "; {} bytes are memory of ended jobs that processes still have "
        "(memory_held_bytes)",
        held_.bytes());
  return fail(INA_ERR_REFUSED, text);
}

Result<void> Resources::take(Job& job, Job::ResultBuffer& buffer) {
  auto share = handles_.take(job.owner(), {1, 1}, mapper_.leaving());
  if (!share) return tl::unexpected(share.error());
  buffer.share = std::move(*share);
  return charge(job, buffer.bytes());
}

void Resources::give_back(Job& job, Job::ResultBuffer& buffer) {
  admission_.give_back_memory(job.owner(), job.grant, buffer.bytes());
  hold(job.owner(), std::move(buffer.region));
}

/// Memory that workers were given, and for which nobody is charged any more: stays charged until
/// they have given it back.
void Resources::hold(const std::string& owner, io::shm::Region region) {
  const uint64_t bytes = region.map.size();
  if (bytes == 0) return;
  admission_.keep_memory(owner, bytes);
  held_.add(owner, bytes, std::move(region), handles_.keep(owner, {.descriptors = 1}));
  // Most often those who had it are dead.
  held_.look_at_last([this](const std::string& whose, uint64_t freed) {
    admission_.give_back_kept(whose, freed);
  });
}

void Resources::credit_held() {
  credit_held(held_.count());
}

void Resources::credit_held(size_t most) {
  held_.look(
      [this](const std::string& owner, uint64_t bytes) { admission_.give_back_kept(owner, bytes); },
      most);
}

void Resources::look_after_held(Nanos now) {
  if (now < look_again_) return;
  look_again_ = now + kLookAgainNs;
  credit_held(kLookedAt);
}

}  // namespace ina::switchd
