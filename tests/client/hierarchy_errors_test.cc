// Hierarchies whose ranks disagree, leave or die, and their calibration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <latch>
#include <thread>

#include "common/clock.h"
#include "ina/ina.hpp"
#include "tests/client/hierarchy_ranks.h"
#include "tests/support/attendance.h"
#include "tests/support/client_ranks.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::Attendance;
using test::expect_collectives;
using test::join;
using test::on_joined_ranks;
using test::on_ranks;
using test::shared_slots;
using test::sum_of;
using test::TestSwitch;
using test::topology;
using test::values_of;
using testing::AnyOf;
using testing::HasSubstr;

// ---- calibration

TEST(HierarchyCalibration, GivesAllRanksTheSameTopologyThatPlansAreMadeFor) {
  TestSwitch sw(shared_slots());
  std::vector<std::string> told(4);
  on_ranks(sw, 4, [&](Context& context, int rank) {
    Hierarchy hierarchy = Hierarchy::from_text(context, topology({2, 2}));
    const std::string yaml = hierarchy.calibrate();
    told[static_cast<size_t>(rank)] = yaml;
    expect_collectives(hierarchy, rank, 4, {}, {77});
    hierarchy.free();
    Hierarchy measured = Hierarchy::from_text(context, yaml);
    expect_collectives(measured, rank, 4, {}, {77});
    measured.free();
  });
  for (const std::string& yaml : told) {
    EXPECT_EQ(yaml, told[0]);
    EXPECT_THAT(yaml, HasSubstr("kind: ina, size: 2, gbps: "));
  }
}

TEST(HierarchyCalibration, IsRefusedWhileSomethingIsUnderWay) {
  TestSwitch sw(shared_slots());
  on_ranks(sw, 2, [&](Context& context, int rank) {
    Hierarchy hierarchy = Hierarchy::from_text(context, topology({2}));
    auto data = values_of(rank, 1000);
    Request request = hierarchy.allreduce_async<int32_t>(data, data);
    const char* yaml = "";
    EXPECT_EQ(ina_hierarchy_calibrate(hierarchy.get(), &yaml), INA_ERR_INVALID);
    EXPECT_THAT(ina_last_error(context.get()), HasSubstr("are under way"));
    EXPECT_EQ(yaml, nullptr);
    request.wait();
    EXPECT_EQ(ina_hierarchy_calibrate(hierarchy.get(), nullptr), INA_ERR_INVALID);
    EXPECT_EQ(ina_hierarchy_calibrate(nullptr, &yaml), INA_ERR_INVALID);
    EXPECT_EQ(data[999], sum_of(2, 999));
    hierarchy.free();
  });
}

TEST(HierarchyCalibration, ARankThatHasLeftEndsItForAll) {
  TestSwitch sw(shared_slots());
  on_joined_ranks(sw, 4, [&](Context& context, int rank) {
    Hierarchy hierarchy = Hierarchy::from_text(context, topology({2, 2}));
    if (rank == 3) return;  // leaves at once
    try {
      (void)hierarchy.calibrate();
      ADD_FAILURE() << "rank 3 has not measured";
    } catch (const Exception& error) {
      // A rank that waits for it gives up, and with that ends the groups of the others.
      EXPECT_THAT(error.status(), AnyOf(INA_ERR_PEER_LOST, INA_ERR_ABORTED)) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("has called ina_finalize"));
    }
  });
}

// ---- what goes wrong

struct Ended {
  int status = INA_OK;
  std::string text;
};

/// Each rank's attempt to make a hierarchy.
std::vector<Ended> create(int world, const std::function<std::string(int)>& yaml) {
  TestSwitch sw(shared_slots());
  std::vector<Ended> ended(static_cast<size_t>(world));
  on_ranks(sw, world, [&](Context& context, int rank) {
    const std::string text = yaml(rank);
    ina_hierarchy_config config{};
    config.struct_size = sizeof config;
    config.topology = text.c_str();
    ina_hierarchy* made = nullptr;
    Ended& own = ended[static_cast<size_t>(rank)];
    own.status = ina_hierarchy_create(context.get(), &config, &made);
    own.text = ina_last_error(context.get());
    EXPECT_EQ(made, nullptr);
    // The context goes on.
    int32_t one = 1, sum = 0;
    context.allreduce<int32_t>({&one, 1}, {&sum, 1});
    EXPECT_EQ(sum, world);
  });
  return ended;
}

TEST(HierarchyErrors, ADimensionTooFewIsSaidOnAllRanks) {
  for (const Ended& ended : create(4, [](int) { return topology({2, 3}); })) {
    EXPECT_EQ(ended.status, INA_ERR_INVALID);
    EXPECT_THAT(ended.text, HasSubstr("ina_hierarchy_create: the topology's dimensions have 2 x 3 "
                                      "= 6 participants, the job has 4 ranks"));
  }
}

TEST(HierarchyErrors, AWrongTopologyOfOneRankIsHeardOfByAll) {
  const auto ended = create(4, [](int rank) {
    return rank == 2 ? std::string("dimensions: [{kind: star}]") : topology({2, 2});
  });
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ended[rank].status, rank == 2 ? INA_ERR_INVALID : INA_ERR_MISMATCH);
    EXPECT_THAT(ended[rank].text,
                HasSubstr(rank == 2 ? "topology:1:" : "rank 2 gave no topology that fits the job"));
  }
}

TEST(HierarchyErrors, DifferentTopologiesAreHeardOfByAll) {
  const auto ended = create(4, [](int rank) {
    return rank == 3 ? topology({4}) : topology({2, 2});
  });
  for (const Ended& one : ended) {
    EXPECT_EQ(one.status, INA_ERR_MISMATCH);
    EXPECT_THAT(one.text, HasSubstr("different topologies: ranks 0, 1, 2, and rank 3"));
  }
}

TEST(HierarchyErrors, DifferentPlansAreHeardOfByAll) {
  TestSwitch sw(shared_slots());
  on_ranks(sw, 4, [&](Context& context, int rank) {
    Hierarchy hierarchy = Hierarchy::from_text(context, topology({2, 2}));
    auto data = values_of(rank, 1000);
    const auto before = data;
    const ina_hierarchical_options options{sizeof(ina_hierarchical_options), "themis",
                                           rank == 1 ? 7u : 4u};
    EXPECT_EQ(ina_hierarchical_allreduce(hierarchy.get(), data.data(), data.data(), 1000, INA_INT32,
                                         INA_SUM, &options, 0),
              INA_ERR_MISMATCH);
    EXPECT_THAT(ina_last_error(context.get()),
                HasSubstr("ranks 0, 2, 3 started the hierarchical collective with plan hash "));
    EXPECT_THAT(ina_last_error(context.get()),
                HasSubstr(", rank 1 started the hierarchical collective with plan hash "));
    EXPECT_EQ(data, before);
    // It stays so, and the context goes on.
    EXPECT_EQ(ina_hierarchical_allreduce(hierarchy.get(), data.data(), data.data(), 1000, INA_INT32,
                                         INA_SUM, nullptr, 0),
              INA_ERR_MISMATCH);
    int32_t one = 1, sum = 0;
    context.allreduce<int32_t>({&one, 1}, {&sum, 1});
    EXPECT_EQ(sum, 4);
  });
}

TEST(HierarchyErrors, ARankThatDiesEndsItForAll) {
  TestSwitch sw(shared_slots());
  std::barrier<> made(8);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 8; ++rank)
    threads.emplace_back([&, rank] {
      Attendance attendance(made);
      ina_context* context = nullptr;
      ina_config config;
      ina_config_init(&config);
      const std::string url = sw.url();
      config.url = url.c_str();
      config.job = "job";
      config.rank = rank;
      config.world_size = 8;
      config.timeout_us = 20'000'000;
      ASSERT_EQ(ina_init(&config, &context), INA_OK) << ina_last_error(nullptr);
      const std::string yaml = topology({2, 2, 2});
      ina_hierarchy_config wanted{};
      wanted.struct_size = sizeof wanted;
      wanted.topology = yaml.c_str();
      ina_hierarchy* hierarchy = nullptr;
      ASSERT_EQ(ina_hierarchy_create(context, &wanted, &hierarchy), INA_OK)
          << ina_last_error(context);
      attendance.wait();
      std::vector<int32_t> data(200'000, 1);
      int status = INA_OK;
      if (rank == 5) {
        ina_request* request = nullptr;
        EXPECT_EQ(ina_hierarchical_allreduce_async(hierarchy, data.data(), data.data(), data.size(),
                                                   INA_INT32, INA_SUM, nullptr, &request),
                  INA_OK);
        ina_finalize(context, 1000);  // in the middle of it, without the others
      } else {
        const Nanos begin = now_ns();
        while (status == INA_OK)  // the first may be over before
          status = ina_hierarchical_allreduce(hierarchy, data.data(), data.data(), data.size(),
                                              INA_INT32, INA_SUM, nullptr, 0);
        EXPECT_THAT(status, AnyOf(INA_ERR_PEER_LOST, INA_ERR_ABORTED));
        EXPECT_NE(std::string(ina_last_error(context)), "");
        EXPECT_LT(now_ns() - begin, Nanos{15'000'000'000});
      }
      if (rank != 5) ina_finalize(context, 0);
      ina_hierarchy_free(hierarchy, 0);
    });
  for (auto& thread : threads) thread.join();
}

TEST(HierarchyErrors, OneThatDoesNotComeIsWaitedForAndNamed) {
  TestSwitch sw(shared_slots());
  std::latch given_up(3);
  on_ranks(sw, 4, [&](Context& context, int rank) {
    Hierarchy hierarchy = Hierarchy::from_text(context, topology({2, 2}));
    std::vector<int32_t> data(100, 1);
    if (rank == 3) {
      given_up.wait();
      EXPECT_EQ(ina_hierarchical_allreduce(hierarchy.get(), data.data(), data.data(), 100,
                                           INA_INT32, INA_SUM, nullptr, 0),
                INA_ERR_ABORTED);
      EXPECT_THAT(ina_last_error(context.get()), HasSubstr("gave up: waited 0.5 s"));
      return;
    }
    EXPECT_THAT(ina_hierarchical_allreduce(hierarchy.get(), data.data(), data.data(), 100,
                                           INA_INT32, INA_SUM, nullptr, 500'000),
                AnyOf(INA_ERR_TIMEOUT, INA_ERR_ABORTED));
    EXPECT_THAT(ina_last_error(context.get()), HasSubstr("rank 3"));
    given_up.count_down();
  });
}

TEST(HierarchyErrors, BadArgumentsAreNamedAndChangeNothing) {
  TestSwitch sw(shared_slots());
  on_ranks(sw, 2, [&](Context& context, int rank) {
    Hierarchy hierarchy = Hierarchy::from_text(context, topology({2}));
    std::vector<int32_t> data(16, 1);
    const auto expect = [&](int status, const char* text) {
      EXPECT_EQ(status, INA_ERR_INVALID);
      EXPECT_THAT(ina_last_error(context.get()), HasSubstr(text));
    };
    const auto reduce = [&](const void* send, ina_dtype dtype, ina_op op,
                            const ina_hierarchical_options* options) {
      return ina_hierarchical_allreduce(hierarchy.get(), send, data.data(), 8, dtype, op, options,
                                        0);
    };
    ina_hierarchical_options options{sizeof(ina_hierarchical_options), "fast", 0};
    expect(reduce(data.data(), INA_INT32, INA_SUM, &options),
           "scheduler 'fast' is unknown (known: baseline, themis, search)");
    options = {sizeof(ina_hierarchical_options), nullptr, 5000};
    expect(reduce(data.data(), INA_INT32, INA_SUM, &options), "chunks is 5000, not 1 to 4096");
    expect(reduce(nullptr, INA_INT32, INA_SUM, nullptr),
           "ina_hierarchical_allreduce: send is NULL");
    expect(reduce(data.data(), INA_INT32, INA_AVG, nullptr), "avg of int32 is not defined");
    expect(reduce(data.data() + 1, INA_INT32, INA_SUM, nullptr), "overlap");
    expect(ina_hierarchical_all_to_all(hierarchy.get(), data.data(), data.data(), 8, INA_INT32,
                                       nullptr, 0),
           "overlap");
    EXPECT_EQ(ina_hierarchical_allreduce(nullptr, data.data(), data.data(), 8, INA_INT32, INA_SUM,
                                         nullptr, 0),
              INA_ERR_INVALID);
    expect_collectives(hierarchy, rank, 2, {}, {5});
    hierarchy.free();
    EXPECT_EQ(ina_hierarchy_free(nullptr, 0), INA_OK);
  });
}

}  // namespace
}  // namespace ina
