#include "bench/themis/sweep.h"

#include "plans/themis/cost.h"

namespace ina::bench {
namespace {

using themis::Discipline;
using themis::InNetwork;
using themis::Picos;
using themis::PlanOptions;
using themis::Scheduler;

themis::Planned plan_of(const themis::Topology& topology, uint64_t bytes,
                        const PlanOptions& options) {
  auto planned = themis::make_plan(topology, {{.bytes = bytes}}, options);
  return std::move(planned.value());
}

}  // namespace

std::vector<uint64_t> sweep_sizes() {
  std::vector<uint64_t> sizes;
  for (uint64_t percent = 10; percent <= 95; percent += 5)
    sizes.push_back((uint64_t{1} << 30) * percent / 100);
  return sizes;
}

SweepPoint measure(const themis::Topology& topology, uint64_t bytes, uint32_t evaluations) {
  const auto end_ps = [&](const themis::Topology& own, const PlanOptions& options) {
    return plan_of(own, bytes, options).timeline.end_ps;
  };
  const PlanOptions fifo{
      .scheduler = Scheduler::kThemis, .discipline = Discipline::kFifo, .or_baseline = false};
  const PlanOptions scf{.scheduler = Scheduler::kThemis,
                        .discipline = Discipline::kSmallestFirst,
                        .or_baseline = false};

  const PlanOptions search{.scheduler = Scheduler::kSearch, .evaluations = evaluations};
  const themis::Planned base = plan_of(
      topology, bytes, {.scheduler = Scheduler::kBaseline, .in_network = InNetwork::kNever});
  const themis::Topology with_ina = themis::with_aggregating_switches(topology);
  return {.bytes = bytes,
          .ideal_ps = themis::ideal_ps(base.plan),
          .base_ps = base.timeline.end_ps,
          .fifo_ps = end_ps(topology, fifo),
          .scf_ps = end_ps(topology, scf),
          .search_ps = end_ps(topology, search),
          .ina_scf_ps = end_ps(with_ina, scf),
          .ina_search_ps = end_ps(with_ina, search)};
}

Figure5 figure5() {
  const themis::Topology topology{.name = "4x4",
                                  .dimensions = {{.name = "1",
                                                  .kind = themis::DimensionKind::kDirect,
                                                  .size = 4,
                                                  .bits_per_s = 2'000'000'000},
                                                 {.name = "2",
                                                  .kind = themis::DimensionKind::kDirect,
                                                  .size = 4,
                                                  .bits_per_s = 1'000'000'000}}};
  constexpr uint32_t kChunks = 4;
  constexpr uint64_t kBytes = 256 << 20;
  constexpr uint64_t kChunkBytes = kBytes / kChunks;
  const auto unit = static_cast<double>(
      themis::make_stage(topology, 0, themis::Phase::kReduceScatter, false, kChunkBytes).tx_ps);
  const auto units = [&](Scheduler scheduler, Discipline discipline) {
    const themis::Planned planned = plan_of(
        topology, kBytes, {.scheduler = scheduler, .discipline = discipline, .chunks = kChunks});
    return static_cast<double>(planned.timeline.end_ps) / unit;
  };
  return {.base = units(Scheduler::kBaseline, Discipline::kFifo),
          .fifo = units(Scheduler::kThemis, Discipline::kFifo),
          .scf = units(Scheduler::kThemis, Discipline::kSmallestFirst)};
}

}  // namespace ina::bench
