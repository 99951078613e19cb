// Plans collectives over a topology.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "plans/themis/balance.h"
#include "plans/themis/plan.h"
#include "plans/themis/simulate.h"

namespace ina::themis {

enum class Scheduler : uint8_t {
  kBaseline,  ///< every chunk takes the dimensions from 1 to D, and back
  kThemis,    ///< by load (balance.h)
  kSearch,    ///< the best of both, bettered by trial (search.h)
};

inline constexpr std::array<std::string_view, 3> kSchedulerNames = {"baseline", "themis", "search"};

constexpr std::string_view name(Scheduler scheduler) {
  return kSchedulerNames[static_cast<size_t>(scheduler)];
}

struct PlanOptions {
  Scheduler scheduler = Scheduler::kThemis;
  /// Within a dimension. Without: FIFO for the baseline, smallest first for Themis, the best of all
  /// for the search.
  std::optional<Discipline> discipline{};
  uint32_t chunks = 64;        ///< of each collective, at most
  uint32_t element_bytes = 4;  ///< indivisible
  /// True: each of several collectives, in the order of their start, goes on from the loads of
  /// those before it. Without a value: both ways are tried, and the one that the simulation says is
  /// faster is taken.
  std::optional<bool> carry_loads{};
  /// Use of aggregating switches. kByLoad tries all three and takes what the simulation says is
  /// best.
  InNetwork in_network = InNetwork::kByLoad;
  /// kThemis: take the baseline's plan where the simulation says that it is faster, and several
  /// collectives in turn (planner.cc) where that is. The paper's scheduler has no such comparison,
  /// and loses where latencies are long beside a chunk's time.
  bool or_baseline = true;
  // Options of the search:
  uint32_t evaluations = 3000;  ///< plans that it simulates
  uint64_t seed = 1;
};

inline constexpr uint32_t kMostChunks = 4096;
inline constexpr size_t kMostRequests = 256;
inline constexpr uint32_t kMostElementBytes = 64;
/// The bytes of all requests together, at most.
inline constexpr uint64_t kMostBytes = uint64_t{1} << 40;
inline constexpr Picos kMostIssuePs = Picos{86'400} * 1'000'000'000'000;

/// A plan and its simulation.
struct Planned {
  Plan plan;
  Timeline timeline;
};

/// Plans `requests`, which run at the same time in one network: their chunks share the load of each
/// dimension. With Scheduler::kSearch, and with kThemis and `or_baseline`, they end no later than
/// if each was planned alone and began when those before it have ended. The same arguments give the
/// same plan on every machine. Error: INA_ERR_INVALID with a sentence that names the dimension,
/// request or option.
Result<Planned> make_plan(const Topology& topology, const std::vector<Request>& requests,
                          const PlanOptions& options);

/// When the last of the collectives ends if each is planned alone, and begins when those before it,
/// in the order of their start, have ended. Error: as make_plan().
Result<Picos> one_after_another_ps(const Topology& topology, const std::vector<Request>& requests,
                                   const PlanOptions& options);

}  // namespace ina::themis
