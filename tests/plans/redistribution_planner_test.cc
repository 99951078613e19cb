#include "plans/redistribution/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "bench/redistribute/cases.h"
#include "plans/redistribution/interpreter.h"

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

/// (dynslice | alltoall | allpermute)* allgather*
bool gathers_last(const Plan& plan) {
  return std::is_partitioned(plan.steps().begin(), plan.steps().end(), [](const Step& step) {
    return step.operation != Operation::kAllGather;
  });
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
    EXPECT_TRUE(gathers_last(made)) << drawn.name << "\n" << made.canonical_text();
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

/// Dijkstra over layouts, as the reference text has it: every operation of its table as an edge,
/// and at most one permutation. The time of the cheapest plan in the normal form.
class ExhaustiveSearch {
 public:
  explicit ExhaustiveSearch(const Problem& problem) : problem_(problem), mesh_(problem.mesh) {
    std::map<std::string, Layout> known;
    all_.push_back(Layout{problem.from.dimensions, {}});
    for (size_t i = 0; i < all_.size(); ++i)
      for (PrimeId axis = 0; axis < mesh_.prime_count(); ++axis)
        for (size_t d = 0; d < problem.shape.size(); ++d) {
          Layout next = all_[i];
          if ((next.used() >> axis & 1) != 0) continue;
          next[d].push(axis);
          if (known.emplace(layout_text(mesh_, next), next).second) all_.push_back(next);
        }
  }

  double best_us() {
    reach({0, problem_.from, kSlicing, false});
    while (!queue_.empty()) {
      const Entry entry = queue_.top();
      queue_.pop();
      if (entry.layout == problem_.to) return entry.us;
      if (entry.us > best_.at(key_of(entry))) continue;
      if (entry.phase == kSlicing || (entry.phase == kMoving && !entry.permuted)) slice(entry);
      if (entry.phase <= kMoving && !entry.permuted) permute(entry);
      pop(entry);
    }
    return -1;
  }

 private:
  enum Phase { kSlicing, kMoving, kGathering };
  struct Entry {
    double us;
    Layout layout;
    Phase phase;
    bool permuted;
    bool operator<(const Entry& other) const { return us > other.us; }
  };
  using Key = std::tuple<std::string, Phase, bool>;

  Key key_of(const Entry& entry) const {
    return {layout_text(mesh_, entry.layout), entry.phase, entry.permuted};
  }
  double bytes_of(const Layout& layout) const {
    return static_cast<double>(elements_of(tile_shape(mesh_, layout, problem_.shape))) *
           problem_.element_bytes;
  }
  void reach(const Entry& entry) {
    if (!check_layout(mesh_, entry.layout, problem_.shape)) return;
    if (bytes_of(entry.layout) > static_cast<double>(larger_end(problem_) * problem_.element_bytes))
      return;
    const auto [known, is_new] = best_.try_emplace(key_of(entry), entry.us);
    if (!is_new && known->second <= entry.us) return;
    known->second = entry.us;
    queue_.push(entry);
  }
  void slice(const Entry& entry) {
    for (size_t d = 0; d < problem_.shape.size(); ++d)
      for (PrimeId axis = 0; axis < mesh_.prime_count(); ++axis) {
        Layout next = entry.layout;
        if ((next.used() >> axis & 1) != 0) continue;
        next[d].push(axis);
        reach({entry.us, next, entry.phase, entry.permuted});
      }
  }
  void permute(const Entry& entry) {
    const double us = entry.us + problem_.costs.time_us(1, bytes_of(entry.layout));
    const Shape tile = tile_shape(mesh_, entry.layout, problem_.shape);
    for (const Layout& other : all_)
      if (check_layout(mesh_, other, problem_.shape) &&
          tile_shape(mesh_, other, problem_.shape) == tile)
        reach({us, other, kMoving, true});
  }
  void pop(const Entry& entry) {
    const double bytes = bytes_of(entry.layout);
    for (size_t d = 0; d < problem_.shape.size(); ++d) {
      Layout popped = entry.layout;
      std::vector<PrimeId> block;
      for (double group = 1; popped[d].size > 0;) {
        block.insert(block.begin(), popped[d].pop());
        group *= mesh_.size(block.front());
        const auto messages = static_cast<uint64_t>(group) - 1;
        const CostModel& costs = problem_.costs;
        const uint32_t gathered = gather_messages(static_cast<uint64_t>(group), mesh_.ranks());
        reach({entry.us + costs.time_us(gathered, bytes * (group - 1)), popped, kGathering,
               entry.permuted});
        if (entry.phase == kGathering) continue;
        const double us = entry.us + costs.time_us(messages, bytes * (group - 1) / group);
        for (size_t to = 0; to < problem_.shape.size(); ++to) {
          if (to == d) continue;
          Layout next = popped;
          for (const PrimeId axis : block) next[to].push(axis);
          reach({us, next, kMoving, entry.permuted});
        }
      }
    }
  }

  const Problem& problem_;
  const Mesh& mesh_;
  std::vector<Layout> all_;
  std::map<Key, double> best_;
  std::priority_queue<Entry> queue_;
};

TEST(RedistributionPlanner, IsAsGoodAsAnExhaustiveSearch) {
  const CostModel kCosts[] = {{}, {0, 0, 1250}, {5, 100, 12'500}};
  Cases cases(4);
  for (int i = 0; i < 90; ++i) {
    Case drawn = cases.small(uint64_t{1} << 30);
    drawn.problem.costs = kCosts[i % 3];
    if (drawn.problem.mesh.primes().size() > 4) continue;
    const Plan made = *plan_by(drawn.problem, Method::kSynthesised);
    EXPECT_LE(made.predicted_us(), ExhaustiveSearch(drawn.problem).best_us() + 1e-6)
        << drawn.name << "\n"
        << made.canonical_text();
  }
}

TEST(RedistributionPlanner, AnAxisIsSlicedWhereItsPlaceIsFreeOnlyAfterAMove) {
  Problem problem = problem_of("x=16,y=16,w=16", {16, 16, 256, 16}, "x,y,-,-", "-,-,x*w,y");
  problem.costs.bytes_per_us = 5000;
  const Plan made = *plan(problem);
  // Two exchanges of 16 ranks, the second of a sixteenth: a permutation would cost more.
  EXPECT_LE(made.predicted_us(),
            problem.costs.time_us(15, 15 << 10) + problem.costs.time_us(15, 15 << 6) + 1e-6)
      << made.canonical_text();
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

TEST(RedistributionPlanner, CopiesDecideBetweenDirectAndSynthesised) {
  // The exchange saves an operation, and orders the whole source and the whole target.
  Problem problem = problem_of("a=2,b=2,c=2", {288, 72, 144}, "-,b,c", "b,a,-");
  problem.costs.operation_us = 2000;
  EXPECT_EQ(plan(problem)->method(), Method::kDirect);
  problem.costs.copied_bytes_per_us = problem.costs.bytes_per_us / 2;
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
  std::vector<Problem> others(8, base);
  others[0].mesh = *Mesh::parse("x=4,z=2");
  others[1].shape = {32, 16};
  others[2].element_bytes = 2;
  others[3].from = *parse_layout(base.mesh, "y,-");
  others[4].to = *parse_layout(base.mesh, "-,y");
  others[5].costs.bytes_per_us = 1;
  others[6].limit_bytes = 1 << 20;
  others[7].costs.copied_bytes_per_us = 1;
  PlanCache cache(100);
  ASSERT_TRUE(cache.plan(base));
  for (const Problem& other : others) ASSERT_TRUE(cache.plan(other));
  EXPECT_EQ(cache.misses(), 9u);
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
