// Reproducible all-reduces through a whole switch and the public API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <thread>

#include "ina/ina.hpp"
#include "tests/support/sanitizers.h"
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
  return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

/// The result of all ranks when rank `order[0]` comes first, then `order[1]`, then `order[2]`.
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

/// Values whose product or sum depends on the order, and some that are not finite.
template <class T>
std::vector<T> factors(int rank, size_t count) {
  std::mt19937_64 random(static_cast<uint64_t>(rank) + 1);
  std::vector<T> values(count);
  for (T& value : values)
    value = static_cast<T>(std::ldexp(1 + static_cast<double>(random() % (1u << 22)) * 0x1p-22,
                                      static_cast<int>(random() % 9) - 4));
  if (count > 10) {
    values[3] = rank == 1 ? std::numeric_limits<T>::infinity() : T{0};
    values[4] = rank == 2 ? -std::numeric_limits<T>::infinity() : T{2};
  }
  return values;
}

/// One rank after the other, in the data type itself.
template <class T>
std::vector<T> reduced_in_order(int world, size_t count, ina_op op) {
  std::vector<T> result = factors<T>(0, count);
  for (int rank = 1; rank < world; ++rank) {
    const std::vector<T> next = factors<T>(rank, count);
    for (size_t i = 0; i < count; ++i)
      result[i] = op == INA_PROD ? result[i] * next[i] : result[i] + next[i];
  }
  if (op == INA_AVG)
    for (T& value : result) value /= static_cast<T>(world);
  // There is one NaN.
  for (T& value : result)
    if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
  return result;
}

template <class T>
void expect_rank_order(Context& context, int rank, size_t count, ina_op op) {
  const int world = context.world_size();
  const std::vector<T> expected = reduced_in_order<T>(world, count, op);
  const std::vector<T> send = factors<T>(rank, count);
  std::vector<T> in_place = send, at_root(count), mine(count / static_cast<size_t>(world));
  context.allreduce<T>(in_place, op);
  EXPECT_TRUE(same_bits(in_place, expected)) << count;
  context.reduce<T>(send, at_root, world - 1, op);
  if (rank == world - 1) {
    EXPECT_TRUE(same_bits(at_root, expected)) << count;
  }
  const size_t own = mine.size();
  context.reduce_scatter<T>(std::span(send).first(own * static_cast<size_t>(world)), mine, op);
  const auto first = expected.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(rank) * own);
  EXPECT_TRUE(same_bits(mine, std::vector<T>(first, first + static_cast<ptrdiff_t>(own)))) << count;
}

#ifdef INA_SLOW_BUILD
const std::vector<int> kWorlds = {3};
const std::vector<size_t> kCounts = {1, 17, 30'011};
#else
const std::vector<int> kWorlds = {2, 3, 5};
const std::vector<size_t> kCounts = {1, 17, 30'011,
                                     150'003};  // of one fragment, and of several chunks
#endif

/// By slots and by the fallback: with eight slots most of it goes there.
TEST(ReproducibleAllReduce, ProductsAndFloat64AreReducedInTheOrderOfRanks) {
  for (const auto& home : kHomeNames) {
    if (home.value == Home::kDedicated) continue;  // the fault simulator has that one
    for (const uint32_t slots : {8u, 512u}) {
      for (const int world : kWorlds) {
        TestSwitch sw({.slots = slots,
                       .slot_bytes = 1024,
                       .lanes = slots == 8 ? 1u : 2u,
                       .conductor = [&](switchd::ConductorConfig& config) {
                         config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
                         config.rules.home = home.value;
                       }});
        on_ranks(sw, world, [&](Context& context, int rank) {
          for (const size_t count : kCounts) {
            expect_rank_order<float>(context, rank, count, INA_PROD);
            for (const ina_op op : {INA_PROD, INA_SUM, INA_AVG})
              expect_rank_order<double>(context, rank, count, op);
          }
          EXPECT_EQ(ina_overflowed(context.get(), 0), 0);
        });
      }
    }
  }
}

TEST(ReproducibleAllReduce, AllRanksHearOfProductsThatOverflow) {
  for (const size_t count : {size_t{20}, size_t{100'000}}) {
    TestSwitch sw;
    on_ranks(sw, 4, [&](Context& context, int) {
      std::vector<uint16_t> data(count, 0x7000);  // 8192 in float16
      ASSERT_EQ(
          ina_allreduce(context.get(), data.data(), data.data(), count, INA_FLOAT16, INA_PROD, 0),
          INA_OK);
      EXPECT_EQ(data[count - 1], 0x7c00);
      EXPECT_EQ(ina_overflowed(context.get(), 1), 1);
    });
  }
}

/// Several in flight, beside fixed-point and native ones, and fused ones that must not be.
TEST(ReproducibleAllReduce, ProductsInFlightBesideOthers) {
  TestSwitch sw;
  constexpr int kRanks = 3;
  on_ranks(sw, kRanks, [&](Context& context, int rank) {
    constexpr size_t kOperations = 10;
    const auto count_of = [](size_t i) { return i % 2 == 0 ? 100 * i + 7 : 9'001 * i; };
    std::vector<std::vector<double>> products, maxima;
    std::vector<std::vector<float>> sums;
    std::vector<Request> requests;
    for (size_t i = 0; i < kOperations; ++i) {
      products.push_back(factors<double>(rank, count_of(i)));
      maxima.push_back(products.back());
      sums.emplace_back(count_of(i), static_cast<float>(rank));
    }
    ina_group_start(context.get());
    for (size_t i = 0; i < kOperations; ++i) {
      requests.push_back(context.allreduce_async<double>(products[i], INA_PROD));
      requests.push_back(context.allreduce_async<float>(sums[i], INA_SUM));
      requests.push_back(context.allreduce_async<double>(maxima[i], INA_MAX));
    }
    ina_group_end(context.get());
    for (size_t i = requests.size(); i-- > 0;) requests[i].wait();
    for (size_t i = 0; i < kOperations; ++i) {
      EXPECT_TRUE(same_bits(products[i], reduced_in_order<double>(kRanks, count_of(i), INA_PROD)));
      EXPECT_EQ(sums[i].back(), 3.0f);
    }
  });
}

TEST(ReproducibleAllReduce, RanksThatDisagreeAreTold) {
  // About the data type, the operation and the count. (The mode is compared when they join.)
  struct Ask {
    ina_dtype dtype;
    ina_op op;
    size_t count;
  };
  const Ask first = {INA_BFLOAT16, INA_SUM, 1000};
  for (const Ask& other : {Ask{INA_FLOAT16, INA_SUM, 1000}, Ask{INA_BFLOAT16, INA_AVG, 1000},
                           Ask{INA_BFLOAT16, INA_PROD, 1000}, Ask{INA_BFLOAT16, INA_SUM, 999}}) {
    TestSwitch sw;
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank)
      ranks.emplace_back([&, rank] {
        const Ask& ask = rank == 0 ? first : other;
        Context context = join(sw, rank, 2, INA_NUMERIC_REPRODUCIBLE);
        std::vector<uint16_t> data(1000);
        EXPECT_EQ(
            ina_allreduce(context.get(), data.data(), data.data(), ask.count, ask.dtype, ask.op, 0),
            INA_ERR_MISMATCH)
            << ina_last_error(context.get());
      });
    for (auto& rank : ranks) rank.join();
  }
}

/// Also if the other operation would move about as many bytes.
TEST(ReproducibleAllReduce, RanksThatDisagreeAboutProductsAreTold) {
  struct Ask {
    ina_dtype dtype;
    ina_op op;
    size_t count;
  };
  const Ask first = {INA_FLOAT64, INA_PROD, 900};
  for (const size_t scale : {1, 100})
    for (const Ask& other : {Ask{INA_FLOAT64, INA_SUM, 900}, Ask{INA_FLOAT64, INA_AVG, 900},
                             Ask{INA_FLOAT32, INA_PROD, 900}, Ask{INA_FLOAT64, INA_PROD, 899},
                             Ask{INA_FLOAT64, INA_MAX, 900}}) {
      TestSwitch sw;
      std::vector<std::thread> ranks;
      for (int rank = 0; rank < 3; ++rank)
        ranks.emplace_back([&, rank] {
          const Ask& ask = rank == 1 ? other : first;
          std::vector<double> data(900 * scale);
          try {
            Context context = join(sw, rank, 3, INA_NUMERIC_REPRODUCIBLE);
            EXPECT_EQ(ina_allreduce(context.get(), data.data(), data.data(), ask.count * scale,
                                    ask.dtype, ask.op, 0),
                      INA_ERR_MISMATCH)
                << ina_last_error(context.get());
            EXPECT_THAT(ina_last_error(context.get()), HasSubstr("rank 1 started operation 0"));
          } catch (const Exception& e) {  // others may disagree before this one has come
            EXPECT_EQ(e.status(), INA_ERR_MISMATCH) << e.what();
          }
        });
      for (auto& rank : ranks) rank.join();
    }
}

}  // namespace
}  // namespace ina
