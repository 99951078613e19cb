// Reproducible all-reduces through a whole switch and the public API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "ina/ina.hpp"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using namespace std::chrono_literals;
using test::TestSwitch;
using testing::HasSubstr;

constexpr int kWorld = 3;

Context join(const TestSwitch& sw, int rank, int world, ina_numeric numeric) {
  ina_config config;
  ina_config_init(&config);
  const std::string url = sw.url();
  config.url = url.c_str();
  config.rank = rank;
  config.world_size = world;
  config.timeout_us = 20'000'000;
  config.numeric = numeric;
  return Context(config);
}

/// Runs `body(context, rank)` for each rank in a thread of its own.
template <class F>
void on_ranks(const TestSwitch& sw, int world, F&& body,
              ina_numeric numeric = INA_NUMERIC_REPRODUCIBLE) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      try {
        Context context = join(sw, rank, world, numeric);
        body(context, rank);
        context.finalize();
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << rank << ": " << e.what();
      }
    });
  for (auto& thread : threads) thread.join();
}

/// Values of all sizes, whose sum in float depends on the order.
std::vector<float> input(int rank, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(rank));
  std::vector<float> values(count);
  for (float& value : values)
    value = std::bit_cast<float>(
        static_cast<uint32_t>((random() & 0x807FFFFF) | (110 + random() % 30) << 23));
  return values;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// What all ranks get when rank `order[0]` comes first, then `order[1]`, then `order[2]`.
std::vector<float> sum_in_order(const std::array<int, kWorld>& order, size_t count, ina_op op) {
  TestSwitch sw;
  std::vector<std::vector<float>> results(kWorld);
  on_ranks(sw, kWorld, [&](Context& context, int rank) {
    std::vector<float>& data = results[rank];
    data = input(rank, count);
    context.barrier();
    std::this_thread::sleep_for((std::find(order.begin(), order.end(), rank) - order.begin()) *
                                5ms);
    context.allreduce<float>(data, op);
  });
  EXPECT_TRUE(same_bits(results[0], results[1]) && same_bits(results[0], results[2]));
  return results[0];
}

TEST(ReproducibleAllReduce, SameBitsInAnyOrderOfArrival) {
  const std::vector<float> a = input(0, 1), b = input(1, 1), c = input(2, 1);
  for (const size_t count : {size_t{1}, size_t{100'003}})
    for (const ina_op op : {INA_SUM, INA_AVG}) {
      const std::vector<float> first = sum_in_order({0, 1, 2}, count, op);
      EXPECT_TRUE(same_bits(first, sum_in_order({2, 0, 1}, count, op)));
      EXPECT_TRUE(same_bits(first, sum_in_order({1, 2, 0}, count, op)));
      for (size_t i = 0; i < count; i += 997) {
        double sum = 0, largest = 0;
        for (int rank = 0; rank < kWorld; ++rank) {
          const std::vector<float> values = input(rank, count);
          sum += values[i];
          const size_t end = std::min(count, i / 256 * 256 + 256);
          for (size_t j = i / 256 * 256; j < end; ++j)
            largest = std::max(largest, std::fabs(static_cast<double>(values[j])));
        }
        const double bound = kWorld * kWorld * 0x1p-30 * largest + std::fabs(sum) * 0x1p-24;
        EXPECT_NEAR(first[i], op == INA_AVG ? sum / kWorld : sum, bound) << i;
      }
    }
}

TEST(ReproducibleAllReduce, ManyInFlightBesideNativeOnes) {
  TestSwitch sw;
  on_ranks(sw, 2, [&](Context& context, int rank) {
    constexpr size_t kOperations = 12;
    std::vector<std::vector<float>> floats(kOperations);
    std::vector<std::vector<int32_t>> integers(kOperations);
    std::vector<Request> requests;
    for (size_t i = 0; i < kOperations; ++i) {
      floats[i].assign(i * i * 1000, static_cast<float>(rank + 1));
      integers[i].assign(1000, rank + 1);
      requests.push_back(context.allreduce_async(std::span(floats[i])));
      requests.push_back(context.allreduce_async(std::span(integers[i]), INA_MAX));
    }
    while (!requests.empty()) {
      requests.back().wait();
      requests.pop_back();
    }
    for (size_t i = 0; i < kOperations; ++i) {
      for (const float value : floats[i]) ASSERT_EQ(value, 3.0f);
      for (const int32_t value : integers[i]) ASSERT_EQ(value, 2);
    }
    EXPECT_EQ(context.stats().operations, 2 * kOperations);
    EXPECT_FALSE(context.overflowed());
  });
}

TEST(ReproducibleAllReduce, ProgressesWhileNobodyWaits) {
  TestSwitch sw;
  on_ranks(sw, 2, [&](Context& context, int) {
    std::vector<float> data(500'000, 1.5f);
    Request request = context.allreduce_async(std::span(data));
    for (int i = 0; i < 20'000 && context.stats().operations == 0; ++i) ::usleep(1000);
    EXPECT_EQ(context.stats().operations, 1u);
    request.wait();
    EXPECT_EQ(data.front(), 3.0f);
    EXPECT_EQ(data.back(), 3.0f);
  });
}

TEST(ReproducibleAllReduce, SpecialValuesPropagate) {
  TestSwitch sw;
  on_ranks(sw, 2, [&](Context& context, int rank) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    std::vector<float> data(40'000, 1.0f);
    if (rank == 0) data[7] = std::numeric_limits<float>::quiet_NaN();
    if (rank == 1) data[8] = kInf;
    data[39'999] = rank == 0 ? kInf : -kInf;
    data[20'000] = -kInf;
    context.allreduce<float>(data);
    EXPECT_TRUE(std::isnan(data[7]));
    EXPECT_EQ(data[8], kInf);
    EXPECT_TRUE(std::isnan(data[39'999]));
    EXPECT_EQ(data[20'000], -kInf);
    EXPECT_EQ(data[9], 2.0f);
    EXPECT_EQ(data[39'998], 2.0f);
    EXPECT_FALSE(context.overflowed());
  });
}

TEST(ReproducibleAllReduce, OverflowIsReportedAndCleared) {
  TestSwitch sw;
  on_ranks(sw, 2, [&](Context& context, int) {
    std::vector<float> data(10, std::numeric_limits<float>::max());
    context.allreduce<float>(data, INA_AVG);
    EXPECT_EQ(data[3], std::numeric_limits<float>::max());
    EXPECT_FALSE(context.overflowed());
    context.allreduce<float>(data);
    EXPECT_EQ(data[3], std::numeric_limits<float>::infinity());
    EXPECT_TRUE(context.overflowed(true));
    EXPECT_FALSE(context.overflowed());
    std::vector<float16> half(10, float16{0x7BFF});  // 65504, the largest
    context.allreduce<float16>(half);
    EXPECT_EQ(half[9], float16{0x7C00});
    EXPECT_TRUE(context.overflowed());
    EXPECT_EQ(context.stats().overflows, 2u);
  });
}

TEST(ReproducibleAllReduce, EmptyTensorsSynchronise) {
  TestSwitch sw;
  on_ranks(sw, 2, [&](Context& context, int) {
    std::vector<float> nothing;
    context.allreduce<float>(nothing);
    EXPECT_EQ(context.stats().operations, 1u);
  });
}

TEST(ReproducibleAllReduce, Float64IsRefusedForSumsOnly) {
  TestSwitch sw;
  on_ranks(sw, 2, [&](Context& context, int rank) {
    std::vector<double> data(10, rank);
    for (const ina_op op : {INA_SUM, INA_AVG}) {
      EXPECT_EQ(ina_allreduce(context.get(), data.data(), data.data(), 10, INA_FLOAT64, op, 0),
                INA_ERR_UNSUPPORTED);
      EXPECT_THAT(ina_last_error(context.get()), HasSubstr("53-bit mantissas"));
    }
    context.allreduce<double>(data, INA_MAX);
    EXPECT_EQ(data[0], 1.0);
  });
}

TEST(ReproducibleAllReduce, ProductsOfFloatsAreRefused) {
  TestSwitch sw;
  on_ranks(sw, 2, [&](Context& context, int) {
    double data[10] = {};
    for (const ina_dtype dtype : {INA_FLOAT32, INA_FLOAT64, INA_BFLOAT16, INA_FLOAT16}) {
      EXPECT_EQ(ina_allreduce(context.get(), data, data, 10, dtype, INA_PROD, 0),
                INA_ERR_UNSUPPORTED);
      EXPECT_THAT(ina_last_error(context.get()), HasSubstr("order of arrival"));
    }
    std::vector<int32_t> integers(10, 3);
    context.allreduce<int32_t>(integers, INA_PROD);
    EXPECT_EQ(integers[9], 9);
  });
}

TEST(ReproducibleAllReduce, RanksThatDisagreeAreTold) {
  // About the mode, the data type, the operation and the count.
  struct Ask {
    ina_numeric numeric;
    ina_dtype dtype;
    ina_op op;
    size_t count;
  };
  const Ask first = {INA_NUMERIC_REPRODUCIBLE, INA_BFLOAT16, INA_SUM, 1000};
  for (const Ask& other : {Ask{INA_NUMERIC_NATIVE, INA_BFLOAT16, INA_SUM, 1000},
                           Ask{INA_NUMERIC_REPRODUCIBLE, INA_FLOAT16, INA_SUM, 1000},
                           Ask{INA_NUMERIC_REPRODUCIBLE, INA_BFLOAT16, INA_AVG, 1000},
                           Ask{INA_NUMERIC_REPRODUCIBLE, INA_BFLOAT16, INA_SUM, 999}}) {
    TestSwitch sw;
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank)
      ranks.emplace_back([&, rank] {
        const Ask& ask = rank == 0 ? first : other;
        Context context = join(sw, rank, 2, ask.numeric);
        std::vector<uint16_t> data(1000);
        EXPECT_EQ(
            ina_allreduce(context.get(), data.data(), data.data(), ask.count, ask.dtype, ask.op, 0),
            INA_ERR_MISMATCH)
            << ina_last_error(context.get());
      });
    for (auto& rank : ranks) rank.join();
  }
}

}  // namespace
}  // namespace ina
