// Registered memory and result buffers: gradients and results that nobody copies.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <barrier>
#include <cstdio>
#include <fstream>
#include <latch>
#include <string>
#include <thread>

#include "bench/perf/collective.h"
#include "ina/ina.hpp"
#include "tests/support/attendance.h"
#include "tests/support/switch_fixture.h"
#include "tests/support/temp_dir.h"

namespace ina {
namespace {

using namespace std::chrono_literals;
using test::Attendance;
using test::TestSwitch;

constexpr int kWorld = 3;

ina_context* join(const TestSwitch& sw, int rank, ina_numeric numeric = INA_NUMERIC_NATIVE,
                  int64_t timeout_us = 20'000'000) {
  ina_config config;
  ina_config_init(&config);
  const std::string url = sw.url();
  config.url = url.c_str();
  config.job = "memory";
  config.rank = rank;
  config.world_size = kWorld;
  config.timeout_us = timeout_us;
  config.numeric = numeric;
  ina_context* context = nullptr;
  EXPECT_EQ(ina_init(&config, &context), INA_OK) << ina_last_error(nullptr);
  return context;
}

/// Runs `body(context, rank)` for each rank in a thread of its own.
template <class F>
void on_ranks(const TestSwitch& sw, F&& body, ina_numeric numeric = INA_NUMERIC_NATIVE,
              int64_t timeout_us = 20'000'000) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorld; ++rank)
    threads.emplace_back([&, rank] {
      ina_context* context = join(sw, rank, numeric, timeout_us);
      ASSERT_NE(context, nullptr);
      body(context, rank);
      ina_finalize(context, 0);
    });
  for (auto& thread : threads) thread.join();
}

void fill(float* values, size_t count, int rank, int round = 0) {
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(
        (i * 3 + static_cast<size_t>(rank) * 5 + static_cast<size_t>(round)) % 17);
}

void expect_sum(const float* values, size_t count, int round = 0) {
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (size_t rank = 0; rank < kWorld; ++rank)
      sum += static_cast<float>((i * 3 + rank * 5 + static_cast<size_t>(round)) % 17);
    ASSERT_EQ(values[i], sum) << "element " << i << " of " << count;
  }
}

int allreduce(ina_context* context, const void* send, void* recv, size_t count) {
  return ina_allreduce(context, send, recv, count, INA_FLOAT32, INA_SUM, 0);
}

struct Setting {
  const char* policy;
  uint32_t lanes;
  uint32_t slots;
};

class Memory : public testing::TestWithParam<Setting> {
 protected:
  static test::SwitchOptions options() {
    const Setting setting = GetParam();
    return {.slots = setting.slots,
            .lanes = setting.lanes,
            .conductor = [policy = setting.policy](switchd::ConductorConfig& config) {
              config.aggregator.policy.kind = value_in(scheduler::kPolicyNames, policy).value();
            }};
  }
};

TEST_P(Memory, SumsFromRegisteredMemoryIntoResultBuffers) {
  const TestSwitch sw(options());
  constexpr size_t kMost = 50'000;
  on_ranks(sw, [&](ina_context* context, int rank) {
    void* send_memory = nullptr;
    void* recv_memory = nullptr;
    ASSERT_EQ(ina_alloc(context, kMost * 4, &send_memory), INA_OK) << ina_last_error(context);
    ASSERT_EQ(ina_alloc_result(context, kMost * 4, &recv_memory), INA_OK)
        << ina_last_error(context);
    auto* send = static_cast<float*>(send_memory);
    auto* recv = static_cast<float*>(recv_memory);
    int round = 0;
    for (const size_t count : {size_t{1}, size_t{64}, size_t{255}, size_t{1'000}, kMost}) {
      fill(send, count, rank, ++round);
      ASSERT_EQ(allreduce(context, send, recv, count), INA_OK) << ina_last_error(context);
      expect_sum(recv, count, round);
    }
    // At another place of both, and mixed with plain memory.
    fill(send + 4'096, 3'000, rank, 7);
    ASSERT_EQ(allreduce(context, send + 4'096, recv + 128, 3'000), INA_OK);
    expect_sum(recv + 128, 3'000, 7);
    std::vector<float> plain(3'000);
    ASSERT_EQ(allreduce(context, send + 4'096, plain.data(), plain.size()), INA_OK);
    expect_sum(plain.data(), plain.size(), 7);
    fill(plain.data(), plain.size(), rank, 8);
    ASSERT_EQ(allreduce(context, plain.data(), recv, plain.size()), INA_OK);
    expect_sum(recv, plain.size(), 8);
    // In place over registered memory.
    fill(send, 5'000, rank, 9);
    ASSERT_EQ(allreduce(context, send, send, 5'000), INA_OK);
    expect_sum(send, 5'000, 9);
    EXPECT_EQ(ina_free(context, send_memory), INA_OK) << ina_last_error(context);
    EXPECT_EQ(ina_free(context, recv_memory), INA_OK) << ina_last_error(context);
  });
  EXPECT_EQ(sw.status()["aggregator"]["slots_used"], 0);
}

TEST_P(Memory, ManyOperationsAtOnceKeepTheirPlaces) {
  const TestSwitch sw(options());
  constexpr size_t kOperations = 24;
  constexpr size_t kCount = 4'032;  // not whole fragments, but whole units
  on_ranks(sw, [&](ina_context* context, int rank) {
    void* send_memory = nullptr;
    void* recv_memory = nullptr;
    ASSERT_EQ(ina_alloc(context, kOperations * kCount * 4, &send_memory), INA_OK);
    ASSERT_EQ(ina_alloc_result(context, kOperations * kCount * 4, &recv_memory), INA_OK);
    auto* send = static_cast<float*>(send_memory);
    auto* recv = static_cast<float*>(recv_memory);
    for (int turn = 0; turn < 4; ++turn) {
      ina_request* requests[kOperations];
      for (size_t i = 0; i < kOperations; ++i) {
        fill(send + i * kCount, kCount, rank, static_cast<int>(i) + turn);
        ASSERT_EQ(ina_allreduce_async(context, send + i * kCount, recv + i * kCount, kCount,
                                      INA_FLOAT32, INA_SUM, &requests[i]),
                  INA_OK);
      }
      EXPECT_EQ(ina_free(context, recv_memory), INA_ERR_INVALID);
      for (ina_request* request : requests) ASSERT_EQ(ina_wait(request, 0), INA_OK);
      for (size_t i = 0; i < kOperations; ++i)
        expect_sum(recv + i * kCount, kCount, static_cast<int>(i) + turn);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Policies, Memory,
                         testing::Values(Setting{"static", 1, 512}, Setting{"static", 3, 510},
                                         Setting{"esa", 1, 512}, Setting{"esa", 2, 4},
                                         Setting{"fcfs", 1, 512}, Setting{"fcfs", 1, 3}),
                         [](const auto& setting) {
                           return std::string(setting.param.policy) + "_lanes_" +
                                  std::to_string(setting.param.lanes) + "_slots_" +
                                  std::to_string(setting.param.slots);
                         });

std::string permissions(const void* memory) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char flags[8] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %7s", &begin, &end, flags) == 3 &&
        begin <= reinterpret_cast<uintptr_t>(memory) && reinterpret_cast<uintptr_t>(memory) < end)
      return flags;
  }
  return "";
}

ina_stats stats_of(ina_context* context) {
  ina_stats stats{};
  stats.struct_size = sizeof stats;
  EXPECT_EQ(ina_get_stats(context, &stats), INA_OK);
  return stats;
}

uint64_t copied(ina_context* context) {
  return stats_of(context).bytes_copied;
}

TEST(Memory, NothingIsCopiedOnTheWay) {
  const TestSwitch sw;
  on_ranks(sw, [&](ina_context* context, int rank) {
    void* send = nullptr;
    void* recv = nullptr;
    ASSERT_EQ(ina_alloc(context, 4096, &send), INA_OK);
    ASSERT_EQ(ina_alloc_result(context, 4096, &recv), INA_OK);
    fill(static_cast<float*>(send), 1'024, rank);
    // On a machine that stalls, answers to those who ask again are copied as well.
    const auto least_copied = [&](const void* from, void* to) {
      uint64_t least = UINT64_MAX;
      for (int i = 0; i < 20; ++i) {
        const uint64_t before = copied(context);
        EXPECT_EQ(allreduce(context, from, to, 1'024), INA_OK);
        least = std::min(least, copied(context) - before);
      }
      return least;
    };
    EXPECT_EQ(least_copied(send, recv), 0u);
    expect_sum(static_cast<float*>(recv), 1'024);
    EXPECT_EQ(permissions(recv), "r--s") << "the worker could write it";
    std::vector<float> plain(1'024);
    EXPECT_EQ(least_copied(plain.data(), recv), 4'096u);
    EXPECT_EQ(least_copied(send, plain.data()), 4'096u);
  });
}

/// The bytes that one rank's part of a collective copies.
struct Copies {
  uint64_t copied;
  uint64_t sent, received;  ///< payload

  auto operator<=>(const Copies&) const = default;
};

/// The least of several calls: on a machine that stalls, contributions are sent again, and answers
/// to those who ask again are copied as well.
Copies least_copies(ina_context* context, const perf::Call& call, const void* send, void* recv) {
  Copies least{UINT64_MAX, UINT64_MAX, UINT64_MAX};
  for (int i = 0; i < 20; ++i) {
    const ina_stats before = stats_of(context);
    EXPECT_EQ(perf::call(context, call, send, recv), INA_OK) << ina_last_error(context);
    const ina_stats after = stats_of(context);
    least = std::min(least, Copies{after.bytes_copied - before.bytes_copied,
                                   after.bytes_sent - before.bytes_sent,
                                   after.bytes_received - before.bytes_received});
  }
  return least;
}

/// Every collective reads registered memory where it lies. Results that all receive appear in
/// result buffers; others are copied once, out of the memory that the switch writes.
TEST(Memory, NoCollectiveCopiesMoreThanItMust) {
  const TestSwitch sw;
  constexpr size_t kBytes = 48 << 10;
  on_ranks(sw, [&](ina_context* context, int rank) {
    void* registered = nullptr;
    void* result = nullptr;
    ASSERT_EQ(ina_alloc(context, kBytes, &registered), INA_OK);
    ASSERT_EQ(ina_alloc_result(context, kBytes, &result), INA_OK);
    std::vector<std::byte> send(kBytes), recv(kBytes);
    for (const perf::Collective collective : perf::kAllCollectives) {
      SCOPED_TRACE(std::string(perf::name(collective)) + ", rank " + std::to_string(rank));
      perf::Call call{.collective = collective,
                      .whole = perf::whole_elements(collective, kBytes, sizeof(float), kWorld),
                      .dtype = INA_FLOAT32,
                      .op = INA_SUM,
                      .root = 1};
      // The ranks of a send and receive first tell each other their counts, from the library's own
      // memory.
      const uint64_t told = collective == perf::Collective::kSendReceive ? 32 : 0;
      const Copies plain = least_copies(context, call, send.data(), recv.data());
      // The root of a broadcast has what it receives: the call is in place. So do ranks that tell
      // each other their counts have their own.
      const bool in_place = collective == perf::Collective::kBroadcast && rank == call.root;
      const uint64_t there = in_place ? plain.received : told;
      EXPECT_EQ(plain.copied, plain.sent + plain.received - there);
      const Copies from_registered = least_copies(context, call, registered, recv.data());
      EXPECT_EQ(from_registered.sent, plain.sent);
      EXPECT_EQ(from_registered.copied, told + from_registered.received - there);
      if (!perf::shape_of(collective, call.whole, rank, kWorld, call.root).to_all) continue;
      call.direct = true;
      const Copies direct = least_copies(context, call, registered, result);
      EXPECT_EQ(direct.received, plain.received);
      EXPECT_EQ(direct.copied, 0u);
    }
  });
}

TEST(Memory, TheCallersMemfd) {
  const TestSwitch sw;
  on_ranks(sw, [&](ina_context* context, int rank) {
    constexpr size_t kBytes = 64 * 1024;
    const int fd = ::memfd_create("mine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(::ftruncate(fd, kBytes), 0);
    void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT_EQ(ina_register(context, fd, memory, kBytes / 2), INA_ERR_INVALID);
    ASSERT_EQ(ina_register(context, fd, memory, kBytes), INA_OK) << ina_last_error(context);
    EXPECT_EQ(ina_register(context, fd, memory, kBytes), INA_ERR_INVALID) << "twice";
    auto* send = static_cast<float*>(memory);
    fill(send, kBytes / 4, rank);
    std::vector<float> recv(kBytes / 4);
    ASSERT_EQ(allreduce(context, send, recv.data(), recv.size()), INA_OK);
    expect_sum(recv.data(), recv.size());
    EXPECT_EQ(ina_free(context, memory), INA_OK);
    // Not registered any more: copied.
    ASSERT_EQ(allreduce(context, send, recv.data(), recv.size()), INA_OK);
    expect_sum(recv.data(), recv.size());
    const int unsealable = ::memfd_create("unsealable", MFD_CLOEXEC);
    ASSERT_EQ(::ftruncate(unsealable, kBytes), 0);
    EXPECT_EQ(ina_register(context, unsealable, memory, kBytes), INA_ERR_INVALID);
    EXPECT_NE(std::string(ina_last_error(context)).find("MFD_ALLOW_SEALING"), std::string::npos);
    ::close(unsealable);
    ::munmap(memory, kBytes);
    ::close(fd);
  });
}

TEST(Memory, WrongUseIsNamed) {
  const TestSwitch sw;
  on_ranks(sw, [&](ina_context* context, int) {
    void* memory = nullptr;
    EXPECT_EQ(ina_alloc(context, 0, &memory), INA_ERR_INVALID);
    EXPECT_EQ(ina_alloc(context, 1, nullptr), INA_ERR_INVALID);
    EXPECT_EQ(ina_alloc_result(context, 0, &memory), INA_ERR_INVALID);
    EXPECT_EQ(ina_free(context, nullptr), INA_OK);
    EXPECT_EQ(ina_free(context, &memory), INA_ERR_INVALID);
    ASSERT_EQ(ina_alloc_result(context, 8'192, &memory), INA_OK);
    auto* recv = static_cast<float*>(memory);
    std::vector<float> send(4'096);
    EXPECT_EQ(allreduce(context, send.data(), recv + 1, 4), INA_ERR_INVALID);
    EXPECT_NE(std::string(ina_last_error(context)).find("multiple of 256"), std::string::npos);
    EXPECT_EQ(allreduce(context, send.data(), recv, 4'096), INA_ERR_INVALID);
    EXPECT_NE(std::string(ina_last_error(context)).find("beyond"), std::string::npos);
    ASSERT_EQ(allreduce(context, send.data(), recv, 2'048), INA_OK) << "the context is usable";
  });
}

TEST(Memory, RanksThatAimElsewhereAreTold) {
  const TestSwitch sw;
  on_ranks(sw, [&](ina_context* context, int rank) {
    void* memory = nullptr;
    ASSERT_EQ(ina_alloc_result(context, 8'192, &memory), INA_OK);
    std::vector<float> send(64);
    EXPECT_EQ(
        allreduce(context, send.data(), static_cast<float*>(memory) + (rank == 1 ? 64 : 0), 64),
        INA_ERR_MISMATCH);
    EXPECT_NE(std::string(ina_last_error(context)).find("of the result buffers"), std::string::npos)
        << ina_last_error(context);
  });
}

TEST(Memory, DifferentSizesAreTold) {
  const TestSwitch sw;
  on_ranks(sw, [&](ina_context* context, int rank) {
    void* memory = nullptr;
    EXPECT_EQ(ina_alloc_result(context, rank == 2 ? 512 : 1'024, &memory), INA_ERR_MISMATCH);
    EXPECT_NE(std::string(ina_last_error(context)).find("rank 2 for one of 512"), std::string::npos)
        << ina_last_error(context);
  });
}

TEST(Memory, ARankThatDoesNotAskEndsTheWait) {
  const TestSwitch sw;
  std::latch told(2);
  on_ranks(
      sw,
      [&](ina_context* context, int rank) {
        if (rank == 2) return told.wait();
        void* memory = nullptr;
        const int status = ina_alloc_result(context, 1'024, &memory);
        EXPECT_TRUE(status == INA_ERR_TIMEOUT || status == INA_ERR_ABORTED) << status;
        // Both may have given up at once, and then neither tells of the other.
        const std::string text = ina_last_error(context);
        EXPECT_NE(text.find("called ina_alloc_result, and rank"), std::string::npos) << text;
        EXPECT_NE(text.find("2 (pid " + std::to_string(::getpid()) + " on "), std::string::npos)
            << text;
        told.count_down();
      },
      INA_NUMERIC_NATIVE, 2'000'000);
}

TEST(Memory, ReproducibleSumsCannotGoThere) {
  const TestSwitch sw;
  on_ranks(
      sw,
      [&](ina_context* context, int rank) {
        void* memory = nullptr;
        void* send = nullptr;
        ASSERT_EQ(ina_alloc_result(context, 8'192, &memory), INA_OK);
        ASSERT_EQ(ina_alloc(context, 8'192, &send), INA_OK);
        EXPECT_EQ(allreduce(context, send, memory, 64), INA_ERR_UNSUPPORTED);
        fill(static_cast<float*>(send), 64, rank);
        std::vector<float> recv(64);
        ASSERT_EQ(allreduce(context, send, recv.data(), 64), INA_OK);
        expect_sum(recv.data(), 64);
      },
      INA_NUMERIC_REPRODUCIBLE);
}

TEST(Memory, TheBudgetHolds) {
  const TestSwitch sw(
      {.conductor = [](switchd::ConductorConfig& config) { config.jobs.memory_bytes = 8 << 20; }});
  on_ranks(sw, [&](ina_context* context, int) {
    void* memory = nullptr;
    EXPECT_EQ(ina_alloc_result(context, 16 << 20, &memory), INA_ERR_REFUSED);
    for (int i = 0; i < 8; ++i) {  // what is freed comes back
      ASSERT_EQ(ina_alloc_result(context, 1 << 20, &memory), INA_OK) << ina_last_error(context);
      ASSERT_EQ(ina_free(context, memory), INA_OK);
    }
    ina_barrier(context, 0);
  });
}

TEST(Memory, ManyRegistrationsAndTheirLimit) {
  const TestSwitch sw;
  on_ranks(sw, [&](ina_context* context, int) {
    std::vector<void*> memories;
    void* memory = nullptr;
    while (memories.size() < 63) {
      ASSERT_EQ(ina_alloc(context, 4096, &memory), INA_OK) << ina_last_error(context);
      memories.push_back(memory);
    }
    EXPECT_EQ(ina_alloc(context, 4096, &memory), INA_ERR_NO_MEMORY);
    ASSERT_EQ(ina_free(context, memories.back()), INA_OK);
    EXPECT_EQ(ina_alloc(context, 4096, &memory), INA_OK) << ina_last_error(context);
  });
}

TEST(Memory, FromCpp) {
  const TestSwitch sw;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorld; ++rank)
    threads.emplace_back([&, rank] {
      ina_config config;
      ina_config_init(&config);
      const std::string url = sw.url();
      config.url = url.c_str();
      config.rank = rank;
      config.world_size = kWorld;
      Context context(config);
      const Buffer<float> send = context.alloc<float>(1'000);
      const Buffer<const float> recv = context.alloc_result<float>(1'000);
      fill(send.data(), send.size(), rank);
      context.allreduce_into<float>(recv, send);
      expect_sum(recv.data(), recv.size());
    });
  for (auto& thread : threads) thread.join();
}

// The switch goes and comes back: the contents of result buffers stay, registered memory works on,
// and all results go to ordinary memory from then on.
TEST(Memory, OutlivesTheSwitch) {
  for (const char* policy : {"static", "esa"}) {
    const test::TempDir folder;
    const test::SwitchOptions options{.conductor = [policy](switchd::ConductorConfig& config) {
      config.aggregator.policy.kind = value_in(scheduler::kPolicyNames, policy).value();
    }};
    TestSwitch sw(options, folder / "");
    constexpr size_t kCount = 40'000;
    std::barrier<> step(kWorld + 1);
    std::thread operator_thread([&] {
      Attendance attendance(step);
      attendance.wait();
      ::usleep(20'000);  // operations are under way
      sw.stop();
      sw.start();
      attendance.wait();
    });
    on_ranks(sw, [&](ina_context* context, int rank) {
      Attendance attendance(step);
      void* send_memory = nullptr;
      void* recv_memory = nullptr;
      ASSERT_EQ(ina_alloc(context, kCount * 4, &send_memory), INA_OK);
      ASSERT_EQ(ina_alloc_result(context, 2 * kCount * 4, &recv_memory), INA_OK);
      auto* send = static_cast<float*>(send_memory);
      auto* recv = static_cast<float*>(recv_memory);
      fill(send, kCount, rank, 1);
      ASSERT_EQ(allreduce(context, send, recv, kCount), INA_OK);
      attendance.wait();
      for (int turn = 0; turn < 200; ++turn) {
        ASSERT_EQ(allreduce(context, send, recv + kCount, kCount), INA_OK)
            << ina_last_error(context);
        expect_sum(recv + kCount, kCount, 1);
      }
      attendance.wait();
      expect_sum(recv, kCount, 1);
      fill(send, kCount, rank, 2);
      ASSERT_EQ(allreduce(context, send, recv, kCount), INA_OK) << ina_last_error(context);
      expect_sum(recv, kCount, 2);
      expect_sum(recv + kCount, kCount, 1);
      // A new one is the switch's again.
      void* fresh = nullptr;
      ASSERT_EQ(ina_alloc_result(context, kCount * 4, &fresh), INA_OK) << ina_last_error(context);
      ASSERT_EQ(allreduce(context, send, fresh, kCount), INA_OK) << ina_last_error(context);
      expect_sum(static_cast<float*>(fresh), kCount, 2);
      EXPECT_EQ(ina_free(context, recv_memory), INA_OK);
      EXPECT_EQ(ina_free(context, fresh), INA_OK);
    });
    operator_thread.join();
  }
}

}  // namespace
}  // namespace ina
