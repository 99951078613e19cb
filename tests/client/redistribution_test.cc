// Redistributions through the public API, with a whole switch over the shm port: elements, memory,
// and the errors of bad input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <array>

#include <algorithm>
#include <functional>

#include "ina/ina.hpp"
#include "plans/redistribution/interpreter.h"
#include "tests/support/client_ranks.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using redistribution::Layout;
using redistribution::Mesh;
using redistribution::Tile;
using test::on_joined_ranks;
using test::on_ranks;
using test::TestSwitch;
using testing::HasSubstr;

constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};

struct Wanted {
  std::string mesh;
  std::vector<size_t> shape;
  std::string from, to;
  uint64_t limit_bytes = 0;
  const char* method = nullptr;

  ina_redistribution c() const {
    ina_redistribution wanted{};
    wanted.struct_size = sizeof wanted;
    wanted.mesh = mesh.c_str();
    wanted.shape = shape.data();
    wanted.dimensions = shape.size();
    wanted.from = from.c_str();
    wanted.to = to.c_str();
    wanted.dtype = INA_FLOAT32;
    wanted.limit_bytes = limit_bytes;
    wanted.method = method;
    return wanted;
  }
  /// A rank's tile; elements are their own indices.
  Tile tile(const std::string& layout, int rank) const {
    const Mesh parsed = *Mesh::parse(mesh);
    return redistribution::index_tile(parsed, *parse_layout(parsed, layout), shape,
                                      static_cast<uint32_t>(rank));
  }
};

/// A buffer of exactly so many bytes with a tile, watched on both sides.
class Watched {
 public:
  Watched(const Tile& tile, size_t bytes) : memory_(bytes + 2 * kGuardBytes, kGuard) {
    std::ranges::copy(std::as_bytes(std::span(tile)), memory_.begin() + kGuardBytes);
  }
  std::span<std::byte> span() {
    return std::span(memory_).subspan(kGuardBytes, memory_.size() - 2 * kGuardBytes);
  }
  void expect(const Tile& tile) {
    EXPECT_TRUE(std::ranges::equal(span().first(tile.size() * 4), std::as_bytes(std::span(tile))));
    const auto guarded = [](std::byte byte) { return byte == kGuard; };
    EXPECT_TRUE(std::ranges::all_of(std::span(memory_).first(kGuardBytes), guarded));
    EXPECT_TRUE(std::ranges::all_of(std::span(memory_).last(kGuardBytes), guarded));
  }

 private:
  std::vector<std::byte> memory_;
};

void expect_redistributed(Context& context, int rank, const Wanted& wanted) {
  const RedistributionPlan plan(wanted.c());
  Watched buffer(wanted.tile(wanted.from, rank), plan.facts().buffer_bytes);
  context.redistribute(plan, buffer.span());
  buffer.expect(wanted.tile(wanted.to, rank));
}

TEST(Redistribution, GivesEveryRankItsTile) {
  TestSwitch sw;
  on_ranks(sw, 8, [](Context& context, int rank) {
    for (const char* method : {static_cast<const char*>(nullptr), "synthesised", "direct",
                               "xla-order", "gather-slice"}) {
      SCOPED_TRACE(method ? method : "chosen");
      expect_redistributed(context, rank, {"x=4,y=2", {16, 16, 16}, "y,-,x", "-,x*y,-", 0, method});
      expect_redistributed(context, rank, {"x=2,y=4", {96, 144}, "x*y,-", "-,y", 0, method});
      expect_redistributed(context, rank, {"x=8", {4800}, "x", "-", 0, method});
    }
    // With as little memory as there can be: in pieces.
    const Wanted large{"x=4,y=2", {128, 64, 16}, "y,-,x", "-,x*y,-", 80'000};
    EXPECT_GT(RedistributionPlan(large.c()).facts().pieces, 1u);
    expect_redistributed(context, rank, large);
  });
}

TEST(Redistribution, ManyMayBeUnderWay) {
  TestSwitch sw;
  on_ranks(sw, 4, [](Context& context, int rank) {
    const Wanted wanted{"x=2,y=2", {64, 64}, "x,y", "y,x"};
    const auto plan =
        RedistributionPlan::of<float>(wanted.mesh, wanted.shape, wanted.from, wanted.to);
    const auto read = RedistributionPlan::parse(plan.json());
    EXPECT_EQ(read.facts().hash, plan.facts().hash);
    EXPECT_THAT(plan.text(), HasSubstr("all-permute"));
    std::vector<Watched> buffers;
    std::vector<Request> requests;
    for (int i = 0; i < 10; ++i)
      buffers.emplace_back(wanted.tile(wanted.from, rank), plan.facts().buffer_bytes);
    for (size_t i = 0; i < buffers.size(); ++i)
      requests.push_back(context.redistribute_async(i % 2 == 0 ? plan : read, buffers[i].span()));
    int32_t one = 1, sum = 0;
    context.allreduce<int32_t>({&one, 1}, {&sum, 1});
    EXPECT_EQ(sum, 4);
    for (Request& request : requests) request.wait();
    for (Watched& buffer : buffers) buffer.expect(wanted.tile(wanted.to, rank));
  });
}

TEST(Redistribution, RanksWithOtherPlansHearIt) {
  TestSwitch sw;
  on_joined_ranks(sw, 4, [](Context& context, int rank) {
    const Wanted wanted{"x=2,y=2", {64, 64}, "x,y", rank == 2 ? "-,x*y" : "y,x"};
    const RedistributionPlan plan(wanted.c());
    Watched buffer(wanted.tile(wanted.from, rank), plan.facts().buffer_bytes);
    EXPECT_EQ(
        ina_redistribute(context.get(), plan.get(), buffer.span().data(), buffer.span().size(), 0),
        INA_ERR_MISMATCH);
    EXPECT_THAT(ina_last_error(context.get()),
                HasSubstr("ranks 0, 1, 3 started the redistribution with plan hash "));
    EXPECT_THAT(ina_last_error(context.get()),
                HasSubstr(", rank 2 started the redistribution with plan hash "));
    buffer.expect(wanted.tile(wanted.from, rank));
  });
}

TEST(Redistribution, ARankThatDoesSomethingElseIsNamed) {
  TestSwitch sw;
  on_joined_ranks(sw, 4, [](Context& context, int rank) {
    const RedistributionPlan plan(Wanted{"x=4", {64, 64}, "x,-", "-,x"}.c());
    std::vector<std::byte> buffer(plan.facts().buffer_bytes);
    const int status =
        rank == 1 ? ina_barrier(context.get(), 0)
                  : ina_redistribute(context.get(), plan.get(), buffer.data(), buffer.size(), 0);
    EXPECT_EQ(status, INA_ERR_MISMATCH);
    EXPECT_THAT(ina_last_error(context.get()), HasSubstr("operation 0: redistribution"));
  });
}

TEST(Redistribution, ARankThatDiesEndsItForAll) {
  TestSwitch sw;
  std::array<std::vector<std::byte>, 4>
      buffers;  // outlive the contexts, which wait as they are left
  on_joined_ranks(sw, 4, [&](Context& context, int rank) {
    const RedistributionPlan plan(Wanted{"x=4", {256, 256}, "x,-", "-,x", 130'000}.c());
    std::vector<std::byte>& buffer = buffers[static_cast<size_t>(rank)];
    buffer.resize(plan.facts().buffer_bytes);
    if (rank == 3) {
      ina_request* request = nullptr;
      EXPECT_EQ(
          ina_redistribute_async(context.get(), plan.get(), buffer.data(), buffer.size(), &request),
          INA_OK);
      return;  // leaves after it
    }
    int status = INA_OK;  // the first may be over before
    for (int i = 0; i < 2 && status == INA_OK; ++i)
      status = ina_redistribute(context.get(), plan.get(), buffer.data(), buffer.size(), 0);
    EXPECT_EQ(status, INA_ERR_PEER_LOST) << ina_last_error(context.get());
  });
}

// By dear messages a gather of few beats an exchange with many, and the other way round.
TEST(Redistribution, MethodsAreChosenByGivenCosts) {
  const auto steps_at = [](double alpha_us, double message_us) {
    const ina_costs costs{sizeof(ina_costs), alpha_us, message_us, 10, 0};
    const Wanted given{"x=4,y=2", {16, 16, 16}, "y,-,x", "-,x*y,-"};
    ina_redistribution wanted = given.c();
    wanted.costs = &costs;
    return RedistributionPlan(wanted).facts().steps;
  };
  EXPECT_EQ(steps_at(100, 0.1), 1u);  // one exchange
  EXPECT_EQ(steps_at(1, 100), 2u);    // two all-to-alls, of fewer messages
}

TEST(Redistribution, MeasuredCostsAreTheSameOnAllRanks) {
  TestSwitch sw;
  std::vector<ina_costs> told(4);
  on_ranks(sw, 4, [&](Context& context, int rank) {
    const ina_costs costs = context.measure_costs();
    told[static_cast<size_t>(rank)] = costs;
    EXPECT_GT(costs.alpha_us + costs.message_us, 0);
    EXPECT_GT(costs.gbps, 0);
    EXPECT_GT(costs.copy_gbps, 0);
    const Wanted given{"x=2,y=2", {16, 16}, "x,y", "y,x"};
    ina_redistribution wanted = given.c();
    wanted.costs = &costs;
    const RedistributionPlan plan(wanted);
    std::vector<std::byte> buffer(plan.facts().buffer_bytes);
    context.redistribute(plan, buffer);
    EXPECT_EQ(ina_measure_costs(context.get(), nullptr), INA_ERR_INVALID);
    ina_costs short_one{};
    EXPECT_EQ(ina_measure_costs(context.get(), &short_one), INA_ERR_INVALID);
    EXPECT_THAT(ina_last_error(context.get()), HasSubstr("sizeof(ina_costs)"));
  });
  for (const ina_costs& costs : told) {
    EXPECT_EQ(costs.alpha_us, told[0].alpha_us);
    EXPECT_EQ(costs.message_us, told[0].message_us);
    EXPECT_EQ(costs.gbps, told[0].gbps);
    EXPECT_EQ(costs.copy_gbps, told[0].copy_gbps);
  }
}

TEST(RedistributionErrors, CostsThatAreNoneAreRefused) {
  const auto refused = [](ina_costs costs) {
    const Wanted given{"x=4", {16, 16}, "x,-", "-,x"};
    ina_redistribution wanted = given.c();
    wanted.costs = &costs;
    ina_plan* plan = nullptr;
    const int status = ina_plan_create(&wanted, &plan);
    ina_plan_free(plan);
    return status == INA_ERR_INVALID;
  };
  EXPECT_FALSE(refused({sizeof(ina_costs), 0, 0, 1, 0}));
  EXPECT_FALSE(refused({offsetof(ina_costs, copy_gbps), 0, 0, 1, -1})) << "it has no copies";
  EXPECT_TRUE(refused({0, 1, 1, 1, 1}));
  EXPECT_TRUE(refused({sizeof(ina_costs), -1, 1, 1, 1}));
  EXPECT_TRUE(refused({sizeof(ina_costs), 1, 1, 0, 1}));
  EXPECT_TRUE(refused({sizeof(ina_costs), 1, 1, 1, -1}));
}

std::string complaint(const Wanted& wanted) {
  ina_plan* plan = nullptr;
  const ina_redistribution c = wanted.c();
  EXPECT_EQ(ina_plan_create(&c, &plan), INA_ERR_INVALID);
  EXPECT_EQ(plan, nullptr);
  return ina_last_error(nullptr);
}

TEST(RedistributionErrors, BadInputIsNamed) {
  EXPECT_THAT(complaint({"x=4,y=2", {16, 16}, "x,x", "-,-"}), HasSubstr("ina_plan_create: from: "));
  EXPECT_THAT(complaint({"x=4,y=2", {16, 16}, "x,-", "-,z"}), HasSubstr("to: "));
  EXPECT_THAT(complaint({"x=4,x=2", {16, 16}, "x,-", "-,x"}), HasSubstr("mesh: "));
  EXPECT_THAT(complaint({"x=4,y=2", {18, 16}, "x,-", "-,x"}), HasSubstr("18"));
  EXPECT_THAT(complaint({"x=4,y=2", {16}, "x,-", "-,x"}), HasSubstr("dimension"));
  EXPECT_THAT(complaint({"x=4,y=2", {}, "x,-", "-,x"}), HasSubstr("shape is NULL"));
  EXPECT_THAT(complaint({"x=4,y=2", {16, 16}, "x,-", "-,x", 100}), HasSubstr("the least limit"));
  EXPECT_THAT(complaint({"x=4,y=2", {16, 16}, "x,-", "-,x", 0, "best"}),
              HasSubstr("no method is called 'best'"));
  ina_plan* plan = nullptr;
  EXPECT_EQ(ina_plan_create(nullptr, &plan), INA_ERR_INVALID);
  EXPECT_EQ(ina_plan_parse("{}", &plan), INA_ERR_INVALID);
  EXPECT_THAT(ina_last_error(nullptr), HasSubstr("ina_plan_parse: this is no plan"));
  EXPECT_EQ(ina_plan_text(nullptr), nullptr);
  ina_plan_free(nullptr);
}

TEST(RedistributionErrors, WhatDoesNotFitTheJobChangesNothing) {
  TestSwitch sw;
  on_ranks(sw, 2, [](Context& context, int rank) {
    const auto expect = [&](int status, const char* text) {
      EXPECT_EQ(status, INA_ERR_INVALID);
      EXPECT_THAT(ina_last_error(context.get()), HasSubstr(text));
    };
    const RedistributionPlan other(Wanted{"x=4", {16, 16}, "x,-", "-,x"}.c());
    const Wanted wanted{"x=2", {16, 16}, "x,-", "-,x"};
    const RedistributionPlan plan(wanted.c());
    std::vector<std::byte> buffer(other.facts().buffer_bytes + plan.facts().buffer_bytes);
    ina_context* c = context.get();
    expect(ina_redistribute(c, other.get(), buffer.data(), buffer.size(), 0), "ranks");
    expect(ina_redistribute(c, nullptr, buffer.data(), buffer.size(), 0), "plan is NULL");
    expect(ina_redistribute(c, plan.get(), nullptr, buffer.size(), 0), "buffer is NULL");
    expect(ina_redistribute(c, plan.get(), buffer.data(), 10, 0),
           "ina_redistribute: buffer has 10 bytes, the plan needs 1024");
    expect(ina_redistribute_async(c, plan.get(), buffer.data(), buffer.size(), nullptr),
           "request is NULL");
    expect_redistributed(context, rank, wanted);
  });
}

}  // namespace
}  // namespace ina
