// The client library against a whole switch, over the shm port, through the public API.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <thread>

#include "common/clock.h"
#include "ina/ina.hpp"
#include "tests/support/client_ranks.h"
#include "tests/support/sanitizers.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using namespace std::chrono_literals;
using test::join;
using test::on_ranks;
using test::TestSwitch;

template <class T>
T input(int rank, size_t i) {
  return static_cast<T>(static_cast<int>((i * 7 + static_cast<size_t>(rank) * 13) % 11) - 5);
}

template <class T>
T expected_sum(int world, size_t i) {
  T sum{};
  for (int rank = 0; rank < world; ++rank) sum = static_cast<T>(sum + input<T>(rank, i));
  return sum;
}

struct Grid {
  int world;
  uint32_t lanes;
  uint32_t slot_bytes;
};

class AllReduce : public testing::TestWithParam<Grid> {};

TEST_P(AllReduce, SumsEveryElementOfEveryCount) {
  const Grid grid = GetParam();
  TestSwitch sw({.slot_bytes = grid.slot_bytes, .lanes = grid.lanes});
  on_ranks(sw, grid.world, [&](Context& context, int rank) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{255}, size_t{256},
                               size_t{257}, size_t{10'000}, size_t{100'003}}) {
      std::vector<float> send(count), recv(count, -1);
      std::vector<int64_t> in_place(count);
      for (size_t i = 0; i < count; ++i) {
        send[i] = input<float>(rank, i);
        in_place[i] = input<int64_t>(rank, i);
      }
      context.allreduce<float>(send, recv);
      context.allreduce<int64_t>(in_place);
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(recv[i], expected_sum<float>(grid.world, i)) << "count " << count << " at " << i;
        ASSERT_EQ(in_place[i], expected_sum<int64_t>(grid.world, i));
        ASSERT_EQ(send[i], input<float>(rank, i)) << "the send buffer changed";
      }
    }
    context.barrier();
  });
  const auto status = sw.status();
  EXPECT_EQ(status["aggregator"]["slots_used"], 0);
  EXPECT_EQ(status["aggregator"]["slots_reserved"], 0) << "slots of a job that ended";
  EXPECT_EQ(status["jobs"].size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Shapes, AllReduce,
                         testing::Values(Grid{1, 1, 1024}, Grid{2, 1, 256}, Grid{4, 1, 8192},
                                         Grid{3, 2, 1024}, Grid{5, 4, 512}, Grid{3, 2, 1344},
                                         Grid{2, 1, 8896}),
                         [](const auto& param_info) {
                           return "Workers" + std::to_string(param_info.param.world) + "Lanes" +
                                  std::to_string(param_info.param.lanes) + "Slot" +
                                  std::to_string(param_info.param.slot_bytes);
                         });

TEST(AllReduceAsync, ManyInFlightCompleteInAnyOrderOfWaiting) {
  TestSwitch sw;
  on_ranks(sw, 3, [&](Context& context, int rank) {
    constexpr size_t kOperations = 50;
    std::vector<std::vector<int32_t>> data(kOperations);
    std::vector<Request> requests;
    for (size_t n = 0; n < kOperations; ++n) {
      data[n].resize(n * 37);
      for (size_t i = 0; i < data[n].size(); ++i) data[n][i] = input<int32_t>(rank, i + n);
      requests.push_back(context.allreduce_async(std::span(data[n])));
    }
    for (size_t n = kOperations; n-- > 0;) requests[n].wait();
    for (size_t n = 0; n < kOperations; ++n)
      for (size_t i = 0; i < data[n].size(); ++i)
        ASSERT_EQ(data[n][i], expected_sum<int32_t>(3, i + n));
  });
}

TEST(AllReduceAsync, ProgressesWhileNobodyWaits) {
  TestSwitch sw;
  on_ranks(sw, 2, [&](Context& context, int rank) {
    std::vector<float> data(500'000, static_cast<float>(rank + 1));
    Request request = context.allreduce_async(std::span(data));
    // The background thread alone must finish it: stats only look.
    for (int i = 0; i < 20'000 && context.stats().operations == 0; ++i) ::usleep(1000);
    EXPECT_EQ(context.stats().operations, 1u);
    request.wait();
    EXPECT_EQ(data.front(), 3.0f);
    EXPECT_EQ(data.back(), 3.0f);
  });
}

TEST(AllReduceAsync, ThreadsOfOneRankShareAContext) {
  TestSwitch sw;
  // Order of operations must agree between ranks, so each thread has one operation started in
  // order by the main thread, and waits for it concurrently with the others.
  on_ranks(sw, 2, [&](Context& context, int rank) {
    constexpr int kThreads = 4;
    std::vector<std::vector<int32_t>> data(kThreads, std::vector<int32_t>(20'000, rank + 1));
    std::vector<Request> requests;
    for (auto& buffer : data) requests.push_back(context.allreduce_async(std::span(buffer)));
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back([&, t] { requests[t].wait(); });
    for (auto& thread : threads) thread.join();
    for (auto& buffer : data)
      for (const int32_t element : buffer) ASSERT_EQ(element, 3);
  });
}

TEST(AllReduce, AverageMinimumMaximum) {
  TestSwitch sw;
  on_ranks(sw, 4, [&](Context& context, int rank) {
    std::vector<double> data(1000, rank);
    context.allreduce<double>(data, INA_AVG);
    EXPECT_EQ(data[999], 1.5);
    std::fill(data.begin(), data.end(), rank);
    context.allreduce<double>(data, INA_MIN);
    EXPECT_EQ(data[0], 0);
    std::fill(data.begin(), data.end(), rank);
    context.allreduce<double>(data, INA_MAX);
    EXPECT_EQ(data[500], 3);
  });
}

/// Operations on numbers of which `mask` is left, of counts about the borders of fragments.
/// `reduce(op, a, b)` is the right result, saturated at T's largest number.
template <class T, class Reduce>
void expect_operations(Context& context, int rank, int world, ina_dtype dtype, T mask,
                       std::initializer_list<ina_op> ops, Reduce reduce) {
  for (const ina_op op : ops)
    for (const size_t count : {size_t{1}, size_t{255}, size_t{1025}, size_t{20'011}}) {
      std::vector<std::vector<T>> inputs(static_cast<size_t>(world), std::vector<T>(count));
      for (int r = 0; r < world; ++r)
        for (size_t i = 0; i < count; ++i)
          inputs[static_cast<size_t>(r)][i] =
              static_cast<T>(static_cast<T>(i * 29 + static_cast<size_t>(r) * 101) & mask);
      auto data = inputs[static_cast<size_t>(rank)];
      ASSERT_EQ(ina_allreduce(context.get(), data.data(), data.data(), count, dtype, op, 0), INA_OK)
          << ina_last_error(context.get());
      for (size_t i = 0; i < count; ++i) {
        int64_t expected = inputs[0][i];
        for (int r = 1; r < world; ++r)
          expected = reduce(op, expected, int64_t{inputs[static_cast<size_t>(r)][i]});
        ASSERT_EQ(data[i],
                  static_cast<T>(std::min<int64_t>(expected, std::numeric_limits<T>::max())))
            << "dtype " << dtype << " op " << op << " count " << count << " at " << i;
      }
    }
}

int64_t apply(ina_op op, int64_t a, int64_t b) {
  switch (op) {
    case INA_MIN:
      return std::min(a, b);
    case INA_MAX:
      return std::max(a, b);
    case INA_PROD:
      return a * b;
    case INA_BAND:
      return a & b;
    case INA_BOR:
      return a | b;
    case INA_BXOR:
      return a ^ b;
    default:
      return a + b;
  }
}

TEST(AllReduce, ProductsAndBitwiseOperationsOfBytesAndWords) {
  constexpr int kWorld = 3;
  TestSwitch sw;
  on_ranks(sw, kWorld, [&](Context& context, int rank) {
    expect_operations<uint8_t>(context, rank, kWorld, INA_UINT8, 0xff, {INA_SUM, INA_PROD}, apply);
    EXPECT_TRUE(context.overflowed(true));
    expect_operations<uint8_t>(context, rank, kWorld, INA_UINT8, 0xff,
                               {INA_MIN, INA_MAX, INA_BAND, INA_BOR, INA_BXOR}, apply);
    EXPECT_FALSE(context.overflowed());
    expect_operations<int32_t>(context, rank, kWorld, INA_INT32, -1, {INA_BAND, INA_BOR, INA_BXOR},
                               apply);
    expect_operations<int64_t>(context, rank, kWorld, INA_INT64, -1, {INA_PROD, INA_BXOR}, apply);
  });
}

TEST(AllReduce, BoolIsOrAndAnd) {
  constexpr int kWorld = 3;
  TestSwitch sw;
  on_ranks(sw, kWorld, [&](Context& context, int rank) {
    const auto logical = [](ina_op op, int64_t a, int64_t b) -> int64_t {
      const bool x = a != 0, y = b != 0;
      if (op == INA_BXOR) return x != y;
      return op == INA_SUM || op == INA_MAX || op == INA_BOR ? x || y : x && y;
    };
    // A quarter of each rank's is false; true ones are not 1.
    expect_operations<uint8_t>(context, rank, kWorld, INA_BOOL, 0x30,
                               {INA_SUM, INA_MIN, INA_MAX, INA_PROD, INA_BAND, INA_BOR, INA_BXOR},
                               logical);
    EXPECT_FALSE(context.overflowed());
    bool found = rank == 2;
    context.allreduce(std::span(&found, 1));
    EXPECT_TRUE(found);
    found = rank == 2;
    context.allreduce(std::span(&found, 1), INA_MIN);
    EXPECT_FALSE(found);
  });
}

TEST(AllReduce, ProductsOfFloats) {
  TestSwitch sw;
  on_ranks(sw, 4, [&](Context& context, int rank) {
    std::vector<float> data(3000, static_cast<float>(rank + 1));
    context.allreduce<float>(data, INA_PROD);
    EXPECT_EQ(data[2999], 24.0f);
    std::vector<uint16_t> large(300, 0x7bff);  // 65,504 as float16, 3e36 as bfloat16
    ASSERT_EQ(ina_allreduce(context.get(), large.data(), large.data(), large.size(), INA_FLOAT16,
                            INA_PROD, 0),
              INA_OK);
    EXPECT_EQ(large[299], 0x7c00);
    EXPECT_TRUE(context.overflowed(true));
  });
}

TEST(AllReduce, OverflowIsReportedAndCleared) {
  TestSwitch sw;
  on_ranks(sw, 2, [&](Context& context, int) {
    std::vector<int8_t> data(10, 100);
    EXPECT_FALSE(context.overflowed());
    context.allreduce<int8_t>(data);
    EXPECT_EQ(data[3], 127);
    EXPECT_TRUE(context.overflowed(true));
    EXPECT_FALSE(context.overflowed());
  });
}

TEST(AllReduce, OverflowOfSixteenBitFloatsIsReported) {
  struct Case {
    ina_dtype dtype;
    ina_op op;
    uint16_t each, result;
    bool overflowed;
  };
  const Case cases[] = {
      {INA_BFLOAT16, INA_SUM, 0x7f16, 0x7f80, true},  // 2e38: too large for float32, too
      {INA_BFLOAT16, INA_AVG, 0x7f16, 0x7f80, true},  // summed before it is divided
      {INA_BFLOAT16, INA_SUM, 0x7e16, 0x7e96, false},
      {INA_BFLOAT16, INA_MAX, 0x7f16, 0x7f16, false},
      {INA_FLOAT16, INA_SUM, 0x7bff, 0x7c00, true},
      {INA_FLOAT16, INA_AVG, 0x7bff, 0x7bff, false},
  };
  TestSwitch sw;
  on_ranks(sw, 2, [&](Context& context, int) {
    for (const Case& c : cases) {
      std::vector<uint16_t> data(3000, c.each);
      ASSERT_EQ(
          ina_allreduce(context.get(), data.data(), data.data(), data.size(), c.dtype, c.op, 0),
          INA_OK);
      EXPECT_EQ(data[2999], c.result) << c.dtype << " " << c.op;
      EXPECT_EQ(context.overflowed(true), c.overflowed) << c.dtype << " " << c.op;
    }
  });
}

#ifndef INA_UNDER_TSAN  // oneTBB as packaged is not built for it
TEST(AllReduce, CopiesOfLargeTensorsMayBeSharedByThreads) {
  TestSwitch sw({.slot_bytes = 8192, .slots_per_job = 256});
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      ina_config config;
      ina_config_init(&config);
      const std::string url = sw.url();
      config.url = url.c_str();
      config.rank = rank;
      config.world_size = 2;
      config.copy_threads = 3;
      Context context(config);
      std::vector<int32_t> data(2'000'003);
      for (size_t i = 0; i < data.size(); ++i) data[i] = input<int32_t>(rank, i);
      context.allreduce<int32_t>(data);
      for (size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], expected_sum<int32_t>(2, i));
      context.finalize();
    });
  for (auto& rank : ranks) rank.join();
}
#endif

TEST(AllReduce, WindowsFarLargerThanTheArray) {
  // Nearly all contributions find no slot and meet at the workers, in their rows for payloads.
#ifdef INA_SLOW_BUILD
  constexpr size_t kElements = 512 << 10;
#else
  constexpr size_t kElements = 4 << 20;
#endif
  TestSwitch sw({.slots = 64, .conductor = [](switchd::ConductorConfig& config) {
                   config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
                   config.rules.home = Home::kWorkers;
                   config.jobs.window_bytes = 16 << 20;
                   config.rules.aggregator_window = false;
                 }});
  const auto bypassed = [&] { return sw.status()["aggregator"]["bypassed"].get<uint64_t>(); };
  on_ranks(
      sw, 4,
      [&](Context& context, int rank) {
        std::vector<int32_t> data(kElements);
        for (size_t i = 0; i < data.size(); ++i) data[i] = input<int32_t>(rank, i);
        // The others send all that they may, and nothing of it can be completed.
        const Nanos deadline = now_ns() + 20'000'000'000;
        while (rank == 3 && bypassed() <= 100 && now_ns() < deadline) ::usleep(1000);
        context.allreduce<int32_t>(data);
        for (size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], expected_sum<int32_t>(4, i));
      },
      [](ina_config& config) { config.window_bytes = 16 << 20; });
  EXPECT_GT(bypassed(), 100u) << "nothing was tested";
}

/// Contributions that rank 0 sends before rank 1 sends any, in a job whose window is 4 MiB.
uint64_t sent_ahead(uint64_t window_bytes) {
  TestSwitch sw({.slots = 8192, .slot_bytes = 1024, .slots_per_job = 8192});
  std::atomic<uint64_t> sent = 0;
  on_ranks(
      sw, 2,
      [&](Context& context, int rank) {
        std::vector<int32_t> data(2 << 20);
        while (rank == 1 && sent == 0) ::usleep(1000);
        Request request = context.allreduce_async<int32_t>(data);
        for (uint64_t now = 0, before = 1; rank == 0 && now != before;) {
          before = now;
          for (int i = 0; i < 100; ++i) request.test(), ::usleep(200);
          const ina_stats stats = context.stats();
          now = stats.fragments_sent - stats.fragments_resent;
          if (now == before) sent = now;
        }
        request.wait();
      },
      [&](ina_config& config) { config.window_bytes = window_bytes; });
  return sent;
}

TEST(AllReduce, AWorkerIsNoFurtherAheadThanItsRowsUnlessItAsksTo) {
  EXPECT_EQ(sent_ahead(0), 1024);
  EXPECT_EQ(sent_ahead(4 << 20), 4096);
}

TEST(AllReduce, JobsOfTheSameSwitchDoNotMix) {
  TestSwitch sw;
  std::thread other([&] {
    on_ranks(
        sw, 2,
        [](Context& context, int) {
          for (int n = 0; n < 50; ++n) {
            std::vector<int32_t> data(5000, 1000);
            context.allreduce<int32_t>(data);
            for (const int32_t element : data) ASSERT_EQ(element, 2000);
          }
        },
        [](ina_config& config) { config.job = "other"; });
  });
  on_ranks(sw, 3, [](Context& context, int) {
    for (int n = 0; n < 50; ++n) {
      std::vector<int32_t> data(5000, 1);
      context.allreduce<int32_t>(data);
      for (const int32_t element : data) ASSERT_EQ(element, 3);
    }
  });
  other.join();
}

}  // namespace
}  // namespace ina
