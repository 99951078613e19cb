// The switch's figures as families of Prometheus. The names, units and labels of counters are in
// the counters' tables (docs/reference/counters.md), those of other figures here
// (docs/operations.md).
#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/json/json.h"
#include "control/metrics/counter_lists.h"
#include "wire/rank_set.h"

namespace ina::metrics {

/// Jobs and tenants without series of their own are one: this label.
inline constexpr const char* kOther = "other";

/// Turns one snapshot after another (admin::Question::kCounters) into families. One thread at a
/// time.
class Families {
 public:
  /// `most_jobs`: jobs, and tenants, that have series of their own: the busiest.
  Families(size_t most_jobs, CounterLists counters)
      : most_jobs_(most_jobs), counters_(std::move(counters)), other_(counters_.jobs.size()) {}

  /// `now`: time of the snapshot, by which a job's waiting is measured.
  std::vector<prometheus::MetricFamily> collect(const nlohmann::json& status, Nanos now);

 private:
  using Json = nlohmann::json;

  /// The counters of a job and its groups together, by place in CounterLists::jobs.
  using JobSums = std::vector<uint64_t>;
  struct JobNow {
    std::string label;  ///< "OWNER/NAME"
    JobSums sums;
    uint64_t missing = 0;  ///< workers
    uint64_t away = 0;     ///< switches of its tree
    RankSet late = {};     ///< ranks in the job for which its oldest fragments wait
    double waiting_s = 0;
    double straggler_s = 0;
  };
  /// State of a job that is kept between snapshots.
  struct JobBefore {
    JobSums sums;
    Nanos moved = 0;    ///< last time it was seen to have completed something, or to hold nothing
    RankSet late = {};  ///< ranks that all snapshots found late
    Nanos late_since = 0;  ///< the first of these
  };

  std::map<uint64_t, JobNow> jobs_of(const Json& status) const;
  uint64_t counter(const JobSums& sums, std::string_view name) const;
  uint64_t completed(const JobSums& sums) const;
  uint64_t contributions(const JobSums& sums) const;
  std::set<uint64_t> labelled(const std::map<uint64_t, JobNow>& jobs) const;
  void remember(std::map<uint64_t, JobNow>& jobs, const std::set<uint64_t>& own, Nanos now);
  std::vector<JobNow> shown_jobs(const Json& status, Nanos now);
  void add_jobs(std::vector<prometheus::MetricFamily>& families,
                const std::vector<JobNow>& jobs) const;
  void add_tenants(std::vector<prometheus::MetricFamily>& families, const Json& status) const;

  const size_t most_jobs_;
  const CounterLists counters_;
  std::map<uint64_t, JobBefore> before_;  ///< by the job's id
  JobSums other_;  ///< totals of jobs while they had no series of their own; levels are 0
};

}  // namespace ina::metrics
