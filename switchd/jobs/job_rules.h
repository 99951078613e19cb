// The rules of a job: they follow from the switch's configuration and the job's grant. The switch
// tells them to its lanes and to the job's workers.
#pragma once

#include <string>

#include "aggregator/aggregator.h"
#include "aggregator/fallback.h"
#include "scheduler/rules.h"
#include "switchd/conductor_config.h"
#include "switchd/jobs/job.h"

namespace ina::switchd {

class JobRules {
 public:
  /// `config` must outlive it.
  JobRules(const ConductorConfig& config, uint32_t lanes) : config_(config), lanes_(lanes) {}

  uint32_t lanes() const { return lanes_; }
  /// Why the switch takes no job of so many workers; empty: it does.
  std::string too_wide_text(uint32_t workers) const;
  /// The place of the fallback of a job of so many workers.
  Home home_for(uint32_t workers, bool spread) const {
    return spread || workers > kMaxWorkers ? Home::kTree : config_.rules.home;
  }
  Home home_for(const Job& job) const { return home_for(job.workers, job.spread); }
  /// Words of a lane's tables, of each domain.
  struct TableWords {
    size_t ring = 0;
    size_t seen = 0;
    size_t parked = 0;
    size_t given = 0;
    size_t rows = 0;
  };
  TableWords table_words(const Job& job) const;
  io::shm::Geometry geometry(const scheduler::Grant& grant) const;
  /// The part of the memory for all jobs that a job of that grant takes.
  uint64_t memory_bytes(const Job& job) const;
  /// Adds straggler help to the job's grant. `in_switch`: fragments that each worker would have in
  /// the switch at once. More than the job may have slots would only pass them by.
  void grant_help(Job& job, uint64_t in_switch) const;
  /// The description of a domain for a lane. The lanes do not serve the job yet.
  void fill_spec(Job& job, Domain& domain, uint32_t lane, Seq start,
                 aggregator::JobSpec& spec) const;
  /// True if the job can be served: a fallback server, if it needs one, is there.
  bool has_fallback(const Job& job) const {
    return job.home != Home::kDedicated || job.fallback.attached;
  }
  /// For its lanes and its workers.
  scheduler::Rules rules_of(const Job& job) const;

 private:
  uint64_t server_bytes(const Job& job) const;
  aggregator::FallbackConfig spill_config(const Job& job, uint32_t lane, Seq start) const;
  scheduler::Quota quota_of(const Job& job) const;
  void fill_help(const Job& job, Domain& domain, uint32_t lane, aggregator::JobSpec& spec) const;
  void fill_tree(const Job& job, Domain& domain, uint32_t lane, aggregator::JobSpec& spec) const;

  const ConductorConfig& config_;
  const uint32_t lanes_;
};

}  // namespace ina::switchd
