// The grid of every collective, data type, operation, size and number of ranks, over the shm port.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/client_ranks.h"
#include "tests/support/collective_grid.h"
#include "tests/support/sanitizers.h"
#include "tests/support/switch_fixture.h"
#include "tests/support/uneven_grid.h"
#include "wire/types.h"

namespace ina {
namespace {

using scheduler::PolicyKind;
using test::CollectiveGrid;
using test::on_ranks;
using test::TestSwitch;
using test::UnevenGrid;

/// None, one, an odd number, many, and around the borders of fragments: of accumulators, and of
/// elements that are only moved.
std::vector<uint64_t> counts_for(ina_dtype dtype, uint32_t slot_bytes) {
#ifdef INA_SLOW_BUILD
  return {0, 1, slot_bytes / 4 + 1};
#else
  std::vector<uint64_t> counts = {0, 1, 7, 4 * slot_bytes + 3};
  const auto type = static_cast<DType>(dtype);
  for (const size_t element_bytes : std::set{wire_bytes(type), wire_bytes(accumulator_of(type))})
    for (const int more : {-1, 0, 1})
      counts.push_back(slot_bytes / element_bytes + static_cast<uint64_t>(more));
  return counts;
#endif
}

/// Elements of a rank's block: the smallest, those around a fragment's border, and many.
std::vector<uint64_t> blocks_for(uint32_t slot_bytes) {
#ifdef INA_SLOW_BUILD
  return {1, slot_bytes / 4 + 1};
#else
  return {1, slot_bytes / 8, slot_bytes / 4 - 1, 2 * slot_bytes + 3};
#endif
}

struct Shape {
  int world;
  uint32_t lanes;
  uint32_t slot_bytes;
  PolicyKind policy;
};

test::SwitchOptions options_of(const Shape& shape) {
  return {.slots = 512,
          .slot_bytes = shape.slot_bytes,
          .lanes = shape.lanes,
          .conductor = [policy = shape.policy](switchd::ConductorConfig& config) {
            config.aggregator.policy.kind = policy;
          }};
}

class Grid : public testing::TestWithParam<Shape> {};

TEST_P(Grid, IsAsTheModelSays) {
  const Shape shape = GetParam();
  TestSwitch sw(options_of(shape));
  on_ranks(sw, shape.world, [&](Context& context, int) {
    CollectiveGrid grid(context.get());
    grid.run_by_type([&](ina_dtype dtype) { return counts_for(dtype, shape.slot_bytes); });
    grid.many_at_once();
  });
}

TEST_P(Grid, IsAsTheModelSaysWithUnevenAndNoCounts) {
  const Shape shape = GetParam();
  TestSwitch sw(options_of(shape));
  on_ranks(sw, shape.world, [&](Context& context, int) {
    UnevenGrid(context.get()).run(blocks_for(shape.slot_bytes));
  });
}

/// Inputs are such that no order of reduction rounds: the results are those of the native mode.
TEST(GridReproducible, IsAsTheModelSays) {
  TestSwitch sw({.slots = 512, .slot_bytes = 512, .lanes = 2});
  on_ranks(
      sw, 5,
      [&](Context& context, int) {
        CollectiveGrid(context.get()).run({0, 1, 63, 64, 65, 1500});
        UnevenGrid(context.get()).run({1, 64, 501});
      },
      [](ina_config& config) { config.numeric = INA_NUMERIC_REPRODUCIBLE; });
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, Grid,
    testing::Values(Shape{1, 1, 1024, PolicyKind::kEsa}, Shape{2, 1, 256, PolicyKind::kStatic},
                    Shape{3, 2, 1024, PolicyKind::kEsa}, Shape{5, 1, 512, PolicyKind::kFcfs},
                    Shape{8, 1, 1024, PolicyKind::kEsa}),
    [](const auto& param_info) { return "Ranks" + std::to_string(param_info.param.world); });

#ifndef INA_SLOW_BUILD
TEST(GridOfManyRanks, IsAsTheModelSays) {
  TestSwitch sw({.slots = 1024, .slot_bytes = 256});
  on_ranks(sw, 64, [](Context& context, int) {
    CollectiveGrid grid(context.get());
    grid.run({0, 1, 65});
  });
}

TEST(GridOfManyRanks, IsAsTheModelSaysWithUnevenAndNoCounts) {
  TestSwitch sw({.slots = 1024, .slot_bytes = 256});
  on_ranks(sw, 64, [](Context& context, int) { UnevenGrid(context.get()).run({1}); });
}

/// More ranks than a switch has bits: their domains are jobs of its lanes.
class GridOfAWideJob : public testing::TestWithParam<uint32_t> {
 protected:
  test::SwitchOptions options() const {
    return {.slots = 256,
            .slot_bytes = 256,
            .lanes = GetParam(),
            .conductor = [](switchd::ConductorConfig& config) {
              config.aggregator.policy.kind = PolicyKind::kEsa;
            }};
  }
};

TEST_P(GridOfAWideJob, IsAsTheModelSays) {
  TestSwitch sw(options());
  on_ranks(sw, 70, [](Context& context, int) {
    CollectiveGrid grid(context.get());
    grid.run({0, 1, 65});
    grid.many_at_once();
  });
}

TEST_P(GridOfAWideJob, IsAsTheModelSaysWithUnevenAndNoCounts) {
  TestSwitch sw(options());
  on_ranks(sw, 70, [](Context& context, int) { UnevenGrid(context.get()).run({1}); });
}

INSTANTIATE_TEST_SUITE_P(Lanes, GridOfAWideJob, testing::Values(2));

TEST(GridOfLargeOperations, IsAsTheModelSays) {
  TestSwitch sw({.slots = 1024, .slot_bytes = 8192, .slots_per_job = 512});
  on_ranks(sw, 2, [](Context& context, int) {
    CollectiveGrid grid(context.get());
    constexpr uint64_t kBytes = 64 << 20;
    for (const perf::Collective collective : perf::kAllCollectives)
      grid.once(collective, INA_FLOAT32, INA_SUM,
                perf::whole_elements(collective, kBytes, sizeof(float), 2));
    grid.once(perf::Collective::kAllGather, INA_INT8, INA_SUM, kBytes);
    grid.once(perf::Collective::kReduceScatter, INA_BOOL, INA_BXOR, kBytes);
  });
}

TEST(GridOfLargeOperations, IsAsTheModelSaysWithUnevenCounts) {
  TestSwitch sw({.slots = 1024, .slot_bytes = 8192, .slots_per_job = 512});
  on_ranks(sw, 3, [](Context& context, int) {
    UnevenGrid(context.get()).run_large((64 << 20) / sizeof(float));
  });
}
#endif

}  // namespace
}  // namespace ina
