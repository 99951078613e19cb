// Admission of jobs to the slots. A job's limits are fixed when it is created. A job that does not
// fit is refused, and the error gives the numbers. Only the conductor uses this.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "scheduler/static_pool.h"
#include "scheduler/tenant_quota.h"

namespace ina::scheduler {

/// Sequence numbers are compared over distances below 2^31, of which windows are a small part.
inline constexpr uint32_t kMostWindowPerLane = 1 << 24;

/// The resources granted to a job, the same in each lane.
struct Grant {
  uint32_t first_slot = 0;        ///< within a lane; policy static
  uint32_t slots_per_lane = 0;    ///< 2W / lanes; policy static
  uint32_t window = 0;            ///< W, fragments over all lanes; a multiple of the lanes
  uint32_t floor_per_lane = 0;    ///< slots kept for the job; shared slots
  uint32_t ceiling_per_lane = 0;  ///< most slots it may hold; shared slots
  uint8_t priority_max = 255;     ///< upper bound of the priorities that its workers claim
  uint64_t memory_bytes = 0;      ///< taken so far
  // Straggler help, over all lanes, in fragments.
  uint32_t in_switch = 0;  ///< of each worker at once; 0: the window, and no help
  uint32_t park_room = 0;  ///< that each worker keeps; 0: the fallback does
  bool group = false;  ///< of a group: not counted among its tenant's jobs, workers and ceilings

  /// Most slots that it may hold in all lanes together.
  uint64_t ceiling(uint32_t lanes) const { return uint64_t{ceiling_per_lane} * lanes; }
};

/// Gives out ranges of slots, first fit. All lanes have the same layout, so one map serves them
/// all. Areas are parts of the array that are kept for some jobs: a range lies within one.
class StaticAdmission {
 public:
  static constexpr uint32_t kCommon = 0;  ///< the area of everybody

  /// `slots`: of the whole array; `lanes`: it is divided evenly among these.
  StaticAdmission(uint32_t slots, uint32_t lanes);

  /// Keeps slots for the jobs that are admitted with the area's number. Before any job.
  uint32_t add_area(uint32_t slots_per_lane);
  /// Grants 2W slots, W = min(window_wanted, slots_per_job / 2), rounded down to a multiple of the
  /// lanes but at least one fragment a lane, from `area` or else from the common one. Error: a
  /// sentence with the job's need, the free slots and the shortfall.
  tl::expected<Grant, std::string> admit(uint32_t slots_per_job, uint64_t window_wanted,
                                         uint32_t area = kCommon);
  /// Takes exactly the slots of an earlier grant. False: some are not free, or do not exist.
  bool reserve(const Grant& grant, uint32_t area = kCommon);
  void release(const Grant& grant);

  uint32_t slots_total() const { return slots_per_lane_ * lanes_; }
  /// Per lane, that admit() takes.
  uint32_t need(uint32_t slots_per_job, uint64_t window_wanted) const;
  /// Slots that a job of the common area cannot get: granted, or kept.
  uint32_t slots_reserved() const { return slots_total() - free_per_lane(kCommon) * lanes_; }

 private:
  struct Range {
    uint32_t first;
    uint32_t count;
    uint32_t area;
  };
  uint32_t free_per_lane(uint32_t area) const;
  /// The area in which the slot lies: areas lie behind one another, the common one first.
  uint32_t area_at(uint32_t slot) const;

  uint32_t slots_per_lane_;
  uint32_t lanes_;
  std::vector<uint32_t> area_ends_;
  std::vector<Range> free_;  ///< sorted, disjoint; adjacent only where areas meet
};

/// Policies that share all slots among the jobs: nothing is given out, but floors are promised.
class SharedAdmission {
 public:
  SharedAdmission(uint32_t slots, uint32_t lanes) : slots_per_lane_(slots / lanes), lanes_(lanes) {}

  /// `window`: W wanted, rounded down to a multiple of the lanes but at least one fragment a lane.
  /// `floor`, `ceiling` (0: all): slots of the whole array, rounded up to a multiple of the lanes.
  /// `kept`: slots per lane that were promised for jobs like this one already (keep()); the floor
  /// is taken from these first. Error: a sentence with the floor's need, the free slots and the
  /// shortfall.
  tl::expected<Grant, std::string> admit(uint64_t window, uint32_t floor, uint32_t ceiling,
                                         uint32_t kept = 0);
  /// Promises an earlier grant again. False: it does not fit any more.
  bool reserve(const Grant& grant, uint32_t kept = 0);
  /// `kept`: slots per lane of its floor that stay promised.
  void release(const Grant& grant, uint32_t kept = 0) {
    floors_per_lane_ -= grant.floor_per_lane - kept;
  }
  /// Promises slots to jobs that are still to come. Before any job.
  void keep(uint32_t slots_per_lane) { floors_per_lane_ += slots_per_lane; }
  void keep_no_longer(uint32_t slots_per_lane) { floors_per_lane_ -= slots_per_lane; }

  uint32_t per_lane(uint32_t slots) const { return (slots + lanes_ - 1) / lanes_; }
  uint32_t slots_total() const { return slots_per_lane_ * lanes_; }
  uint32_t slots_free_per_lane() const { return slots_per_lane_ - floors_per_lane_; }
  /// Sum of the floors, and of the kept slots.
  uint32_t slots_reserved() const { return floors_per_lane_ * lanes_; }

 private:
  uint32_t slots_per_lane_;
  uint32_t lanes_;
  uint32_t floors_per_lane_ = 0;
};

/// Memory that the jobs of a switch may take together: a job's share is known when it is admitted
/// and does not grow (I6).
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t bytes) : total_(bytes) {}

  /// Error: a sentence with the job's need, the free memory and the shortfall.
  tl::expected<void, std::string> take(uint64_t bytes);
  void give_back(uint64_t bytes) { used_ -= bytes; }
  /// Takes memory that is in use anyway; the sum may exceed the limit.
  void keep(uint64_t bytes) { used_ += bytes; }

  void set_total(uint64_t bytes) { total_ = bytes; }
  uint64_t total() const { return total_; }
  uint64_t used() const { return used_; }

 private:
  uint64_t total_;
  uint64_t used_ = 0;
};

/// The resources of a tenant's jobs. Slots are of the whole array.
struct TenantUse {
  uint32_t jobs = 0;
  uint32_t workers = 0;
  uint32_t slots_floor = 0;    ///< sum of the jobs' floors, or of their pools
  uint64_t slots_ceiling = 0;  ///< sum of the jobs' ceilings, or of their pools
  uint64_t memory_bytes = 0;
  uint64_t memory_held_bytes = 0;  ///< of these, of jobs and places that are no more
  uint32_t groups = 0;             ///< of ranks of its jobs
};

/// A job that asks for a place.
struct JobRequest {
  std::string tenant{};
  uint32_t workers = 0;
  uint64_t window = 0;         ///< W, in fragments
  uint32_t slots_floor = 0;    ///< 0: the switch's default
  uint32_t slots_ceiling = 0;  ///< 0: likewise
  uint8_t priority_max = 255;
  /// The request is for a group of ranks of an admitted job. It has no floor, and its fragments
  /// that find no slot go to the fallback, so shared slots never refuse it. Fixed slots give it
  /// what is left, at least one fragment a lane.
  bool group = false;
};

struct AdmissionConfig {
  bool fixed_slots = true;  ///< policy static: each job has a pool of its own
  uint32_t slots = 0;       ///< of the whole array
  uint32_t lanes = 1;
  uint64_t memory_bytes = 0;
  // The defaults for a job that does not ask.
  uint32_t slots_per_job = 0;  ///< fixed slots
  uint32_t slots_floor = 0;    ///< shared slots
  uint32_t slots_ceiling = 0;  ///< shared slots; 0: all
  uint8_t priority_max = 255;
  std::vector<TenantQuota> tenants;  ///< that of kOtherTenants has no floor
};

/// Admits jobs to slots, memory and places, within what their tenants may have.
///
/// A job that does not ask gets its tenant's share: slots_ceiling / jobs_max (all that is left
/// without jobs_max), and of shared slots a floor of slots_floor / jobs_max, likewise. Errors are
/// sentences that say by how much it does not fit.
class Admission {
 public:
  explicit Admission(AdmissionConfig config);

  tl::expected<Grant, std::string> admit(const JobRequest& request);
  /// Other quotas, and other limits for jobs that do not ask: jobs that were admitted keep what
  /// they have, also if it is more than could be asked for now. The array stays as it is: its
  /// slots, lanes and kind, and under fixed slots the floors of the tenants.
  void set_limits(AdmissionConfig config);
  /// Takes exactly what was granted before the switch was restarted. `request`: tenant, workers and
  /// group.
  tl::expected<Grant, std::string> readmit(const JobRequest& request, const Grant& before);
  /// Memory for a job that was admitted; the grant remembers how much.
  tl::expected<void, std::string> take_memory(const std::string& tenant, Grant& grant,
                                              uint64_t bytes);
  void give_back_memory(const std::string& tenant, Grant& grant, uint64_t bytes);
  /// Memory for which no job is charged any more, but which its processes still have. It may exceed
  /// every limit, and then further requests are refused.
  void keep_memory(const std::string& tenant, uint64_t bytes);
  void give_back_kept(const std::string& tenant, uint64_t bytes);
  /// The memory that the tenant may still take.
  uint64_t memory_left(const std::string& tenant) const;
  /// Neither the tenant nor all together have more memory than they may.
  bool within(const std::string& tenant) const;
  /// The job has ended: its whole grant is free again.
  void release(const std::string& tenant, uint32_t workers, const Grant& grant);

  uint32_t slots_total() const { return pools_.slots_total(); }
  /// Granted to jobs, or kept for tenants.
  uint32_t slots_reserved() const;
  const MemoryBudget& memory() const { return memory_; }

  const TenantQuota& quota(const std::string& tenant) const;
  TenantUse use(const std::string& tenant) const;
  /// Tenants with a quota of their own, and those that have jobs; sorted.
  std::vector<std::string> tenants() const;

 private:
  struct Tenant {
    TenantQuota quota;
    bool listed = false;
    uint32_t area = StaticAdmission::kCommon;  ///< fixed slots
    uint32_t floor_per_lane = 0;               ///< kept for it; shared slots
    // The resources of its jobs.
    uint32_t jobs = 0;
    uint32_t groups = 0;
    uint32_t workers = 0;
    uint32_t floors_per_lane = 0;    ///< or pools
    uint64_t ceilings_per_lane = 0;  ///< or pools
    uint64_t memory_bytes = 0;
    uint64_t memory_held_bytes = 0;

    /// The part of the slots kept for it that no job has yet.
    uint32_t kept_per_lane() const {
      return floor_per_lane > floors_per_lane ? floor_per_lane - floors_per_lane : 0;
    }
  };
  void set_quotas();
  Tenant& tenant_of(const std::string& name);
  void drop_if_unused(const std::string& name);
  static std::string crowded_text(const Tenant& tenant, uint32_t workers);
  uint32_t left_per_lane(const Tenant& tenant) const;
  uint32_t share_per_lane(const Tenant& tenant) const;
  std::string over_text(const Tenant& tenant, uint32_t need_per_lane) const;
  tl::expected<Grant, std::string> admit_fixed(const Tenant& tenant, const JobRequest& request);
  tl::expected<Grant, std::string> admit_shared(const Tenant& tenant, const JobRequest& request);
  tl::expected<Grant, std::string> admit_group(const Tenant& tenant, const JobRequest& request);
  void charge(Tenant& tenant, uint32_t workers, const Grant& grant) const;

  AdmissionConfig config_;
  TenantQuota others_;  ///< of each that is not in config_.tenants
  StaticAdmission pools_;
  SharedAdmission shared_;
  MemoryBudget memory_;
  std::map<std::string, Tenant> tenants_;
};

}  // namespace ina::scheduler
