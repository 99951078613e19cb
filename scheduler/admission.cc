#include "scheduler/admission.h"

#include <algorithm>
#include <optional>

namespace ina::scheduler {

StaticAdmission::StaticAdmission(uint32_t slots, uint32_t lanes)
    : slots_per_lane_(slots / lanes),
      lanes_(lanes),
      area_ends_{slots_per_lane_},
      free_{{0, slots_per_lane_, kCommon}} {}

/// Cuts it off the end of the common area.
uint32_t StaticAdmission::add_area(uint32_t slots_per_lane) {
  const auto area = static_cast<uint32_t>(area_ends_.size());
  const uint32_t count = std::min(slots_per_lane, area_ends_[kCommon]);
  const uint32_t end = area_ends_[kCommon];
  // Areas are numbered from the end of the array; area_at() takes the first that ends behind it.
  area_ends_[kCommon] -= count;
  area_ends_.push_back(end);
  free_.front().count -= count;
  if (count != 0) free_.insert(free_.begin() + 1, {area_ends_[kCommon], count, area});
  if (free_.front().count == 0) free_.erase(free_.begin());
  return area;
}

uint32_t StaticAdmission::area_at(uint32_t slot) const {
  if (slot < area_ends_[kCommon]) return kCommon;
  for (auto area = static_cast<uint32_t>(area_ends_.size() - 1); area > kCommon; --area)
    if (slot < area_ends_[area]) return area;
  return kCommon;
}

uint32_t StaticAdmission::free_per_lane(uint32_t area) const {
  uint32_t count = 0;
  for (const Range& range : free_)
    if (range.area == area) count += range.count;
  return count;
}

uint32_t StaticAdmission::need(uint32_t slots_per_job, uint64_t window_wanted) const {
  const auto window = std::min<uint64_t>(slots_per_job / 2, window_wanted);
  return 2 * std::max<uint32_t>(1, static_cast<uint32_t>(window) / lanes_);
}

tl::expected<Grant, std::string> StaticAdmission::admit(uint32_t slots_per_job,
                                                        uint64_t window_wanted, uint32_t area) {
  const uint32_t need_per_lane = need(slots_per_job, window_wanted);
  const auto take = [&](uint32_t from) -> std::optional<Grant> {
    const auto range = std::ranges::find_if(
        free_, [&](const Range& free) { return free.area == from && free.count >= need_per_lane; });
    if (range == free_.end()) return std::nullopt;
    const Grant grant{range->first, need_per_lane, need_per_lane / 2 * lanes_};
    range->first += need_per_lane;
    range->count -= need_per_lane;
    if (range->count == 0) free_.erase(range);
    return grant;
  };
  if (auto grant = take(area)) return *grant;
  if (auto grant = take(kCommon)) return *grant;

  uint32_t largest = 0;
  for (const Range& range : free_)
    if (range.area == area || range.area == kCommon) largest = std::max(largest, range.count);
  const uint32_t free = free_per_lane(kCommon) + (area == kCommon ? 0 : free_per_lane(area));
  return tl::unexpected("the job needs " + std::to_string(need_per_lane * lanes_) +
                        " slots in one piece, " + std::to_string(free * lanes_) + " of " +
                        std::to_string(slots_total()) + " are free and the largest piece is " +
                        std::to_string(largest * lanes_) + ": short by " +
                        std::to_string((need_per_lane - largest) * lanes_) +
                        "; wait for a job to end, ask for a smaller window, or raise "
                        "aggregator.slots");
}

bool StaticAdmission::reserve(const Grant& grant, uint32_t area) {
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const uint64_t range_end = uint64_t{range->first} + range->count;
    const uint64_t end = uint64_t{grant.first_slot} + grant.slots_per_lane;
    if (grant.first_slot < range->first || end > range_end) continue;
    if (range->area != area && range->area != kCommon) return false;
    const Range after{static_cast<uint32_t>(end), static_cast<uint32_t>(range_end - end),
                      range->area};
    range->count = grant.first_slot - range->first;
    if (range->count == 0)
      range = free_.erase(range);
    else
      ++range;
    if (after.count != 0) free_.insert(range, after);
    return true;
  }
  return false;
}

void StaticAdmission::release(const Grant& grant) {
  const Range range{grant.first_slot, grant.slots_per_lane, area_at(grant.first_slot)};
  auto next = std::lower_bound(free_.begin(), free_.end(), range,
                               [](const Range& a, const Range& b) { return a.first < b.first; });
  next = free_.insert(next, range);
  const auto adjoin = [](const Range& a, const Range& b) {
    return a.first + a.count == b.first && a.area == b.area;
  };
  if (const auto after = next + 1; after != free_.end() && adjoin(*next, *after)) {
    next->count += after->count;
    free_.erase(after);
  }
  if (next != free_.begin()) {
    const auto before = next - 1;
    if (adjoin(*before, *next)) {
      before->count += next->count;
      free_.erase(next);
    }
  }
}

tl::expected<Grant, std::string> SharedAdmission::admit(uint64_t window, uint32_t floor,
                                                        uint32_t ceiling, uint32_t kept) {
  Grant grant;
  grant.window =
      static_cast<uint32_t>(std::clamp<uint64_t>(window / lanes_, 1, kMostWindowPerLane)) * lanes_;
  grant.floor_per_lane = per_lane(floor);
  grant.ceiling_per_lane =
      ceiling == 0 ? slots_per_lane_ : std::min(per_lane(ceiling), slots_per_lane_);
  if (grant.ceiling_per_lane < grant.floor_per_lane && grant.ceiling_per_lane < slots_per_lane_)
    return tl::unexpected("its ceiling of " + std::to_string(ceiling) +
                          " slots is below its floor of " + std::to_string(floor));
  if (reserve(grant, kept)) return grant;
  const uint32_t free = slots_free_per_lane() + kept;
  return tl::unexpected("its floor needs " + std::to_string(grant.floor_per_lane * lanes_) +
                        " slots, " + std::to_string(free * lanes_) + " of " +
                        std::to_string(slots_total()) + " are not promised to others: short by " +
                        std::to_string((grant.floor_per_lane - free) * lanes_) +
                        "; wait for a job to end, lower jobs.slots_floor, or raise "
                        "aggregator.slots");
}

bool SharedAdmission::reserve(const Grant& grant, uint32_t kept) {
  const uint32_t more = grant.floor_per_lane - std::min(kept, grant.floor_per_lane);
  if (more > slots_free_per_lane()) return false;
  floors_per_lane_ += more;
  return true;
}

tl::expected<void, std::string> MemoryBudget::take(uint64_t bytes) {
  const uint64_t free = total_ > used_ ? total_ - used_ : 0;
  if (bytes > free)
    return tl::unexpected("it needs " + std::to_string(bytes) + " bytes of memory, " +
                          std::to_string(free) + " of " + std::to_string(total_) +
                          " are free: short by " + std::to_string(bytes - free) +
                          "; wait for a job to end, ask for a smaller window, or raise "
                          "jobs.memory");
  used_ += bytes;
  return {};
}

// ---- tenants

namespace {

/// "short by 3; ...": the end of all refusals.
std::string short_by(uint64_t need, uint64_t left, const std::string& what_to_do) {
  return ": short by " + std::to_string(need - left) + "; " + what_to_do;
}

uint64_t left_of(uint64_t limit, uint64_t used) {
  return limit > used ? limit - used : 0;
}

}  // namespace

Admission::Admission(AdmissionConfig config)
    : config_(std::move(config)),
      pools_(config_.slots, config_.lanes),
      shared_(config_.slots, config_.lanes),
      memory_(config_.memory_bytes) {
  set_quotas();
  if (!config_.fixed_slots) return;
  for (const TenantQuota& quota : config_.tenants)
    if (quota.name != kOtherTenants && quota.slots_floor != 0)
      tenants_[quota.name].area = pools_.add_area(shared_.per_lane(quota.slots_floor));
}

/// Sets the configuration's quotas. Nothing is kept for a tenant yet.
void Admission::set_quotas() {
  for (const TenantQuota& quota : config_.tenants) {
    if (quota.name == kOtherTenants) {
      others_ = quota;
      continue;
    }
    Tenant& tenant = tenants_[quota.name];
    tenant.quota = quota;
    tenant.listed = true;
    if (config_.fixed_slots) continue;
    // Its jobs may have some of these already.
    const uint32_t most = shared_.slots_free_per_lane() + tenant.floors_per_lane;
    tenant.floor_per_lane = std::min(shared_.per_lane(quota.slots_floor), most);
    shared_.keep(tenant.kept_per_lane());
  }
}

void Admission::set_limits(AdmissionConfig config) {
  config_ = std::move(config);
  memory_.set_total(config_.memory_bytes);
  others_ = {};
  for (auto& [name, tenant] : tenants_) {
    shared_.keep_no_longer(tenant.kept_per_lane());
    tenant.floor_per_lane = 0;
    tenant.listed = false;
  }
  set_quotas();
  for (const std::string& name : tenants()) {
    Tenant& tenant = tenants_[name];
    if (tenant.listed) continue;
    tenant.quota = others_;
    tenant.quota.name = name;
    drop_if_unused(name);
  }
}

Admission::Tenant& Admission::tenant_of(const std::string& name) {
  const auto [found, fresh] = tenants_.try_emplace(name);
  if (fresh) {
    found->second.quota = others_;
    found->second.quota.name = name;
  }
  return found->second;
}

void Admission::drop_if_unused(const std::string& name) {
  const auto found = tenants_.find(name);
  if (found != tenants_.end() && !found->second.listed && found->second.jobs == 0 &&
      found->second.groups == 0 && found->second.memory_held_bytes == 0)
    tenants_.erase(found);
}

/// Why the tenant may not have one more job with so many workers; empty if it may.
std::string Admission::crowded_text(const Tenant& tenant, uint32_t workers) {
  const TenantQuota& quota = tenant.quota;
  const std::string who = "tenant '" + quota.name + "' ";
  const std::string wait = "wait for one of its jobs to end, or raise ";
  if (quota.jobs_max != 0 && tenant.jobs >= quota.jobs_max)
    return who + "has " + std::to_string(tenant.jobs) + " of " + std::to_string(quota.jobs_max) +
           " jobs" + short_by(tenant.jobs + uint64_t{1}, quota.jobs_max, wait + "its jobs_max");
  const uint64_t left = left_of(quota.workers_max, tenant.workers);
  if (quota.workers_max != 0 && workers > left)
    return "it has " + std::to_string(workers) + " workers, " + who + "has " +
           std::to_string(left) + " of " + std::to_string(quota.workers_max) + " places left" +
           short_by(workers, left, wait + "its workers_max");
  return {};
}

/// The part of the tenant's ceiling that its jobs do not have.
uint32_t Admission::left_per_lane(const Tenant& tenant) const {
  if (tenant.quota.slots_ceiling == 0) return UINT32_MAX;
  return static_cast<uint32_t>(
      left_of(tenant.quota.slots_ceiling / config_.lanes, tenant.ceilings_per_lane));
}

/// The part of the tenant's ceiling for a job that does not ask.
uint32_t Admission::share_per_lane(const Tenant& tenant) const {
  const uint32_t left = left_per_lane(tenant);
  if (left == UINT32_MAX || tenant.quota.jobs_max == 0) return left;
  return std::min(left, tenant.quota.slots_ceiling / config_.lanes / tenant.quota.jobs_max);
}

std::string Admission::over_text(const Tenant& tenant, uint32_t need_per_lane) const {
  const uint32_t need = need_per_lane * config_.lanes;
  const uint32_t left = left_per_lane(tenant) * config_.lanes;
  return "it needs " + std::to_string(need) + " slots, tenant '" + tenant.quota.name + "' has " +
         std::to_string(left) + " of " + std::to_string(tenant.quota.slots_ceiling) + " left" +
         short_by(need, left,
                  "wait for one of its jobs to end, ask for less, or raise its slots_ceiling");
}

tl::expected<Grant, std::string> Admission::admit_fixed(const Tenant& tenant,
                                                        const JobRequest& request) {
  uint32_t slots = config_.slots_per_job;
  const uint32_t step = 2 * config_.lanes;
  if (request.slots_floor != 0)
    slots = (request.slots_floor + step - 1) / step * step;
  else if (const uint32_t share = share_per_lane(tenant); share != UINT32_MAX)
    slots = std::min(slots, share * config_.lanes);
  if (request.slots_ceiling != 0) slots = std::min(slots, request.slots_ceiling);
  const uint32_t need = pools_.need(slots, request.window);
  if (request.slots_ceiling != 0 &&
      std::max(need * config_.lanes, request.slots_floor) > request.slots_ceiling)
    return tl::unexpected(
        "its ceiling of " + std::to_string(request.slots_ceiling) + " slots is below the " +
        std::to_string(std::max(need * config_.lanes, request.slots_floor)) + " that it needs");
  if (need > left_per_lane(tenant)) return tl::unexpected(over_text(tenant, need));
  return pools_.admit(slots, request.window, tenant.area);
}

tl::expected<Grant, std::string> Admission::admit_shared(const Tenant& tenant,
                                                         const JobRequest& request) {
  const TenantQuota& quota = tenant.quota;
  const uint32_t kept = tenant.kept_per_lane();
  uint32_t floor = shared_.per_lane(request.slots_floor);
  if (floor == 0) {
    const uint32_t share = quota.jobs_max == 0 ? kept : tenant.floor_per_lane / quota.jobs_max;
    floor = std::max(shared_.per_lane(config_.slots_floor), std::min(kept, share));
  }
  uint32_t ceiling = request.slots_ceiling != 0 ? request.slots_ceiling : config_.slots_ceiling;
  if (const uint32_t left = left_per_lane(tenant); left != UINT32_MAX) {
    const bool asked = request.slots_ceiling != 0;
    const uint32_t share = asked ? UINT32_MAX : std::max(share_per_lane(tenant), floor);
    const uint32_t wanted = ceiling == 0 ? share : std::min(shared_.per_lane(ceiling), share);
    const uint32_t need = std::max({uint32_t{1}, floor, asked ? wanted : 0});
    if (need > left) return tl::unexpected(over_text(tenant, need));
    ceiling = std::clamp(wanted, need, left) * config_.lanes;
  }
  return shared_.admit(request.window, floor * config_.lanes, ceiling, kept);
}

tl::expected<Grant, std::string> Admission::admit_group(const Tenant& tenant,
                                                        const JobRequest& request) {
  if (!config_.fixed_slots) {
    auto grant = shared_.admit(request.window, 0, request.slots_ceiling);
    if (grant) grant->group = true;
    return grant;
  }
  // A smaller pool makes it slower; no pool would make it impossible.
  tl::expected<Grant, std::string> grant;
  const uint32_t most = request.slots_floor != 0 ? request.slots_floor : config_.slots_per_job;
  const uint32_t least = request.slots_floor != 0 ? request.slots_floor : 2 * config_.lanes;
  for (uint32_t slots = most; slots >= least; slots /= 2) {
    const uint32_t need = pools_.need(slots, request.window);
    if (need > left_per_lane(tenant))
      grant = tl::unexpected(over_text(tenant, need));
    else
      grant = pools_.admit(slots, request.window, tenant.area);
    if (grant) break;
  }
  if (!grant)
    return tl::unexpected(
        grant.error() +
        "; under aggregator.policy static each group needs a pool of slots of its "
        "own, while policies that share the slots (fcfs, esa) refuse no group for "
        "want of them");
  grant->group = true;
  return grant;
}

void Admission::charge(Tenant& tenant, uint32_t workers, const Grant& grant) const {
  if (grant.group) {
    ++tenant.groups;
  } else {
    ++tenant.jobs;
    tenant.workers += workers;
  }
  if (grant.group && !config_.fixed_slots) return;
  tenant.floors_per_lane += config_.fixed_slots ? grant.slots_per_lane : grant.floor_per_lane;
  tenant.ceilings_per_lane += config_.fixed_slots ? grant.slots_per_lane : grant.ceiling_per_lane;
}

tl::expected<Grant, std::string> Admission::admit(const JobRequest& request) {
  Tenant& tenant = tenant_of(request.tenant);
  tl::expected<Grant, std::string> grant =
      tl::unexpected(request.group ? "" : crowded_text(tenant, request.workers));
  if (request.group)
    grant = admit_group(tenant, request);
  else if (grant.error().empty())
    grant = config_.fixed_slots ? admit_fixed(tenant, request) : admit_shared(tenant, request);
  if (grant) {
    grant->priority_max =
        std::min({config_.priority_max, tenant.quota.priority_max, request.priority_max});
    charge(tenant, request.workers, *grant);
  }
  drop_if_unused(request.tenant);
  return grant;
}

tl::expected<Grant, std::string> Admission::readmit(const JobRequest& request,
                                                    const Grant& before) {
  Tenant& tenant = tenant_of(request.tenant);
  Grant grant = before;
  grant.memory_bytes = 0;
  grant.group = request.group;
  grant.priority_max =
      std::min({config_.priority_max, tenant.quota.priority_max, before.priority_max});
  const uint32_t need = config_.fixed_slots ? before.slots_per_lane : before.ceiling_per_lane;
  const bool counts = !request.group || config_.fixed_slots;
  std::string problem = request.group ? "" : crowded_text(tenant, request.workers);
  if (problem.empty() && counts && need > left_per_lane(tenant)) problem = over_text(tenant, need);
  if (problem.empty() && !(config_.fixed_slots ? pools_.reserve(grant, tenant.area)
                                               : shared_.reserve(grant, tenant.kept_per_lane())))
    problem = "its slots are not there any more: aggregator.slots, or the floors of others";
  if (problem.empty()) charge(tenant, request.workers, grant);
  drop_if_unused(request.tenant);
  if (!problem.empty()) return tl::unexpected(problem);
  return grant;
}

tl::expected<void, std::string> Admission::take_memory(const std::string& name, Grant& grant,
                                                       uint64_t bytes) {
  Tenant& tenant = tenant_of(name);
  const uint64_t left = left_of(tenant.quota.memory_bytes, tenant.memory_bytes);
  if (tenant.quota.memory_bytes != 0 && bytes > left)
    return tl::unexpected("it needs " + std::to_string(bytes) + " bytes of memory, tenant '" +
                          name + "' has " + std::to_string(left) + " of " +
                          std::to_string(tenant.quota.memory_bytes) + " left" +
                          short_by(bytes, left,
                                   "wait for one of its jobs to end, ask for a smaller window, or "
                                   "raise its memory"));
  if (auto taken = memory_.take(bytes); !taken) return taken;
  tenant.memory_bytes += bytes;
  grant.memory_bytes += bytes;
  return {};
}

void Admission::give_back_memory(const std::string& name, Grant& grant, uint64_t bytes) {
  memory_.give_back(bytes);
  tenant_of(name).memory_bytes -= bytes;
  grant.memory_bytes -= bytes;
}

void Admission::keep_memory(const std::string& name, uint64_t bytes) {
  Tenant& tenant = tenant_of(name);
  memory_.keep(bytes);
  tenant.memory_bytes += bytes;
  tenant.memory_held_bytes += bytes;
}

void Admission::give_back_kept(const std::string& name, uint64_t bytes) {
  Tenant& tenant = tenant_of(name);
  memory_.give_back(bytes);
  tenant.memory_bytes -= bytes;
  tenant.memory_held_bytes -= bytes;
  drop_if_unused(name);
}

uint64_t Admission::memory_left(const std::string& name) const {
  const uint64_t left = left_of(memory_.total(), memory_.used());
  const uint64_t most = quota(name).memory_bytes;
  return most == 0 ? left : std::min(left, left_of(most, use(name).memory_bytes));
}

bool Admission::within(const std::string& name) const {
  const uint64_t most = quota(name).memory_bytes;
  return memory_.used() <= memory_.total() && (most == 0 || use(name).memory_bytes <= most);
}

void Admission::release(const std::string& name, uint32_t workers, const Grant& grant) {
  Tenant& tenant = tenant_of(name);
  memory_.give_back(grant.memory_bytes);
  tenant.memory_bytes -= grant.memory_bytes;
  const uint32_t kept_before = tenant.kept_per_lane();
  if (grant.group) {
    --tenant.groups;
  } else {
    --tenant.jobs;
    tenant.workers -= workers;
  }
  if (!grant.group || config_.fixed_slots) {
    tenant.floors_per_lane -= config_.fixed_slots ? grant.slots_per_lane : grant.floor_per_lane;
    tenant.ceilings_per_lane -= config_.fixed_slots ? grant.slots_per_lane : grant.ceiling_per_lane;
  }
  if (config_.fixed_slots)
    pools_.release(grant);
  else
    shared_.release(grant, tenant.kept_per_lane() - kept_before);
  drop_if_unused(name);
}

uint32_t Admission::slots_reserved() const {
  return config_.fixed_slots ? pools_.slots_reserved() : shared_.slots_reserved();
}

const TenantQuota& Admission::quota(const std::string& name) const {
  const auto found = tenants_.find(name);
  return found == tenants_.end() ? others_ : found->second.quota;
}

TenantUse Admission::use(const std::string& name) const {
  const auto found = tenants_.find(name);
  if (found == tenants_.end()) return {};
  const Tenant& tenant = found->second;
  return {tenant.jobs,
          tenant.workers,
          tenant.floors_per_lane * config_.lanes,
          tenant.ceilings_per_lane * config_.lanes,
          tenant.memory_bytes,
          tenant.memory_held_bytes,
          tenant.groups};
}

std::vector<std::string> Admission::tenants() const {
  std::vector<std::string> names;
  for (const auto& [name, tenant] : tenants_) names.push_back(name);
  return names;
}

}  // namespace ina::scheduler
