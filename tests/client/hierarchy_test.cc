// Hierarchical collectives through the public API, with a whole switch over the shm port: every
// element on every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "ina/ina.hpp"
#include "plans/themis/planner.h"
#include "tests/client/hierarchy_ranks.h"
#include "tests/support/client_ranks.h"
#include "tests/support/sanitizers.h"
#include "tests/support/switch_fixture.h"
#include "wire/text.h"

namespace ina {
namespace {

using test::be_patient;
using test::expect_collectives;
using test::join;
using test::kCounts;
using test::kGroupSchedulers;
using test::on_joined_ranks;
using test::on_ranks;
using test::shared_slots;
using test::sum_of;
using test::TestSwitch;
using test::topology;
using test::values_of;
using testing::HasSubstr;

using Options = Hierarchy::Options;

TEST(Hierarchy, GivesEveryRankItsElements) {
  const std::vector<std::vector<int>> shapes = {{2, 2, 2}, {4, 2}, {2, 3}, {4}};
  for (const auto& shape : shapes) {
    const int world = std::accumulate(shape.begin(), shape.end(), 1, std::multiplies());
    SCOPED_TRACE(std::to_string(world) + " ranks in " + std::to_string(shape.size()) +
                 " dimensions");
    TestSwitch sw(shared_slots());
    on_ranks(
        sw, world,
        [&](Context& context, int rank) {
          Hierarchy hierarchy = Hierarchy::from_text(context, topology(shape));
          expect_collectives(hierarchy, rank, world, {"themis", 4}, kCounts);
#ifndef INA_SLOW_BUILD
          for (const Options& options : {Options{}, Options{"baseline", 5}, Options{"search", 3}})
            expect_collectives(hierarchy, rank, world, options, kCounts);
#endif
          hierarchy.free();
        },
        be_patient);
  }
}

TEST(Hierarchy, SixteenRanks) {
  TestSwitch sw(shared_slots());
  const auto run = [](Context& context, int rank) {
    Hierarchy hierarchy = Hierarchy::from_text(context, topology({4, 4}));
#ifdef INA_UNDER_TSAN
    expect_collectives(hierarchy, rank, 16, {"themis", 2}, {7});
#else
    expect_collectives(hierarchy, rank, 16, {"themis", 8}, {7, 3001});
#endif
    hierarchy.free();
  };
  on_ranks(sw, 16, run, be_patient);
}

TEST(Hierarchy, ManyMayBeUnderWay) {
  TestSwitch sw(shared_slots());
  on_ranks(sw, 8, [&](Context& context, int rank) {
    Hierarchy hierarchy = Hierarchy::from_text(context, topology({2, 2, 2}));
    constexpr size_t kCount = 4001;
    std::vector<std::vector<int32_t>> data;
    std::vector<Request> requests;
    for (int i = 0; i < 6; ++i) data.push_back(values_of(rank, kCount));
    for (size_t i = 0; i < data.size(); ++i)
      requests.push_back(hierarchy.allreduce_async<int32_t>(
          data[i], data[i], INA_SUM, {i % 2 == 0 ? "baseline" : "themis", 6}));
    // The context goes on by itself meanwhile.
    int32_t one = 1, sum = 0;
    context.allreduce<int32_t>({&one, 1}, {&sum, 1});
    EXPECT_EQ(sum, 8);
    while (!requests[3].test()) std::this_thread::yield();
    for (Request& request : requests) request.wait();
    for (const auto& values : data)
      for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(values[i], sum_of(8, i));
    hierarchy.free();
  });
}

TEST(Hierarchy, NobodyNeedsToWait) {
  TestSwitch sw(shared_slots());
  on_ranks(sw, 4, [&](Context& context, int rank) {
    Hierarchy hierarchy = Hierarchy::from_text(context, topology({2, 2}));
    constexpr size_t kCount = 9001;
    auto data = values_of(rank, kCount);
    std::atomic<int> status{99};
    Request request = hierarchy.allreduce_async<int32_t>(data, data);
    request.set_callback(
        [](void* to, int ended) { static_cast<std::atomic<int>*>(to)->store(ended); }, &status);
    while (status.load() == 99) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(status.load(), INA_OK);
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(data[i], sum_of(4, i));
    hierarchy.free();
  });
}

TEST(Hierarchy, RailsMayBeOfTwoSwitches) {
  TestSwitch first(shared_slots()), second(shared_slots());
  on_ranks(first, 4, [&](Context& context, int rank) {
    Context other = join(second, rank, 4);
    Context* rails[] = {&context, &other};
    Hierarchy hierarchy = Hierarchy::from_text(context, topology({2, 2}), rails);
    expect_collectives(hierarchy, rank, 4, {"themis", 6}, {1, 3001});
    auto data = values_of(rank, 2000);
    Request request = hierarchy.allreduce_async<int32_t>(data, data);
    while (!request.test()) std::this_thread::yield();
    EXPECT_EQ(data[1999], sum_of(4, 1999));
    EXPECT_GT(second.status()["jobs"].size(), 1u);
    hierarchy.free();
    other.finalize();
  });
}

TEST(Hierarchy, OtherTypesAndOperations) {
  TestSwitch sw(shared_slots());
  on_ranks(sw, 4, [&](Context& context, int rank) {
    Hierarchy hierarchy = Hierarchy::from_text(context, topology({2, 2}));
    std::vector<double> mean(101, rank + 1.0);
    hierarchy.allreduce<double>(mean, mean, INA_AVG);
    EXPECT_EQ(mean, std::vector<double>(101, 2.5));
    std::vector<int64_t> most(33, rank);
    hierarchy.allreduce<int64_t>(most, most, INA_MAX);
    EXPECT_EQ(most, std::vector<int64_t>(33, 3));
    std::vector<uint8_t> bytes(5, static_cast<uint8_t>(rank)), all(20);
    hierarchy.all_gather<uint8_t>(bytes, all);
    EXPECT_EQ(all[19], 3);
    hierarchy.free();
  });
}

// The product has no rings: a plan for the kinds of the file would be slower.
TEST(Hierarchy, PlansForTheSwitchesThatCarryThemOut) {
  const std::string text =
      "dimensions: [{kind: ring, size: 2, gbps: 8, step_latency_ns: 100}, "
      "{kind: halving-doubling, size: 2, gbps: 6, step_latency_ns: 100}]";
  using enum themis::DimensionKind;
  const themis::Dimension first{
      .kind = kRing, .size = 2, .bits_per_s = 8'000'000'000, .step_latency_ps = 100'000};
  themis::Dimension second = first;
  second.bits_per_s = 6'000'000'000;
  const auto topology = themis::carried_by_switches({.name = {}, .dimensions = {first, second}});
  const auto planned = themis::make_plan(topology, {{.bytes = 4000, .element_bytes = 4}},
                                         {.scheduler = themis::Scheduler::kThemis,
                                          .chunks = 4,
                                          .in_network = themis::InNetwork::kAlways});
  ASSERT_TRUE(planned) << planned.error().text;
  const std::string hash = wire::hex_text(themis::hash_of(planned->plan), 16);
  TestSwitch sw(shared_slots());
  on_joined_ranks(sw, 4, [&](Context& context, int rank) {
    Hierarchy hierarchy = Hierarchy::from_text(context, text);
    auto data = values_of(rank, 1000);
    const ina_hierarchical_options options{sizeof(ina_hierarchical_options), "themis",
                                           rank == 1 ? 7u : 4u};
    EXPECT_EQ(ina_hierarchical_allreduce(hierarchy.get(), data.data(), data.data(), 1000, INA_INT32,
                                         INA_SUM, &options, 0),
              INA_ERR_MISMATCH);
    EXPECT_THAT(
        ina_last_error(context.get()),
        HasSubstr("ranks 0, 2, 3 started the hierarchical collective with plan hash " + hash));
  });
}

// ---- groups

using Call = Hierarchy::Call;

/// The buffers of a group, of all collectives and of elements of several widths.
struct GroupData {
  GroupData(int rank, int world, size_t count)
      : rank(rank),
        world(world),
        count(count),
        gradients(values_of(rank, count)),
        scattered(values_of(rank, count * static_cast<size_t>(world))),
        part(count, -1),
        bytes(count, static_cast<uint8_t>(rank + 1)),
        gathered(count * static_cast<size_t>(world)),
        blocks(count * static_cast<size_t>(world), rank),
        exchanged(blocks.size(), -1) {}

  std::vector<Call> calls() {
    return {Call::allreduce<int32_t>(gradients, gradients),
            Call::reduce_scatter<int32_t>(scattered, part),
            Call::all_gather<uint8_t>(bytes, gathered),
            Call::all_to_all<int64_t>(blocks, exchanged)};
  }
  void expect_done() const {
    const size_t own = count * static_cast<size_t>(rank);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(gradients[i], sum_of(world, i)) << i;
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(part[i], sum_of(world, own + i)) << i;
    for (size_t i = 0; i < gathered.size(); ++i) ASSERT_EQ(gathered[i], i / count + 1) << i;
    for (size_t i = 0; i < exchanged.size(); ++i)
      ASSERT_EQ(exchanged[i], static_cast<int64_t>(i / count)) << i;
  }

  int rank, world;
  size_t count;
  std::vector<int32_t> gradients, scattered, part;
  std::vector<uint8_t> bytes, gathered;
  std::vector<int64_t> blocks, exchanged;
};

TEST(HierarchicalGroup, GivesEachCollectiveItsElements) {
  TestSwitch sw(shared_slots());
  on_ranks(
      sw, 8,
      [&](Context& context, int rank) {
        Hierarchy hierarchy = Hierarchy::from_text(context, topology({2, 2, 2}));
        for (const char* scheduler : kGroupSchedulers)
          for (const size_t count : {size_t{1}, size_t{13}, size_t{2003}}) {
            SCOPED_TRACE(std::string(scheduler) + ", " + std::to_string(count) + " elements");
            GroupData data(rank, 8, count);
            hierarchy.group(data.calls(), {scheduler, 5});
            data.expect_done();
          }
        hierarchy.free();
      },
      be_patient);
}

TEST(HierarchicalGroup, SeveralMayBeUnderWayBesideSingleCollectives) {
  TestSwitch sw(shared_slots());
  on_ranks(
      sw, 6,
      [&](Context& context, int rank) {
        Hierarchy hierarchy = Hierarchy::from_text(context, topology({2, 3}));
        GroupData first(rank, 6, 1001), second(rank, 6, 77);
        auto alone = values_of(rank, 500);
        Request one = hierarchy.group_async(first.calls());
        Request two = hierarchy.allreduce_async<int32_t>(alone, alone);
        Request three = hierarchy.group_async(second.calls(), {"search", 3});
        while (!three.test()) std::this_thread::yield();
        one.wait();
        two.wait();
        first.expect_done();
        second.expect_done();
        for (size_t i = 0; i < alone.size(); ++i) ASSERT_EQ(alone[i], sum_of(6, i));
        hierarchy.free();
      },
      be_patient);
}

// Some ranks' vectors may be empty: all have the same counts.
TEST(HierarchicalGroup, WhatHasNoElementsIsLeftOut) {
  TestSwitch sw(shared_slots());
  on_ranks(sw, 4, [&](Context& context, int rank) {
    Hierarchy hierarchy = Hierarchy::from_text(context, topology({2, 2}));
    std::vector<int32_t> none, some = values_of(rank, 9);
    hierarchy.group({Call::allreduce<int32_t>(none, none), Call::allreduce<int32_t>(some, some),
                     Call::all_gather<int32_t>(none, none)});
    for (size_t i = 0; i < some.size(); ++i) ASSERT_EQ(some[i], sum_of(4, i));
    hierarchy.group({Call::allreduce<int32_t>(none, none), Call::all_to_all<int32_t>(none, none)});
    hierarchy.free();
  });
}

TEST(HierarchicalGroup, OfOtherCallsOnOneRankIsHeardOfByAll) {
  TestSwitch sw(shared_slots());
  on_joined_ranks(sw, 4, [&](Context& context, int rank) {
    Hierarchy hierarchy = Hierarchy::from_text(context, topology({2, 2}));
    auto a = values_of(rank, 100), b = values_of(rank, rank == 2 ? 200 : 300);
    const auto before = a;
    try {
      hierarchy.group({Call::allreduce<int32_t>(a, a), Call::allreduce<int32_t>(b, b)});
      ADD_FAILURE() << "the plans differ";
    } catch (const Exception& error) {
      EXPECT_EQ(error.status(), INA_ERR_MISMATCH);
      EXPECT_THAT(error.what(), HasSubstr("rank 2 started the hierarchical collective"));
    }
    EXPECT_EQ(a, before);
  });
}

TEST(HierarchicalGroup, BadCallsAreNamedAndChangeNothing) {
  TestSwitch sw(shared_slots());
  on_ranks(sw, 2, [&](Context& context, int rank) {
    Hierarchy hierarchy = Hierarchy::from_text(context, topology({2}));
    std::vector<int32_t> data(64, 1);
    int32_t* const at = data.data();
    const auto expect = [&](std::vector<ina_hierarchical_call> calls, const char* text) {
      SCOPED_TRACE(text);
      EXPECT_EQ(ina_hierarchical_group(hierarchy.get(), calls.data(), calls.size(), nullptr, 0),
                INA_ERR_INVALID);
      EXPECT_THAT(ina_last_error(context.get()), HasSubstr(text));
    };
    const ina_hierarchical_call good{INA_HIERARCHICAL_ALLREDUCE, at, at, 8, INA_INT32, INA_SUM};
    expect({}, "ina_hierarchical_group: 0 collectives, not 1 to 256");
    expect(std::vector(257, ina_hierarchical_call{INA_HIERARCHICAL_ALLREDUCE, nullptr, nullptr, 0,
                                                  INA_INT32, INA_SUM}),
           "257 collectives, not 1 to 256");
    expect({good, {INA_HIERARCHICAL_ALL_GATHER, nullptr, at + 8, 4, INA_INT32, INA_SUM}},
           "ina_hierarchical_group: calls[1]: send is NULL");
    expect({good, {INA_HIERARCHICAL_ALLREDUCE, at + 8, at + 8, 8, INA_INT32, INA_AVG}},
           "calls[1]: avg of int32 is not defined");
    expect({good,
            {static_cast<ina_hierarchical_collective>(9), at + 8, at + 8, 8, INA_INT32, INA_SUM}},
           "calls[1]: collective 9 is no ina_hierarchical_collective");
    expect({good, {INA_HIERARCHICAL_ALLREDUCE, at + 7, at + 20, 8, INA_INT32, INA_SUM}},
           "calls[0].recv and calls[1].send overlap");
    expect({{INA_HIERARCHICAL_ALLREDUCE, at + 30, at, 8, INA_INT32, INA_SUM},
            {INA_HIERARCHICAL_ALLREDUCE, at + 40, at + 7, 8, INA_INT32, INA_SUM}},
           "calls[0].recv and calls[1].recv overlap");
    EXPECT_EQ(ina_hierarchical_group(hierarchy.get(), nullptr, 3, nullptr, 0), INA_ERR_INVALID);
    // Two may send the same.
    std::vector<int32_t> one(8), two(8);
    const std::vector<int32_t> sent(8, rank);
    hierarchy.group(
        {Call::allreduce<int32_t>(sent, one), Call::allreduce<int32_t>(sent, two, INA_MAX)});
    EXPECT_EQ(one, two);
    expect_collectives(hierarchy, rank, 2, {}, {5});
    hierarchy.free();
  });
}

}  // namespace
}  // namespace ina
