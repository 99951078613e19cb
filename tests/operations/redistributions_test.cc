// Redistribution plans carried out by engines and a switch in memory: every element on every rank,
// and no byte beyond plan.peak_bytes().
#include "operations/redistributions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "bench/redistribute/cases.h"
#include "plans/redistribution/interpreter.h"
#include "plans/redistribution/planner.h"
#include "tests/support/memory_job.h"
#include "tests/support/sanitizers.h"
#include "wire/text.h"

namespace ina::client {
namespace {

#ifdef INA_SLOW_BUILD
constexpr uint32_t kSeeds = 30;
#else
constexpr uint32_t kSeeds = 240;
#endif

using redistribution::Case;
using redistribution::Cases;
using redistribution::Method;
using redistribution::Plan;
using redistribution::Problem;
using redistribution::Tile;

constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};

/// An element's bytes follow from its global index.
std::vector<std::byte> bytes_of(const Tile& tile, uint32_t element_bytes) {
  std::vector<std::byte> bytes;
  bytes.reserve(tile.size() * element_bytes);
  for (const uint32_t index : tile)
    for (uint32_t i = 0; i < element_bytes; ++i)
      bytes.push_back(static_cast<std::byte>((index * 2654435761u + i * 40503u) >> 8 * (i % 4)));
  return bytes;
}

/// A buffer of exactly so many bytes, watched on both sides.
class Buffer {
 public:
  Buffer(uint64_t bytes, const std::vector<std::byte>& tile)
      : memory_(bytes + 2 * kGuardBytes, kGuard), bytes_(bytes) {
    std::ranges::copy(tile, memory_.begin() + kGuardBytes);
  }
  std::byte* data() { return memory_.data() + kGuardBytes; }
  bool begins_with(const std::vector<std::byte>& tile) {
    return tile.size() <= bytes_ && std::equal(tile.begin(), tile.end(), data());
  }
  bool is_intact() const {
    const auto guarded = [](std::byte byte) { return byte == kGuard; };
    return std::all_of(memory_.begin(), memory_.begin() + kGuardBytes, guarded) &&
           std::all_of(memory_.end() - kGuardBytes, memory_.end(), guarded);
  }

 private:
  std::vector<std::byte> memory_;
  uint64_t bytes_;
};

std::vector<std::byte> tile_bytes(const Problem& problem, const redistribution::Layout& layout,
                                  uint32_t rank) {
  return bytes_of(index_tile(problem.mesh, layout, problem.shape, rank), problem.element_bytes);
}

/// Carries plans out one after the other on one job, all started at once.
void expect_carried_out(const std::vector<Plan>& plans, uint32_t slot_bytes, uint32_t seed,
                        const std::string& name, uint32_t lost_of = 0) {
  const uint32_t ranks = plans.front().problem().mesh.ranks();
  test::MemoryJob job(ranks, slot_bytes, seed, lost_of);
  std::vector<std::shared_ptr<const Plan>> shared;
  for (const Plan& plan : plans) shared.push_back(std::make_shared<const Plan>(plan));
  struct Part {
    std::unique_ptr<Redistributions> redistributions;
    std::vector<Buffer> buffers;
    std::vector<Operation*> operations;
  };
  std::vector<Part> parts(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    Part& part = parts[rank];
    part.redistributions = std::make_unique<Redistributions>(
        job.executor(rank), redistribution::Job{Rank{static_cast<uint8_t>(rank)}, slot_bytes});
    for (const auto& plan : shared)
      part.buffers.emplace_back(plan->peak_bytes(),
                                tile_bytes(plan->problem(), plan->problem().from, rank));
    for (size_t i = 0; i < shared.size(); ++i)
      part.operations.push_back(part.redistributions->start(shared[i], part.buffers[i].data(), 0));
  }
  ASSERT_TRUE(job.run([&] {
    return std::ranges::all_of(parts, [](const Part& part) {
      return std::ranges::all_of(part.operations, [](const auto* o) { return o->done.load(); });
    });
  })) << name;
  for (uint32_t rank = 0; rank < ranks; ++rank)
    for (size_t i = 0; i < shared.size(); ++i) {
      const Problem& problem = shared[i]->problem();
      const std::string what =
          name + ", " + name_of(shared[i]->method()) + ", rank " + std::to_string(rank);
      EXPECT_TRUE(parts[rank].buffers[i].begins_with(tile_bytes(problem, problem.to, rank)))
          << what;
      EXPECT_TRUE(parts[rank].buffers[i].is_intact()) << what;
      EXPECT_TRUE(parts[rank].redistributions->release(parts[rank].operations[i]));
      EXPECT_FALSE(parts[rank].redistributions->release(parts[rank].operations[i]));
    }
}

/// The plan in as many pieces as the least limit needs, and in a few.
void add_limited(const Plan& whole, std::vector<Plan>& plans) {
  const auto most = whole.pieces_for(whole.least_peak_bytes());
  if (most && most->count > 1 && most->count <= 64) plans.push_back(whole.cut(*most));
  for (size_t d = 0; d < whole.problem().shape.size(); ++d) {
    redistribution::Pieces pieces{static_cast<uint8_t>(d), 2, 0};
    std::vector<redistribution::StepChoice> steps;
    for (const auto& step : whole.steps())
      steps.push_back({step.operation, step.moves, step.after});
    if (auto cut = Plan::assemble(whole.problem(), whole.method(), steps, pieces))
      plans.push_back(std::move(*cut));
  }
}

TEST(Redistributions, GiveEveryRankItsTile) {
  constexpr uint32_t kCases = kSeeds;
  constexpr uint64_t kMostElements = 15'000;
  Cases cases(7);
  uint32_t pieces = 0;
  std::set<std::string> operations;
  for (uint32_t i = 0; i < kCases; ++i) {
    Case drawn = cases.small(kMostElements);
    drawn.problem.element_bytes = std::array<uint32_t, 5>{4, 1, 2, 8, 12}[i % 5];
    std::vector<Plan> plans;
    for (const Method method :
         {Method::kSynthesised, Method::kDirect, Method::kXlaOrder, Method::kGatherSlice}) {
      plans.push_back(*plan_by(drawn.problem, method));
      const size_t before = plans.size();
      if (method != Method::kGatherSlice) add_limited(Plan(plans.back()), plans);
      pieces += static_cast<uint32_t>(plans.size() - before);
    }
    for (const Plan& plan : plans)
      for (const auto& step : plan.steps()) operations.insert(name_of(step.operation));
    expect_carried_out(plans, i % 2 == 0 ? 256 : 1024, i, drawn.name);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(pieces, kCases);
  EXPECT_EQ(operations.size(), 5u);
}

TEST(Redistributions, SurviveLosses) {
  Cases cases(8);
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Case drawn = cases.small(4'000);
    std::vector<Plan> plans{*plan_by(drawn.problem, Method::kSynthesised)};
    add_limited(Plan(plans.back()), plans);
    expect_carried_out(plans, 256, seed, drawn.name, 10 + seed % 40);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Redistributions, CarryTheUsersCasesOut) {
  for (const Case& user : redistribution::users_cases())
    expect_carried_out({*plan(user.problem), *plan_by(user.problem, Method::kSynthesised)}, 1024, 1,
                       user.name);
}

TEST(Redistributions, OfALayoutToItselfDoNothing) {
  Problem problem = redistribution::users_cases().front().problem;
  problem.to = problem.from;
  expect_carried_out({*plan(problem)}, 256, 1, "nothing to do");
}

TEST(Redistributions, OfOneRankOnly) {
  Problem problem{*redistribution::Mesh::parse("x=1"), {6, 4}, 4, {}, {}, {}, 0};
  problem.from = *parse_layout(problem.mesh, "x,-");
  problem.to = *parse_layout(problem.mesh, "-,x");
  expect_carried_out({*plan(problem)}, 256, 1, "one rank");
}

/// Ranks 3 and 5 start another plan than the others.
void expect_disagreement(const Plan& one, const Plan& other) {
  const auto ours = std::make_shared<const Plan>(one);
  const auto theirs = std::make_shared<const Plan>(other);
  constexpr uint32_t kRanks = 8;
  test::MemoryJob job(kRanks, 1024, 1);
  std::vector<std::unique_ptr<Redistributions>> all;
  std::vector<std::vector<std::byte>> buffers(kRanks);
  std::vector<Operation*> operations;
  const std::vector<std::byte> before(ours->peak_bytes() + theirs->peak_bytes(), std::byte{7});
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    buffers[rank] = before;
    all.push_back(std::make_unique<Redistributions>(
        job.executor(rank), redistribution::Job{Rank{static_cast<uint8_t>(rank)}, 1024}));
    operations.push_back(
        all.back()->start(rank == 3 || rank == 5 ? theirs : ours, buffers[rank].data(), 0));
  }
  ASSERT_TRUE(job.run([&] {
    return std::ranges::all_of(all, [](const auto& one) { return !one->disagreement().empty(); });
  }));
  const std::string expected = "ranks 0, 1, 2, 4, 6, 7 started the redistribution with plan hash " +
                               wire::hex_text(ours->hash(), 16) +
                               ", ranks 3, 5 started the redistribution with plan hash " +
                               wire::hex_text(theirs->hash(), 16);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(all[rank]->disagreement(), expected);
    EXPECT_FALSE(operations[rank]->done.load());
    EXPECT_EQ(buffers[rank], before) << "nothing has moved";
  }
}

TEST(Redistributions, RanksWithOtherPlansHearIt) {
  const Problem problem = redistribution::users_cases().front().problem;
  expect_disagreement(*plan_by(problem, Method::kSynthesised), *plan_by(problem, Method::kDirect));
}

/// The comparison is all that their plan does.
TEST(Redistributions, RanksWhosePlanDoesNothingHearItToo) {
  const Problem problem = redistribution::users_cases().front().problem;
  Problem same = problem;
  same.to = same.from;
  expect_disagreement(*plan(problem), *plan(same));
  expect_disagreement(*plan(same), *plan(problem));
}

TEST(Redistributions, PlansAreKeptForTheNextTime) {
  const Problem problem = redistribution::users_cases().back().problem;
  std::vector<Plan> plans;
  for (size_t i = 0; i < 3 * Redistributions::kMostKept; ++i) plans.push_back(*plan(problem));
  expect_carried_out(plans, 256, 1, "many at once");
}

}  // namespace
}  // namespace ina::client
