// Workers that disagree while their contributions meet nowhere but in the fallback, because another
// job holds the only slot: whichever home the fallback has, all of them are told, both sides named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <thread>

#include "ina/ina.h"
#include "tests/support/process.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::Process;
using test::TestSwitch;
using testing::HasSubstr;

struct Case {
  const char* policy;
  Home home;
};

/// One worker of a job, until it goes out of scope.
class Worker {
 public:
  Worker(const TestSwitch& sw, const char* job, int rank, int world) {
    ina_config config;
    ina_config_init(&config);
    const std::string url = sw.url();
    config.url = url.c_str();
    config.job = job;
    config.rank = rank;
    config.world_size = world;
    config.timeout_us = 10'000'000;
    EXPECT_EQ(ina_init(&config, &context_), INA_OK) << ina_last_error(nullptr);
  }
  Worker(const Worker&) = delete;
  ~Worker() {
    if (context_) ina_finalize(context_, 100'000);
  }
  int sum(size_t count, ina_op op) {
    std::vector<int32_t> data(count, 1);
    return ina_allreduce(context_, data.data(), data.data(), count, INA_INT32, op, 0);
  }
  ina_context* context_ = nullptr;
};

void on_ranks(int world, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) threads.emplace_back(body, rank);
  for (auto& thread : threads) thread.join();
}

class Mismatch : public testing::TestWithParam<Case> {
 protected:
  static TestSwitch::Options options() {
    TestSwitch::Options options;
    options.slots = 1;
    options.policy.decay = scheduler::Decay::kNone;  // the slot stays with its holder
    options.conductor = [](switchd::ConductorConfig& config) {
      config.aggregator.policy.kind = value_in(scheduler::kPolicyNames, GetParam().policy).value();
      config.rules.home = GetParam().home;
      config.jobs.window_bytes = 64 * 1024;
      config.jobs.priority_max = 1;
    };
    return options;
  }
};

TEST_P(Mismatch, InTheFallbackIsToldToAllRanks) {
  constexpr int kWorld = 3;
  TestSwitch sw(options());
  Process server = GetParam().home == Home::kDedicated
                       ? Process({PSD, "--socket", sw.socket_path()})
                       : Process({"/bin/true"});
  // Rank 0 of another job holds the slot: its peer never calls.
  std::unique_ptr<Worker> holders[2];
  on_ranks(2, [&](int rank) { holders[rank] = std::make_unique<Worker>(sw, "holder", rank, 2); });
  int32_t held[] = {1, 2, 3};
  ina_request* request = nullptr;
  ASSERT_EQ(ina_allreduce_async(holders[0]->context_, held, held, 3, INA_INT32, INA_SUM, &request),
            INA_OK);
  for (int i = 0; i < 1000 && sw.status()["aggregator"]["slots_used"] != 1; ++i) ::usleep(1000);

  std::string texts[kWorld];
  // The job ends for all at once: nobody may still wait for the first result then.
  std::barrier first_done(kWorld);
  on_ranks(kWorld, [&](int rank) {
    Worker worker(sw, "job", rank, kWorld);
    EXPECT_EQ(worker.sum(10, INA_SUM), INA_OK);
    first_done.arrive_and_wait();
    EXPECT_EQ(worker.sum(1000, rank == 2 ? INA_MAX : INA_SUM), INA_ERR_MISMATCH);
    texts[rank] = ina_last_error(worker.context_);
    // It stays like that.
    EXPECT_EQ(worker.sum(10, INA_SUM), INA_ERR_MISMATCH);
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("workers of job 'job' disagree: rank"));
    EXPECT_THAT(text, HasSubstr("rank 2 started operation 1: allreduce of 1000 int32 max"));
    EXPECT_THAT(text, HasSubstr(" started operation 1: allreduce of 1000 int32 sum"));
    EXPECT_EQ(text, texts[0]);
  }
  const auto status = sw.status();
  EXPECT_FALSE(status["aggregator"]["drops"].contains("mismatch"))
      << "they met in the switch: nothing was tested";
  ASSERT_EQ(status["jobs"].size(), 1u);
  EXPECT_EQ(status["jobs"][0]["name"], "holder");
  EXPECT_EQ(status["jobs"][0]["state"], "running");
  // The other job was only waiting for its peer.
  int32_t other[] = {10, 20, 30};
  EXPECT_EQ(ina_allreduce(holders[1]->context_, other, other, 3, INA_INT32, INA_SUM, 0), INA_OK);
  EXPECT_EQ(ina_wait(request, 0), INA_OK);
  EXPECT_THAT(held, testing::ElementsAre(11, 22, 33));
}

INSTANTIATE_TEST_SUITE_P(All, Mismatch,
                         testing::Values(Case{"fcfs", Home::kWorkers},
                                         Case{"fcfs", Home::kDedicated}, Case{"fcfs", Home::kSpill},
                                         Case{"esa", Home::kWorkers}, Case{"esa", Home::kDedicated},
                                         Case{"esa", Home::kSpill}),
                         [](const auto& test) {
                           return std::string(test.param.policy) + "_" +
                                  std::string(name(test.param.home));
                         });

}  // namespace
}  // namespace ina
