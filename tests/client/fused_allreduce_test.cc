// Groups and coalescing through a whole switch and the public API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <functional>
#include <latch>
#include <random>
#include <thread>

#include "ina/ina.hpp"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using namespace std::chrono_literals;
using test::TestSwitch;
using testing::HasSubstr;

struct Settings {
  uint64_t coalesce_bytes = 0;
  ina_numeric numeric = INA_NUMERIC_NATIVE;
  std::chrono::microseconds timeout = 20s;
};

Context join(const TestSwitch& sw, int rank, int world, const Settings& settings) {
  ina_config config;
  ina_config_init(&config);
  const std::string url = sw.url();
  config.url = url.c_str();
  config.rank = rank;
  config.world_size = world;
  config.timeout_us = settings.timeout.count();
  config.coalesce_bytes = settings.coalesce_bytes;
  config.numeric = settings.numeric;
  return Context(config);
}

/// Runs `body(context, rank)` for each rank in a thread of its own.
template <class F>
void on_ranks(const TestSwitch& sw, int world, const Settings& settings, F&& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      try {
        Context context = join(sw, rank, world, settings);
        body(context, rank);
        context.finalize();
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << rank << ": " << e.what();
      }
    });
  for (auto& thread : threads) thread.join();
}

/// The error that `body` ends with on each rank. Contexts are left without a goodbye.
std::vector<std::string> errors_of(const TestSwitch& sw, int world, const Settings& settings,
                                   const std::function<void(Context&, int)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      try {
        Context context = join(sw, rank, world, settings);
        body(context, rank);
      } catch (const Exception& e) {
        errors[static_cast<size_t>(rank)] = e.what();
      }
    });
  for (auto& thread : threads) thread.join();
  return errors;
}

int status_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Exception& e) {
    return e.status();
  }
  return INA_OK;
}

/// Tensors of one type, in place or not, with their right results.
template <class T>
struct Tensors {
  Tensors(int rank, int world, size_t seed) : sends(kSizes.size()), recvs(kSizes.size()) {
    for (size_t n = 0; n < kSizes.size(); ++n) {
      sends[n].resize(kSizes[n]);
      recvs[n].resize(kSizes[n]);
      for (size_t i = 0; i < kSizes[n]; ++i) sends[n][i] = value(rank, n, i + seed);
    }
    ranks = world;
    offset = seed;
  }
  static T value(int rank, size_t n, size_t i) {
    return static_cast<T>(static_cast<int>((i * 7 + n * 3 + static_cast<size_t>(rank) * 13) % 11) -
                          5);
  }
  void start(Context& context, size_t n, std::vector<Request>& requests) {
    if (n % 2 == 0)
      requests.push_back(context.allreduce_async(std::span(sends[n])));
    else
      requests.push_back(context.allreduce_async<T>(sends[n], recvs[n]));
  }
  void check() const {
    for (size_t n = 0; n < kSizes.size(); ++n)
      for (size_t i = 0; i < kSizes[n]; ++i) {
        T sum{};
        for (int rank = 0; rank < ranks; ++rank)
          sum = static_cast<T>(sum + value(rank, n, i + offset));
        ASSERT_EQ((n % 2 == 0 ? sends : recvs)[n][i], sum) << "tensor " << n << " at " << i;
      }
  }
  // The last but one is too large to be fused.
  static inline const std::vector<size_t> kSizes{1, 0, 3, 257, 64, 1000, 1023, 5, 100'003, 17};
  std::vector<std::vector<T>> sends, recvs;
  int ranks = 0;
  size_t offset = 0;
};

class Fusing : public testing::TestWithParam<uint64_t> {};

TEST_P(Fusing, SumsEveryElementOfSeveralTypes) {
  TestSwitch sw;
  on_ranks(sw, 3, {.coalesce_bytes = GetParam()}, [&](Context& context, int rank) {
    for (size_t round = 0; round < 10; ++round) {
      Tensors<float> floats(rank, 3, round);
      Tensors<int64_t> integers(rank, 3, round);
      Tensors<int8_t> bytes(rank, 3, round);
      std::vector<Request> requests;
      std::optional<Group> group;
      if (GetParam() == 0) group.emplace(context);
      for (size_t n = 0; n < floats.kSizes.size(); ++n) {
        floats.start(context, n, requests);
        if (n % 3 == 0) integers.start(context, n, requests);
      }
      for (size_t n = 0; n < floats.kSizes.size(); ++n) {
        if (n % 3 != 0) integers.start(context, n, requests);
        bytes.start(context, n, requests);
      }
      if (group) group->end();
      if (round % 2 == 0)
        while (!requests.empty()) {
          requests.back().wait();
          requests.pop_back();
        }
      for (Request& request : requests)
        while (!request.test()) std::this_thread::yield();
      floats.check();
      integers.check();
      bytes.check();
    }
    EXPECT_EQ(context.stats().operations, 10u * 3 * Tensors<float>::kSizes.size());
  });
}

INSTANTIATE_TEST_SUITE_P(GroupsAndCoalescing, Fusing, testing::Values(0, 64, 1500, 65'536),
                         [](const auto& param) {
                           return param.param == 0 ? std::string("Group")
                                                   : "Coalesce" + std::to_string(param.param);
                         });

/// Fragments that rank 0 sends for 100 tensors of 10 floats.
uint64_t fragments_of_100(const Settings& settings, bool grouped) {
  TestSwitch sw;
  uint64_t fragments = 0;
  on_ranks(sw, 2, settings, [&](Context& context, int rank) {
    std::vector<std::vector<float>> data(100, std::vector<float>(10, 1));
    std::vector<Request> requests;
    {
      std::optional<Group> group;
      if (grouped) group.emplace(context);
      for (auto& tensor : data) requests.push_back(context.allreduce_async(std::span(tensor)));
    }
    for (Request& request : requests) request.wait();
    for (const auto& tensor : data) ASSERT_EQ(tensor, std::vector<float>(10, 2));
    const ina_stats stats = context.stats();
    if (rank == 0) fragments = stats.fragments_sent - stats.fragments_resent;
  });
  return fragments;
}

TEST(Fused, SendsFewerFragments) {
  EXPECT_EQ(fragments_of_100({}, false), 100u) << "coalescing is off by default";
  EXPECT_EQ(fragments_of_100({}, true), 4u);
  EXPECT_EQ(fragments_of_100({.coalesce_bytes = 65'536}, false), 4u);
}

TEST(Fused, HaveTheirOwnOperations) {
  TestSwitch sw;
  on_ranks(sw, 2, {}, [](Context& context, int rank) {
    std::vector<float> sum(3, static_cast<float>(rank)), max(sum), average(sum);
    Group group(context);
    Request requests[] = {context.allreduce_async(std::span(sum)),
                          context.allreduce_async(std::span(max), INA_MAX),
                          context.allreduce_async(std::span(average), INA_AVG)};
    group.end();
    for (Request& request : requests) request.wait();
    EXPECT_EQ(sum, std::vector<float>(3, 1));
    EXPECT_EQ(max, std::vector<float>(3, 1));
    EXPECT_EQ(average, std::vector<float>(3, 0.5));
  });
}

TEST(Fused, ProgressWhileNobodyWaits) {
  TestSwitch sw;
  on_ranks(sw, 2, {}, [](Context& context, int) {
    std::vector<float> data[2] = {std::vector<float>(10, 1), std::vector<float>(10, 2)};
    Group group(context);
    Request first = context.allreduce_async(std::span(data[0]));
    Request second = context.allreduce_async(std::span(data[1]));
    group.end();
    // The background thread alone must finish it: stats only look.
    for (int i = 0; i < 20'000 && context.stats().operations == 0; ++i) ::usleep(1000);
    EXPECT_EQ(context.stats().operations, 2u);
    first.wait();
    second.wait();
    EXPECT_EQ(data[1], std::vector<float>(10, 4));
  });
}

TEST(Fused, RequestsOfOneBucketMayBeWaitedForByManyThreads) {
  TestSwitch sw;
  on_ranks(sw, 2, {.coalesce_bytes = 65'536}, [](Context& context, int) {
    for (int round = 0; round < 20; ++round) {
      constexpr size_t kThreads = 4;
      std::vector<std::vector<int32_t>> data(kThreads, std::vector<int32_t>(500, 1));
      std::vector<Request> requests;
      for (auto& tensor : data) requests.push_back(context.allreduce_async(std::span(tensor)));
      std::vector<std::thread> threads;
      for (size_t t = 0; t < kThreads; ++t) threads.emplace_back([&, t] { requests[t].wait(); });
      for (auto& thread : threads) thread.join();
      for (const auto& tensor : data) ASSERT_EQ(tensor, std::vector<int32_t>(500, 2));
    }
  });
}

TEST(Fused, BlockingCallsAndBarriersStartWhatIsCollected) {
  TestSwitch sw;
  on_ranks(sw, 2, {.coalesce_bytes = 65'536}, [](Context& context, int) {
    std::vector<float> a(10, 1), b(10, 1), c(10, 1);
    Request first = context.allreduce_async(std::span(a));
    context.allreduce<float>(b);
    EXPECT_EQ(context.stats().operations, 2u) << "completed in order, so a is there too";
    Request second = context.allreduce_async(std::span(c));
    context.barrier();
    EXPECT_EQ(context.stats().operations, 4u);
    first.wait();
    second.wait();
    EXPECT_EQ(a, std::vector<float>(10, 2));
    EXPECT_EQ(c, std::vector<float>(10, 2));
  });
}

TEST(Fused, CoalescingTellsWhoMadeOtherCalls) {
  TestSwitch sw;
  const auto errors = errors_of(sw, 2, {.coalesce_bytes = 65'536}, [](Context& context, int rank) {
    std::vector<float> a(10), b(20);
    Request first = context.allreduce_async(std::span(a));
    if (rank == 1) first.wait();
    Request second = context.allreduce_async(std::span(b));
    first.wait();
    second.wait();
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("INA_ERR_MISMATCH"));
    EXPECT_THAT(error, HasSubstr("rank 0 started operation 0: allreduce of 30 float32 sum, "
                                 "fused from 2 tensors"));
    EXPECT_THAT(error, HasSubstr("rank 1 started operation 0: allreduce of 10 float32 sum"));
  }
}

TEST(Fused, TensorsOfOtherSizesAreAMismatchEvenIfTheirSumAgrees) {
  TestSwitch sw;
  const auto errors = errors_of(sw, 2, {}, [](Context& context, int rank) {
    std::vector<float> a(rank == 0 ? 10 : 20), b(30 - a.size());
    Group group(context);
    Request first = context.allreduce_async(std::span(a));
    Request second = context.allreduce_async(std::span(b));
    group.end();
    first.wait();
    second.wait();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("INA_ERR_MISMATCH"));
}

// ---- reproducible numerics

std::vector<float> any_floats(int rank, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(rank));
  std::vector<float> values(count);
  for (float& value : values)
    value = std::bit_cast<float>(
        static_cast<uint32_t>((random() & 0x807FFFFF) | (110 + random() % 30) << 23));
  return values;
}

TEST(Fused, ReproducibleSumsAreThoseOfUnfusedOnes) {
  TestSwitch sw;
  const Settings settings{.coalesce_bytes = 65'536, .numeric = INA_NUMERIC_REPRODUCIBLE};
  on_ranks(sw, 3, settings, [](Context& context, int rank) {
    // Neighbours of very different size would share an exponent.
    const std::vector<float> large = any_floats(rank, 100);
    std::vector<float> small = any_floats(rank + 10, 100);
    for (float& value : small) value *= 1e-12f;
    std::vector<float> alone = small;
    context.allreduce<float>(alone);

    for (const bool grouped : {true, false}) {
      std::vector<float> a = large, b = small;
      std::vector<int32_t> integers[2] = {std::vector<int32_t>(9, rank),
                                          std::vector<int32_t>(7, 1)};
      std::vector<Request> requests;
      {
        std::optional<Group> group;
        if (grouped) group.emplace(context);
        requests.push_back(context.allreduce_async(std::span(a)));
        requests.push_back(context.allreduce_async(std::span(b)));
        for (auto& tensor : integers)
          requests.push_back(context.allreduce_async(std::span(tensor)));
      }
      for (Request& request : requests) request.wait();
      EXPECT_EQ(std::memcmp(b.data(), alone.data(), b.size() * sizeof(float)), 0);
      EXPECT_EQ(integers[0], std::vector<int32_t>(9, 3));
      EXPECT_EQ(integers[1], std::vector<int32_t>(7, 3));
    }
  });
}

// ---- what is refused, and the end

TEST(Group, RefusesWhatWouldWait) {
  TestSwitch sw;
  on_ranks(sw, 2, {}, [](Context& context, int) {
    std::vector<float> before(3, 1), data(3, 1), large(100'000, 1);
    Request older = context.allreduce_async(std::span(before));
    ina_context* raw = context.get();
    EXPECT_EQ(ina_group_end(raw), INA_ERR_INVALID);
    EXPECT_THAT(ina_last_error(raw), HasSubstr("no group is open"));

    Group group(context);
    EXPECT_EQ(ina_group_start(raw), INA_ERR_INVALID);
    EXPECT_THAT(ina_last_error(raw), HasSubstr("do not nest"));
    Request request = context.allreduce_async(std::span(data));
    Request alone = context.allreduce_async(std::span(large));
    EXPECT_EQ(status_of([&] { context.allreduce<float>(data); }), INA_ERR_INVALID);
    EXPECT_THAT(ina_last_error(raw), HasSubstr("ina_allreduce: a group is open"));
    EXPECT_EQ(status_of([&] { context.barrier(); }), INA_ERR_INVALID);
    EXPECT_THAT(ina_last_error(raw), HasSubstr("ina_barrier: a group is open"));
    older.wait();  // no business of the group

    ina_request* in_group = nullptr;
    EXPECT_EQ(
        ina_allreduce_async(raw, data.data(), data.data(), 0, INA_FLOAT32, INA_SUM, &in_group),
        INA_OK);
    EXPECT_EQ(ina_wait(in_group, 0), INA_ERR_INVALID);
    EXPECT_THAT(ina_last_error(raw), HasSubstr("call ina_group_end first"));
    EXPECT_EQ(ina_test(in_group), INA_ERR_INVALID);
    group.end();
    EXPECT_EQ(ina_wait(in_group, 0), INA_OK) << "what was refused has left the request valid";
    request.wait();
    alone.wait();
    EXPECT_EQ(data, std::vector<float>(3, 2));
    EXPECT_EQ(large, std::vector<float>(100'000, 2));
  });
}

TEST(Group, FreeingARequestEarlyGivesTheBuffersBack) {
  TestSwitch sw;
  on_ranks(sw, 2, {}, [](Context& context, int) {
    std::vector<float> first(3, 1), second(3, 1), third(3, 1);
    Group group(context);
    Request kept = context.allreduce_async(std::span(first));
    { Request freed = context.allreduce_async(std::span(second)); }
    EXPECT_EQ(second, std::vector<float>(3, 2)) << "complete, or it would be written to later";
    Request last = context.allreduce_async(std::span(third));
    group.end();
    kept.wait();
    last.wait();
    EXPECT_EQ(first, std::vector<float>(3, 2));
    EXPECT_EQ(third, std::vector<float>(3, 2));
  });
}

TEST(Group, MayBeEmpty) {
  TestSwitch sw;
  on_ranks(sw, 2, {}, [](Context& context, int) {
    Group(context).end();
    EXPECT_EQ(context.stats().operations, 0u) << "nothing is sent for nothing";
    // The group is closed: calls that an open group refuses go through.
    context.barrier();
    EXPECT_EQ(context.stats().operations, 1u);
    std::vector<int32_t> data(10, 1);
    context.allreduce<int32_t>(data);
    EXPECT_EQ(data, std::vector<int32_t>(10, 2));
  });
}

TEST(Fused, LeavingWaitsForOpenRequests) {
  for (const bool grouped : {true, false}) {
    TestSwitch sw;
    const auto errors =
        errors_of(sw, 2, {.coalesce_bytes = 65'536}, [&](Context& context, int rank) {
          std::vector<float> data(10, 1), more(10, 2);
          ina_request* request = nullptr;
          if (grouped) ina_group_start(context.get());
          for (std::vector<float>* tensor : {&data, &more})
            ina_allreduce_async(context.get(), tensor->data(), tensor->data(), 10, INA_FLOAT32,
                                INA_SUM, &request);
          if (rank == 1) ::usleep(200'000);
          context.finalize();
          EXPECT_EQ(data, std::vector<float>(10, 2));
          EXPECT_EQ(more, std::vector<float>(10, 4));
        });
    EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
  }
}

TEST(Fused, EveryRequestOfABucketHearsOfALostPeer) {
  TestSwitch sw;
  std::atomic<bool> started = false;  // afterwards nothing can be, once the other has left
  errors_of(sw, 2, {.coalesce_bytes = 65'536}, [&](Context& context, int rank) {
    context.barrier();
    std::vector<float> data[3] = {std::vector<float>(10), std::vector<float>(10),
                                  std::vector<float>(10)};
    ina_request* requests[3] = {};
    if (rank == 1) {
      while (!started) ::usleep(100);
      context.finalize();  // without the operations that the other side waits for
      return;
    }
    for (int i = 0; i < 3; ++i)
      ina_allreduce_async(context.get(), data[i].data(), data[i].data(), 10, INA_FLOAT32, INA_SUM,
                          &requests[i]);
    started = true;
    for (ina_request* request : requests) {
      EXPECT_EQ(ina_wait(request, 0), INA_ERR_PEER_LOST);
      EXPECT_THAT(ina_last_error(context.get()), HasSubstr("rank 1"));
    }
    EXPECT_EQ(status_of([&] { Group group(context); }), INA_ERR_PEER_LOST);
  });
}

TEST(Fused, AnOpenBucketEndsWithItsJob) {
  TestSwitch sw;
  errors_of(sw, 2, {}, [](Context& context, int rank) {
    context.barrier();
    if (rank == 1) {
      std::vector<float> data(10);
      ina_request* running = nullptr;
      ina_allreduce_async(context.get(), data.data(), data.data(), 10, INA_FLOAT32, INA_SUM,
                          &running);
      context.finalize(std::chrono::microseconds(1));  // throws: with an operation running
    }
    std::vector<float> data(10, 5);
    ina_group_start(context.get());
    ina_request* request = nullptr;
    // The end may be heard of at any of these calls.
    const int started = ina_allreduce_async(context.get(), data.data(), data.data(), 10,
                                            INA_FLOAT32, INA_SUM, &request);
    for (int i = 0; i < 5000; ++i) {
      ina_request* more = nullptr;
      if (ina_allreduce_async(context.get(), nullptr, nullptr, 0, INA_FLOAT32, INA_SUM, &more) !=
          INA_OK)
        break;
      ::usleep(1000);
    }
    EXPECT_EQ(ina_group_end(context.get()), INA_ERR_PEER_LOST);
    if (started == INA_OK) {
      EXPECT_EQ(ina_wait(request, 0), INA_ERR_PEER_LOST);
    }
    EXPECT_EQ(data, std::vector<float>(10, 5));
  });
}

TEST(Fused, TimeOutOfAWaitLeavesTheRequestAndOfAFreeEndsTheJob) {
  TestSwitch sw;
  const Settings settings{.coalesce_bytes = 65'536, .timeout = 2s};
  std::latch told(1);
  errors_of(sw, 2, settings, [&](Context& context, int rank) {
    std::vector<float> a(10), b(10);
    if (rank == 1) return told.wait();
    ina_request* requests[2] = {};
    ina_allreduce_async(context.get(), a.data(), a.data(), 10, INA_FLOAT32, INA_SUM, &requests[0]);
    ina_allreduce_async(context.get(), b.data(), b.data(), 10, INA_FLOAT32, INA_SUM, &requests[1]);
    EXPECT_EQ(ina_wait(requests[0], 50'000), INA_ERR_TIMEOUT);
    EXPECT_THAT(ina_last_error(context.get()), HasSubstr("rank 1"));
    EXPECT_EQ(ina_request_free(requests[0]), INA_ERR_TIMEOUT);
    EXPECT_EQ(ina_wait(requests[1], 0), INA_ERR_ABORTED) << "the job has ended";
    told.count_down();
  });
}

}  // namespace
}  // namespace ina
