#include "scheduler/redistribution/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <queue>
#include <string>

#include "bench/redistribute/cases.h"
#include "scheduler/redistribution/interpreter.h"

namespace ina::redistribution {
namespace {

constexpr uint64_t kMostElements = 1 << 19;

Problem problem_of(const char* mesh, Shape shape, const char* from, const char* to) {
  Problem problem{*Mesh::parse(mesh), std::move(shape), 4, {}, {}, {}, 0};
  problem.from = *parse_layout(problem.mesh, from);
  problem.to = *parse_layout(problem.mesh, to);
  return problem;
}

uint64_t larger_end(const Problem& problem) {
  return std::max(problem.source_elements(), problem.target_elements());
}

/// dynslice* (alltoall | allpermute)* allgather*
bool is_in_normal_form(const Plan& plan) {
  const auto phase = [](const Step& step) {
    if (step.operation == Operation::kDynamicSlice) return 0;
    return step.operation == Operation::kAllGather ? 2 : 1;
  };
  return std::is_sorted(plan.steps().begin(), plan.steps().end(),
                        [&](const Step& a, const Step& b) { return phase(a) < phase(b); });
}

void expect_right(const Plan& plan) {
  const auto seen = verify(plan);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->wrong_elements, 0u) << plan.canonical_text();
  EXPECT_EQ(seen->elements_checked, plan.problem().mesh.ranks() * plan.problem().target_elements());
  EXPECT_EQ(seen->peak_bytes, plan.peak_bytes()) << plan.canonical_text();
  EXPECT_LE(seen->most_sent_bytes(), plan.sent_bytes()) << plan.canonical_text();
  // Where there is one step its busiest rank is the plan's.
  if (plan.communications() == 1) {
    EXPECT_EQ(seen->most_sent_bytes(), plan.sent_bytes()) << plan.canonical_text();
  }
}

TEST(RedistributionPlanner, RandomProblemsAreSolvedByAllMethods) {
  Cases cases(1);
  for (int i = 0; i < 250; ++i) {
    const Case drawn = cases.small(kMostElements);
    SCOPED_TRACE(drawn.name);
    for (const Method method :
         {Method::kSynthesised, Method::kDirect, Method::kXlaOrder, Method::kGatherSlice}) {
      const auto made = plan_by(drawn.problem, method);
      ASSERT_TRUE(made) << made.error();
      expect_right(*made);
    }
  }
}

TEST(RedistributionPlanner, NoTileIsLargerThanTheEnds) {
  Cases cases(2);
  for (int i = 0; i < 2000; ++i) {
    const Case drawn = cases.small(uint64_t{1} << 30);
    const Plan made = *plan_by(drawn.problem, Method::kSynthesised);
    EXPECT_LE(made.largest_tile_elements(), larger_end(drawn.problem)) << drawn.name;
    EXPECT_LE(made.peak_bytes(), 2 * larger_end(drawn.problem) * 4) << drawn.name;
    EXPECT_TRUE(is_in_normal_form(made)) << drawn.name << "\n" << made.canonical_text();
  }
}

TEST(RedistributionPlanner, TheChosenPlanIsNeverSlowerThanABaseline) {
  Cases cases(3);
  for (int i = 0; i < 1000; ++i) {
    const Case drawn = cases.small(uint64_t{1} << 30);
    const double us = plan(drawn.problem)->predicted_us();
    for (const Method method : {Method::kDirect, Method::kXlaOrder, Method::kGatherSlice})
      EXPECT_LE(us, plan_by(drawn.problem, method)->predicted_us() + 1e-9)
          << drawn.name << ", " << name_of(method);
  }
}

/// Dijkstra over layouts and whether a permutation was used, as the reference text has it: every
/// operation of its table as an edge. The time of the cheapest plan, slices and gathers in any
/// order.
double exhaustive_us(const Problem& problem) {
  using Key = std::pair<std::string, bool>;
  struct Entry {
    double us;
    Layout layout;
    bool permuted;
    bool operator<(const Entry& other) const { return us > other.us; }
  };
  const Mesh& mesh = problem.mesh;
  std::map<Key, double> best;
  std::map<std::string, Layout> layouts;
  std::priority_queue<Entry> queue;
  const auto reach = [&](double us, const Layout& layout, bool permuted) {
    if (!check_layout(mesh, layout, problem.shape)) return;
    if (elements_of(tile_shape(mesh, layout, problem.shape)) > larger_end(problem)) return;
    const std::string text = layout_text(mesh, layout);
    const auto [known, is_new] = best.try_emplace({text, permuted}, us);
    if (!is_new && known->second <= us) return;
    known->second = us;
    queue.push({us, layout, permuted});
  };
  // All layouts, for the permutations.
  std::vector<Layout> all{Layout{problem.from.dimensions, {}}};
  for (size_t i = 0; i < all.size(); ++i)
    for (PrimeId axis = 0; axis < mesh.primes().size(); ++axis)
      for (size_t d = 0; d < problem.shape.size(); ++d) {
        Layout next = all[i];
        if ((next.used() >> axis & 1) != 0) continue;
        next[d].push(axis);
        if (layouts.emplace(layout_text(mesh, next), next).second) all.push_back(next);
      }
  reach(0, problem.from, false);
  while (!queue.empty()) {
    const Entry entry = queue.top();
    queue.pop();
    const Layout& layout = entry.layout;
    if (entry.us > best.at({layout_text(mesh, layout), entry.permuted})) continue;
    if (layout == problem.to) return entry.us;
    const Shape tile = tile_shape(mesh, layout, problem.shape);
    const double bytes = static_cast<double>(elements_of(tile)) * problem.element_bytes;
    for (uint8_t d = 0; d < problem.shape.size(); ++d) {
      for (PrimeId axis = 0; axis < mesh.primes().size(); ++axis) {
        Layout next = layout;
        if ((next.used() >> axis & 1) != 0) continue;
        next[d].push(axis);
        reach(entry.us, next, entry.permuted);
      }
      Layout popped = layout;
      std::vector<PrimeId> block;
      for (double group = 1; popped[d].size > 0;) {
        block.insert(block.begin(), popped[d].pop());
        group *= mesh.size(block.front());
        const auto messages = static_cast<uint64_t>(group) - 1;
        reach(entry.us + problem.costs.time_us(messages, bytes * (group - 1)), popped,
              entry.permuted);
        for (size_t to = 0; to < problem.shape.size(); ++to) {
          if (to == d) continue;
          Layout next = popped;
          for (const PrimeId axis : block) next[to].push(axis);
          reach(entry.us + problem.costs.time_us(messages, bytes * (group - 1) / group), next,
                entry.permuted);
        }
      }
    }
    if (entry.permuted) continue;
    for (const Layout& other : all)
      if (check_layout(mesh, other, problem.shape) &&
          tile_shape(mesh, other, problem.shape) == tile)
        reach(entry.us + problem.costs.time_us(1, bytes), other, true);
  }
  return -1;
}

TEST(RedistributionPlanner, IsAsGoodAsAnExhaustiveSearch) {
  Cases cases(4);
  for (int i = 0; i < 60; ++i) {
    const Case drawn = cases.small(uint64_t{1} << 30);
    if (drawn.problem.mesh.primes().size() > 3) continue;
    const Plan made = *plan_by(drawn.problem, Method::kSynthesised);
    EXPECT_LE(made.predicted_us(), exhaustive_us(drawn.problem) + 1e-6) << drawn.name << "\n"
                                                                        << made.canonical_text();
  }
}

TEST(RedistributionPlanner, SameLayoutsNeedNothing) {
  const Plan made = *plan(problem_of("x=4,y=2", {16, 16}, "x,y", "x,y"));
  EXPECT_TRUE(made.steps().empty());
  EXPECT_EQ(made.predicted_us(), 0);
  EXPECT_EQ(made.peak_bytes(), 4u * 32);
  expect_right(made);
}

TEST(RedistributionPlanner, MessagesDecideBetweenDirectAndSynthesised) {
  Problem problem = problem_of("x=8,y=8", {512, 512, 64}, "x,y,-", "-,x,y");
  problem.costs.message_us = 0;
  EXPECT_EQ(plan(problem)->method(), Method::kDirect);
  problem.costs.message_us = 1000;
  EXPECT_EQ(plan(problem)->method(), Method::kSynthesised);
}

TEST(RedistributionPlanner, LimitsAreKept) {
  Cases cases(5);
  int limited = 0;
  for (int i = 0; i < 200; ++i) {
    Case drawn = cases.small(kMostElements);
    SCOPED_TRACE(drawn.name);
    Problem& problem = drawn.problem;
    problem.limit_bytes = larger_end(problem) * problem.element_bytes * 5 / 4;
    const auto made = plan(problem);
    if (!made) continue;
    ++limited;
    EXPECT_LE(made->peak_bytes(), problem.limit_bytes);
    expect_right(*made);
  }
  EXPECT_GT(limited, 150);
}

TEST(RedistributionPlanner, AnImpossibleLimitIsToldWithOneThatIsPossible) {
  Cases cases(6);
  for (int i = 0; i < 200; ++i) {
    Case drawn = cases.small(uint64_t{1} << 30);
    SCOPED_TRACE(drawn.name);
    drawn.problem.limit_bytes = 8;
    const auto refused = plan(drawn.problem);
    ASSERT_FALSE(refused);
    const std::string before =
        "no plan keeps the buffers of a rank within 8 bytes; the least "
        "limit that does is ";
    ASSERT_EQ(refused.error().rfind(before, 0), 0u) << refused.error();
    drawn.problem.limit_bytes = std::stoull(refused.error().substr(before.size()));
    const auto made = plan(drawn.problem);
    ASSERT_TRUE(made) << made.error();
    EXPECT_EQ(made->peak_bytes(), drawn.problem.limit_bytes);
    --drawn.problem.limit_bytes;
    EXPECT_FALSE(plan(drawn.problem));
  }
}

TEST(RedistributionPlanner, LargeMeshes) {
  Cases cases(7);
  for (const auto& sizes : std::vector<std::vector<uint32_t>>{
           {8, 8}, {64, 64}, {16, 16, 16}, {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}, {6, 6, 6, 6}})
    for (int i = 0; i < 10; ++i) {
      const Case drawn = cases.on_mesh(sizes, uint64_t{1} << 60);
      SCOPED_TRACE(drawn.name);
      const Plan made = *plan_by(drawn.problem, Method::kSynthesised);
      EXPECT_LE(made.largest_tile_elements(), larger_end(drawn.problem));
      EXPECT_LE(made.predicted_us(),
                plan_by(drawn.problem, Method::kXlaOrder)->predicted_us() + 1e-9);
    }
}

TEST(RedistributionPlanner, OneOf4096RanksIsCarriedOut) {
  const Problem problem = problem_of("a=16,b=16,c=16", {64, 64, 64}, "a,b*c.0,-", "c,-,b*a.2");
  expect_right(*plan_by(problem, Method::kSynthesised));
  expect_right(*plan_by(problem, Method::kDirect));
}

TEST(RedistributionCache, RemembersPlansThatWereUsedLast) {
  PlanCache cache(2);
  const Problem a = problem_of("x=4,y=2", {16, 16}, "x,y", "y,x");
  const Problem b = problem_of("x=4,y=2", {16, 16}, "x,-", "-,x");
  Problem c = b;
  c.costs.message_us = 7;
  const auto first = *cache.plan(a);
  EXPECT_EQ(*cache.plan(a), first);
  EXPECT_EQ(cache.hits(), 1u);
  EXPECT_NE(*cache.plan(b), first);
  EXPECT_EQ(*cache.plan(a), first);  // used last again
  ASSERT_TRUE(cache.plan(c));        // instead of b
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.misses(), 3u);
  EXPECT_EQ(*cache.plan(a), first);
  ASSERT_TRUE(cache.plan(b));
  EXPECT_EQ(cache.misses(), 4u);
}

TEST(RedistributionCache, ProblemsDifferInEveryPart) {
  const Problem base = problem_of("x=4,y=2", {16, 16}, "x,-", "-,x");
  std::vector<Problem> others(7, base);
  others[0].mesh = *Mesh::parse("x=4,z=2");
  others[1].shape = {32, 16};
  others[2].element_bytes = 2;
  others[3].from = *parse_layout(base.mesh, "y,-");
  others[4].to = *parse_layout(base.mesh, "-,y");
  others[5].costs.bytes_per_us = 1;
  others[6].limit_bytes = 1 << 20;
  PlanCache cache(100);
  ASSERT_TRUE(cache.plan(base));
  for (const Problem& other : others) ASSERT_TRUE(cache.plan(other));
  EXPECT_EQ(cache.misses(), 8u);
}

TEST(RedistributionCache, ErrorsAreNotRemembered) {
  PlanCache cache(2);
  Problem problem = problem_of("x=4,y=2", {16, 16}, "x,-", "-,x");
  problem.limit_bytes = 8;
  EXPECT_FALSE(cache.plan(problem));
  EXPECT_FALSE(cache.plan(problem));
  EXPECT_EQ(cache.misses(), 2u);
  EXPECT_EQ(cache.size(), 0u);
}

}  // namespace
}  // namespace ina::redistribution
