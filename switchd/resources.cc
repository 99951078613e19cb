// What a job gets of the switch, by policy: window, slots, memory; and what lanes and workers are
// told of it.
#include <algorithm>
#include <bit>
#include <new>

#include "switchd/conductor_state.h"

namespace ina::switchd {

namespace {

io::shm::Geometry geometry_for(const scheduler::Grant& grant, uint32_t lanes, uint32_t slot_bytes) {
  // Payload rows that a worker runs through again and again should stay in its cache; its window
  // may be much larger.
  constexpr uint32_t kTxBytes = 1 << 20;
  constexpr uint32_t kLeastTxRows = 64;
  // Contributions that found no slot come to the fallback in a worker while that waits for a core.
  constexpr uint32_t kSideBytes = 2 << 20;
  // What is parked at a worker comes as fast as others catch up.
  constexpr uint32_t kParkBytes = 4 << 20;
  const uint32_t window = grant.window;
  io::shm::Geometry geometry;
  geometry.lanes = lanes;
  geometry.tx_depth = std::min(std::bit_ceil(window / lanes),
                               std::max(kLeastTxRows, kTxBytes / std::bit_ceil(slot_bytes)));
  // Results of the whole double window, and answers to questions asked again.
  geometry.rx_depth = 2 * std::bit_ceil(2 * window / lanes);
  geometry.slot_bytes = slot_bytes;
  geometry.result_rows = 2 * window;
  geometry.side_rows =
      std::clamp((grant.park_room != 0 ? kParkBytes : kSideBytes) / std::bit_ceil(slot_bytes),
                 io::shm::side_rows_for(geometry.rx_depth), geometry.rx_depth);
  return geometry;
}

}  // namespace

/// Decides window, slots and memory of a job, whose number of workers is known. Whatever was taken
/// is given back by give_back_resources().
/// `request`: what the job asks for, beside its window.
Result<void> Conductor::take_resources(Job& job, scheduler::JobRequest request,
                                       uint64_t window_bytes) {
  const uint64_t wanted =
      window_bytes == 0 ? config_.window_bytes : std::min(window_bytes, config_.window_bytes);
  request.tenant = job.owner();
  request.workers = job.workers;
  const uint64_t in_switch = std::max<uint64_t>(1, wanted / config_.slot_bytes);
  request.window = config_.helps()
                       ? std::max(in_switch, config_.run_ahead_bytes / config_.slot_bytes)
                       : in_switch;
  auto grant = admission_.admit(request);
  if (!grant) return fail(INA_ERR_REFUSED, grant.error());
  job.grant = *grant;
  if (config_.helps()) grant_help(job.grant, in_switch);
  return take_memory(job);
}

/// `in_switch`: fragments that each worker would have in the switch at once. More than the job may
/// have slots would only pass them by.
void Conductor::grant_help(scheduler::Grant& grant, uint64_t in_switch) const {
  const auto lanes = static_cast<uint32_t>(lanes_.size());
  const uint64_t slots = uint64_t{grant.ceiling_per_lane} * lanes;
  grant.in_switch = std::max<uint32_t>(
      2 * lanes, static_cast<uint32_t>(std::min({in_switch, slots, uint64_t{grant.window}})));
  const uint64_t room = std::min<uint64_t>(config_.park_bytes / config_.slot_bytes, grant.window);
  grant.park_room = static_cast<uint32_t>(room / lanes) * lanes;  // each lane has its share
}

/// What a job had that ran when the last switch ended: the regions' sizes follow from its window.
Result<void> Conductor::retake_resources(Job& job, const SavedJob& saved) {
  const scheduler::JobRequest request{
      .tenant = job.owner(), .workers = saved.workers, .window = saved.window};
  // Switches before this one did not write down what they promised of shared slots.
  const bool known = config_.fixed_slots() || saved.ceiling_per_lane != 0;
  // The array may be smaller than it was.
  const uint32_t ceiling =
      std::min(saved.ceiling_per_lane, config_.slots / static_cast<uint32_t>(lanes_.size()));
  auto grant =
      known ? admission_.readmit(request, {saved.first_slot, saved.slots_per_lane, saved.window,
                                           saved.floor_per_lane, ceiling, saved.priority_max})
            : admission_.admit(request);
  if (!grant) return fail(INA_ERR_REFUSED, grant.error());
  job.grant = *grant;
  if (!config_.fixed_slots()) {  // as its workers were told
    job.grant.in_switch = saved.in_switch;
    job.grant.park_room = saved.park_room;
  }
  return take_memory(job);
}

/// The memory of a job whose slots are taken; gives them back if there is none.
Result<void> Conductor::take_memory(Job& job) {
  const auto lanes = static_cast<uint32_t>(lanes_.size());
  job.geometry = geometry_for(job.grant, lanes, config_.slot_bytes);
  const size_t ring = aggregator::JobSpec::seen_words(job.grant.window, lanes);
  const size_t seen_words = config_.fixed_slots() ? 0 : ring;
  const size_t parked_words = job.grant.in_switch == 0 ? 0 : ring;
  const uint64_t endpoints = job.workers + (config_.home == Home::kDedicated ? 1 : 0);
  uint64_t bytes = io::shm::result_region_bytes(job.geometry) +
                   endpoints * io::shm::SwitchLayout(job.geometry).bytes +
                   (seen_words * sizeof(Bitmap) + ring * sizeof(uint64_t) + parked_words) * lanes;
  if (config_.home == Home::kSpill)
    bytes += lanes * aggregator::Fallback::memory_bytes(spill_config(job, 0, Seq{}));
  auto taken = charge(job, bytes);
  try {
    if (taken) {
      job.seen.assign(lanes, std::vector<Bitmap>(seen_words));
      job.placed.assign(lanes, std::vector<uint64_t>(ring));
      job.parked.assign(lanes, std::vector<uint8_t>(parked_words));
    }
  } catch (const std::bad_alloc&) {
    taken = fail(INA_ERR_NO_MEMORY, "the switch is out of memory for its tables");
  }
  if (!taken) give_back_resources(job);
  return taken;
}

void Conductor::give_back_resources(Job& job) {
  admission_.release(job.owner(), job.workers, job.grant);
}

aggregator::FallbackConfig Conductor::spill_config(const Job& job, uint32_t lane, Seq start) const {
  aggregator::FallbackConfig config;
  config.workers = job.workers;
  config.window = job.grant.window;
  config.slot_bytes = config_.slot_bytes;
  config.lanes = job.geometry.lanes;
  config.shards = job.geometry.lanes;
  config.shard = lane;
  config.instance = job.epoch;  // never used twice, not even after a restart of the switch
  config.epoch = job.epoch;
  config.min_epoch = job.epoch;
  config.start = start;
  config.bind_at_once = config_.fixed_slots();
  return config;
}

/// What a lane must know of a job that starts at fragment `start`. The lanes do not serve it yet.
void Conductor::fill_spec(Job& job, uint32_t lane, Seq start, aggregator::JobSpec& spec) {
  spec.id = job.id;
  spec.epoch = job.epoch;
  spec.workers = job.workers;
  spec.window = job.grant.window;
  spec.start = start;
  spec.rejoined = job.state == Job::State::kRejoining;
  spec.results = job.results.map.data();
  spec.priority_max = job.grant.priority_max;
  spec.home = config_.home;
  spec.instance = job.instance;
  std::fill(job.placed[lane].begin(), job.placed[lane].end(), 0);
  spec.placed = job.placed[lane].data();
  if (config_.fixed_slots()) {
    spec.pool = {job.grant.first_slot, job.grant.slots_per_lane, job.geometry.lanes, lane};
  } else {
    std::fill(job.seen[lane].begin(), job.seen[lane].end(), 0);
    spec.seen = job.seen[lane].data();
    spec.quota = {job.grant.floor_per_lane, job.grant.ceiling_per_lane};
  }
  if (job.grant.in_switch != 0) fill_help(job, lane, spec);
  if (config_.home != Home::kSpill) return;
  job.spill.resize(job.geometry.lanes);
  job.spill[lane] = std::make_unique<aggregator::Fallback>(spill_config(job, lane, start));
  spec.spill = job.spill[lane].get();
  spec.instance = job.epoch;
}

void Conductor::fill_help(Job& job, uint32_t lane, aggregator::JobSpec& spec) const {
  spec.park_by(job.grant.in_switch, config_.home);
  spec.park_patience = config_.park_patience_ns;
  spec.park_if_it_pays = true;
  std::fill(job.parked[lane].begin(), job.parked[lane].end(), 0);
  spec.parked_at = job.parked[lane].data();
  spec.park_room = job.grant.park_room / job.geometry.lanes;
  spec.park_missing = std::max(1u, job.workers / 8);
  spec.park_home = config_.park_home;
  spec.parkers = 0;  // until they have attached
}

/// Adds to the answer to a join by which rules the worker is to play.
void Conductor::add_rules(const Job& job, Json& joined) const {
  joined["policy"] = std::string(name(config_.policy));
  joined["home"] = std::string(name(config_.home));
  joined["instance"] = job.instance;
  joined["rto_min_us"] = config_.rto_min_us;
  joined["rto_max_us"] = config_.rto_max_us;
  joined["ecn"] = config_.ecn;
  joined["aggregator_window"] = config_.aggregator_window;
  joined["priority_max"] = job.grant.priority_max;
  if (job.grant.in_switch == 0) return;
  joined["in_switch"] = job.grant.in_switch;
  joined["park_room"] = job.grant.park_room;
}

}  // namespace ina::switchd
