// The dedicated fallback server as a process of its own, beside a switch and its workers: jobs wait
// for it, need it while slots are few, and survive its death.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "common/cpus.h"
#include "ina/ina.h"
#include "programs/psd/serving_loop.h"
#include "tests/support/as_user.h"
#include "tests/support/captured_log.h"
#include "tests/support/control_peer.h"
#include "tests/support/deadline.h"
#include "tests/support/evil_files.h"
#include "tests/support/process.h"
#include "tests/support/sanitizers.h"
#include "tests/support/switch_fixture.h"
#include "tests/support/thread_sleeps.h"

namespace ina {
namespace {

using test::kTimeoutNs;

using test::Process;
using test::TestSwitch;
using testing::AllOf;
using testing::HasSubstr;

TestSwitch::Options dedicated(uint32_t slots) {
  TestSwitch::Options options;
  options.slots = slots;
  options.lanes = 2;
  options.conductor = [](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
    config.rules.home = Home::kDedicated;
    config.jobs.window_bytes = 256 * 1024;
  };
  return options;
}

/// With its standard error on its standard output.
Process start_server(const std::string& socket) {
  return Process({"/bin/sh", "-c", "exec " PSD " --socket " + socket + " 2>&1"});
}
Process start_server(const TestSwitch& sw) {
  return start_server(sw.socket_path());
}

Process worker(const TestSwitch& sw, const std::string& job, int rank, int world, int elements,
               int times) {
  return Process({LOAD_WORKER, sw.url(), job, std::to_string(rank), std::to_string(world),
                  std::to_string(elements), std::to_string(times)});
}

/// The switch's word on its first job that satisfies `is`; null if none does in time.
template <class Is>
control::Json await_job(const TestSwitch& sw, Is&& is) {
  for (int i = 0; i < 2000; ++i) {
    const auto status = sw.status();
    for (const auto& job : status["jobs"])
      if (is(job)) return job;
    ::usleep(5000);
  }
  return nullptr;
}

TEST(Psd, AJobWaitsForItAndSaysSo) {
  TestSwitch sw(dedicated(256));
  ina_config config;
  ina_config_init(&config);
  const std::string url = sw.url();
  config.url = url.c_str();
  config.job = "lonely";
  config.rank = 0;
  config.world_size = 1;
  config.timeout_us = 2'000'000;
  ina_context* context = nullptr;
  EXPECT_EQ(ina_init(&config, &context), INA_ERR_TIMEOUT);
  EXPECT_THAT(ina_last_error(nullptr),
              HasSubstr("waited 2 s for the fallback server (ina-psd) to join"));
  // It may come at any time.
  Process patient = worker(sw, "patient", 0, 1, 10, 1);
  const auto waiting = await_job(sw, [](const auto& job) { return job["joined"].size() == 1; });
  ASSERT_FALSE(waiting.is_null());
  EXPECT_EQ(waiting["state"], "joining");
  EXPECT_EQ(waiting["fallback_missing"], true);
  Process server = start_server(sw);
  EXPECT_EQ(patient.output(), "INA_OK \n");
  server.kill(SIGTERM);
  EXPECT_EQ(server.wait(), 0);
}

TEST(Psd, IsRefusedWhereItIsNotWanted) {
  TestSwitch::Options options = dedicated(256);
  options.conductor = [](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
  };
  TestSwitch sw(options);
  Process server = start_server(sw);
  EXPECT_THAT(server.output(), HasSubstr("needs no fallback server: its fallback.home is workers"));
  EXPECT_EQ(server.wait(), 1);
}

TEST(Psd, OneIsEnough) {
  TestSwitch sw(dedicated(256));
  Process first = start_server(sw);
  Process job = worker(sw, "job", 0, 1, 10, 1);
  EXPECT_EQ(job.output(), "INA_OK \n");
  Process second = start_server(sw);
  EXPECT_THAT(second.output(), HasSubstr("another fallback server (pid " +
                                         std::to_string(first.pid()) + ") serves already"));
  EXPECT_EQ(second.wait(), 1);
  Process again = worker(sw, "again", 0, 1, 10, 1);
  EXPECT_EQ(again.output(), "INA_OK \n");
}

TEST(Psd, ServesJobsThatCompeteForFewSlots) {
  TestSwitch sw(dedicated(16));
  Process server = start_server(sw);
  std::vector<Process> workers;
  for (const char* job : {"one", "two", "three"})
    for (int rank = 0; rank < 3; ++rank) workers.push_back(worker(sw, job, rank, 3, 50'000, 10));
  for (Process& process : workers) EXPECT_EQ(process.output(), "INA_OK \n");
  EXPECT_GT(sw.status()["aggregator"]["fallback_results"], 0)
      << "slots were not few: nothing was tested";
}

TEST(Psd, JobsSurviveItsDeath) {
  constexpr int kDeaths = 10;
  TestSwitch sw(dedicated(16));
  Process server = start_server(sw);
  std::vector<Process> workers;
  for (int rank = 0; rank < 3; ++rank) workers.push_back(worker(sw, "job", rank, 3, 50'000, 2000));
  ASSERT_FALSE(await_job(sw, [](const auto& job) { return job["state"] == "running"; }).is_null());
  auto epoch = sw.status()["jobs"][0]["epoch"].get<uint32_t>();
  for (int death = 0; death < kDeaths; ++death) {
    ::usleep(static_cast<useconds_t>(3000 * death));
    server.kill(SIGKILL);
    EXPECT_EQ(server.wait(), -SIGKILL);
    if (await_job(sw, [](const auto& job) { return job["fallback_missing"] == true; }).is_null())
      break;
    // A worker that asks in between gets no answer, and asks again.
    if (death % 2 == 0) ::usleep(20'000);
    server = start_server(sw);
    const auto job = await_job(sw, [&](const auto& known) {
      return known["fallback_missing"] == false && known["epoch"] > epoch;
    });
    ASSERT_FALSE(job.is_null()) << "after death " << death;
    epoch = job["epoch"];
  }
  for (Process& process : workers) EXPECT_EQ(process.output(), "INA_OK \n");
}

TEST(Psd, JobsSurviveRestartsOfTheSwitch) {
  TestSwitch sw(dedicated(16));
  Process server = start_server(sw);
  std::vector<Process> workers;
  for (int rank = 0; rank < 3; ++rank) workers.push_back(worker(sw, "job", rank, 3, 50'000, 300));
  for (int restart = 0; restart < 5; ++restart) {
    if (await_job(sw, [](const auto& job) { return job["state"] == "running"; }).is_null()) break;
    ::usleep(static_cast<useconds_t>(7000 * restart));
    sw.stop();
    sw.start();
  }
  for (Process& process : workers) EXPECT_EQ(process.output(), "INA_OK \n");
}

// ---- jobs that it cannot serve

/// A user's job that leaves the user no mapping, so that there is no place for the server in it.
class FullJob {
 public:
  static constexpr uid_t kUser = 12345;

  explicit FullJob(const TestSwitch& sw) { fill(sw); }
  control::Json hear() const {
    const auto message = connection_.receive(kTimeoutNs);
    return message && *message ? (*message)->body : control::Json();
  }

 private:
  void fill(const TestSwitch& sw) {
    test::as_user(kUser, [&] {
      auto opened = control::Connection::open(sw.socket_path(), kTimeoutNs);
      ASSERT_TRUE(opened) << opened.error().text;
      connection_ = std::move(*opened);
    });
    ASSERT_TRUE(connection_.send({{"type", "join"},
                                  {"version", control::kControlVersion},
                                  {"job", "full"},
                                  {"rank", 0},
                                  {"world_size", 1},
                                  {"transport", "shm"}}));
    ASSERT_EQ(hear()["type"], "joined");
    const Fd file = test::sealed_file(4096);
    for (uint32_t number = 1; number < 64; ++number) {
      ASSERT_TRUE(connection_.send({{"type", "register"}, {"number", number}, {"bytes", 4096}},
                                   {file.get()}));
      if (hear()["status"] != INA_OK) return;
    }
    FAIL() << "the user may have more mappings than this job";
  }

  control::Connection connection_;
};

TEST(Psd, AJobWithoutRoomForItEndsAndOthersAreServed) {
  if (::geteuid() != 0) GTEST_SKIP() << "being several users takes root";
  const test::TempDir folder;
  ::chmod((folder / "").c_str(), 0755);
  TestSwitch::Options options = dedicated(16);
  options.conductor = [base = options.conductor](switchd::ConductorConfig& config) {
    base(config);
    config.control.mode = 0666;
    config.mappings = 60;  // 30 for a user
  };
  TestSwitch sw(options, folder / "");
  const FullJob full(sw);
  ASSERT_FALSE(HasFatalFailure());
  // The server hears of it after the other.
  std::vector<Process> workers;
  for (int rank = 0; rank < 2; ++rank) workers.push_back(worker(sw, "other", rank, 2, 50'000, 10));
  ASSERT_FALSE(await_job(sw, [](const auto& job) {
                 return job["name"] == "other" && job["joined"].size() == 2;
               }).is_null());
  Process server = start_server(sw);
  for (Process& process : workers) EXPECT_EQ(process.output(), "INA_OK \n");
  const control::Json ended = full.hear();
  ASSERT_TRUE(ended.is_object());
  EXPECT_EQ(ended["type"], "abort") << ended;
  EXPECT_EQ(ended["status"], INA_ERR_REFUSED) << ended;
  EXPECT_THAT(
      ended.value("text", ""),
      AllOf(HasSubstr("there is no place in it for the fallback server (ina-psd): it needs 2 "
                      "mappings, the switch has 30 for 'uid:12345', of which 30 are in use"),
            HasSubstr("leave jobs, or give memory back")));
  server.kill(SIGTERM);
  EXPECT_THAT(server.output(), testing::Not(HasSubstr("trying again")));
  EXPECT_EQ(server.wait(), 0);
}

/// The switch's side of the server's connections, by hand.
class SwitchByHand {
 public:
  control::Connection accept() const {
    pollfd waiting{listener_.fd(), POLLIN, 0};
    ::poll(&waiting, 1, 10'000);
    auto accepted = listener_.accept();
    EXPECT_TRUE(accepted && *accepted) << "the server does not come";
    return accepted && *accepted ? std::move(**accepted) : control::Connection();
  }
  static control::Json hear(const control::Connection& connection) {
    const auto message = connection.receive(10'000'000'000);
    return message && *message ? (*message)->body : control::Json();
  }
  std::string path() const { return folder_ / "switch.sock"; }

 private:
  const test::TempDir folder_;
  const control::Listener listener_ = std::move(*control::Listener::open(path(), 0600));
};

TEST(Psd, WhatGoesWrongInAJobIsThatJobsAlone) {
  const SwitchByHand sw;
  Process server = start_server(sw.path());
  const control::Connection own = sw.accept();
  EXPECT_EQ(sw.hear(own)["type"], "serve");
  ASSERT_TRUE(own.send({{"type", "serving"}, {"library", "test"}}));
  EXPECT_EQ(sw.hear(own)["type"], "next_job");
  ASSERT_TRUE(own.send({{"type", "job"}, {"job_id", 1}, {"job", "first"}, {"owner", "uid:1"}}));
  EXPECT_EQ(sw.hear(own)["type"], "next_job");
  {
    const control::Connection refused = sw.accept();
    EXPECT_EQ(sw.hear(refused)["job_id"], 1);
    ASSERT_TRUE(refused.send(
        {{"type", "refused"}, {"status", INA_ERR_RANK_TAKEN}, {"text", "taken (a test)"}}));
    EXPECT_TRUE(sw.hear(refused).is_null()) << "it hangs up";
  }
  EXPECT_EQ(sw.hear(sw.accept())["job_id"], 1) << "lost without an answer";
  ASSERT_TRUE(own.send({{"type", "job"}, {"job_id", 2}, {"job", "second"}, {"owner", "uid:2"}}));
  EXPECT_EQ(sw.hear(own)["type"], "next_job");
  // Both are tried, the first again and again, until they have ended.
  for (int ended = 0, tries = 0; ended < 2 && tries < 100; ++tries) {
    const control::Connection connection = sw.accept();
    const control::Json join = sw.hear(connection);
    ASSERT_TRUE(join.is_object());
    const bool ends = join["job_id"] == 2 || tries > 2;
    ended += ends;
    ASSERT_TRUE(connection.send({{"type", "refused"},
                                 {"status", ends ? INA_ERR_ABORTED : INA_ERR_REFUSED},
                                 {"text", "a test"}}));
  }
  // It has not begun anew, and asks for no job that has ended.
  ASSERT_TRUE(own.send({{"type", "job"}, {"job_id", 3}, {"job", "third"}, {"owner", "uid:1"}}));
  EXPECT_EQ(sw.hear(own)["type"], "next_job");
  EXPECT_EQ(sw.hear(sw.accept())["job_id"], 3);
  server.kill(SIGTERM);
  EXPECT_THAT(
      server.output(),
      HasSubstr("job not served, trying again job=\"first\" id=\"1\" text=\"taken (a test)\""));
  EXPECT_EQ(server.wait(), 0);
}

// After a job of the first owner the next owner's has its turn, though the first has more waiting.
TEST(Psd, OwnersTakeTurns) {
  const SwitchByHand sw;
  Process server = start_server(sw.path());
  const control::Connection own = sw.accept();
  EXPECT_EQ(sw.hear(own)["type"], "serve");
  ASSERT_TRUE(own.send({{"type", "serving"}, {"library", "test"}}));
  const auto refuse = [](const control::Connection& connection) {
    ASSERT_TRUE(connection.send(
        {{"type", "refused"}, {"status", INA_ERR_REFUSED}, {"text", "not now (a test)"}}));
  };
  const auto asked = [&](const control::Connection& connection) {
    const control::Json join = sw.hear(connection);
    return join.is_object() ? join["job_id"].get<int>() : -1;
  };
  // All are refused, and when the last one is, all the others are due again.
  const char* const owners[] = {"uid:1", "uid:1", "uid:1", "uid:2", "uid:3"};
  int waiting = 0;
  for (int id = 1; id <= 5; ++id) {
    EXPECT_EQ(sw.hear(own)["type"], "next_job");
    ASSERT_TRUE(
        own.send({{"type", "job"}, {"job_id", id}, {"job", "job"}, {"owner", owners[id - 1]}}));
    for (bool come = false; !come; ++waiting) {  // earlier ones may ask again in between
      const control::Connection connection = sw.accept();
      come = asked(connection) == id;
      if (come && id == 5) ::usleep(1'100'000);  // longer than its longest pause
      refuse(connection);
    }
  }
  const int first = asked(sw.accept());
  const int second = asked(sw.accept());
  EXPECT_LE(first, 3);
  EXPECT_EQ(second, 4) << "not another one of the first owner";
}

// ---- its own limits, and its connections

/// A worker of a job of `world`, that has joined and does no more.
test::Peer joined(const TestSwitch& sw, const std::string& job, int rank, int world) {
  const control::Json join = {{"type", "join"},      {"version", control::kControlVersion},
                              {"job", job},          {"rank", rank},
                              {"world_size", world}, {"transport", "shm"}};
  for (int i = 0; i < 1000; ++i) {
    test::Peer peer(sw.socket_path());
    if (peer.ask_if_open(join).value("type", "") == "joined") return peer;
    ::usleep(5000);  // a connection that has just been closed may still have its place
  }
  ADD_FAILURE() << "no place for rank " << rank << " of " << job;
  return test::Peer(sw.socket_path());
}

#ifndef INA_SLOW_BUILD  // sanitizers have memory of their own
/// Size of a process's address space in bytes; 0 if there is none.
rlim_t address_space(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmSize:")) return std::stoull(line.substr(7)) << 10;
  return 0;
}

void limit_address_space(pid_t pid, rlim_t bytes) {
  const rlimit limit{bytes, RLIM_INFINITY};
  ASSERT_EQ(::prlimit(pid, RLIMIT_AS, &limit, nullptr), 0);
}

TEST(Psd, AJobForWhichItHasNoMemoryWaitsAndOthersAreServed) {
  const test::CapturedLog log;
  TestSwitch::Options options = dedicated(16);
  options.conductor = [base = options.conductor](switchd::ConductorConfig& config) {
    base(config);
    config.jobs.window_bytes = 32 << 20;
  };
  TestSwitch sw(options);
  Process server = start_server(sw);
  while (log.text().find("fallback server connected") == std::string::npos) ::usleep(1000);
  // Twice the window of "big" does not fit, a small window does.
  limit_address_space(server.pid(), address_space(server.pid()) + (32 << 20));
  const test::Peer big = joined(sw, "big", 0, 1);
  ::setenv("INA_WINDOW_BYTES", "65536", 1);
  Process small = worker(sw, "small", 0, 1, 1000, 10);
  ::unsetenv("INA_WINDOW_BYTES");
  EXPECT_EQ(small.output(), "INA_OK \n");
  limit_address_space(server.pid(), RLIM_INFINITY);
  const auto is_served = [](const auto& job) {
    return job["name"] == "big" && job["fallback_missing"] == false;
  };
  EXPECT_FALSE(await_job(sw, is_served).is_null());
  server.kill(SIGTERM);
  EXPECT_THAT(server.output(),
              testing::ContainsRegex("job not served, trying again job=\"big\" .*has no memory"));
}
#endif

TEST(Psd, ItRaisesItsLimitOfOpenFiles) {
  TestSwitch sw(dedicated(16));
  Process server(
      {"/bin/sh", "-c", "ulimit -Sn 24; exec " PSD " --socket " + sw.socket_path() + " 2>&1"});
  constexpr int kJobs = 12;  // of four descriptors each
  std::vector<Process> workers;
  for (int job = 0; job < kJobs; ++job)
    workers.push_back(worker(sw, "job-" + std::to_string(job), 0, 1, 10, -1));
  ASSERT_FALSE(await_job(sw, [&](const auto&) {
                 const auto jobs = sw.status()["jobs"];
                 return jobs.size() == kJobs && std::ranges::all_of(jobs, [](const auto& job) {
                          return job["state"] == "running";
                        });
               }).is_null());
  for (Process& process : workers) process.kill(SIGTERM);
  for (Process& process : workers) EXPECT_EQ(process.output(), "INA_OK \n");
}

/// How often the threads of a server that serve jobs have gone to sleep.
uint64_t sleeps(pid_t pid) {
  return test::sleeps_of_threads(std::to_string(pid), "ina-psd-job");
}

size_t threads_of(const Process& server) {
  return test::threads_named(std::to_string(server.pid()), "ina-psd-job").size();
}

TEST(Psd, AnOwnersJobsShareThreadsHoweverManyTheyAre) {
  TestSwitch::Options options = dedicated(16);
  options.max_jobs = 160;
  TestSwitch sw(options);
  Process server = start_server(sw);
  // More than a thread can wait for.
  constexpr size_t kJobs = psd::ServingLoop::kMostJobs + 3;
  {
    std::vector<test::Peer> peers;
    for (size_t job = 0; job < kJobs; ++job)
      peers.push_back(joined(sw, "job-" + std::to_string(job), 0, 1));
    const auto are_served = [&](const auto&) {
      const auto jobs = sw.status()["jobs"];
      return jobs.size() == kJobs && std::ranges::all_of(jobs, [](const auto& job) {
               return job["fallback_missing"] == false;
             });
    };
    ASSERT_FALSE(await_job(sw, are_served).is_null());
    EXPECT_EQ(threads_of(server), std::max<size_t>(2, cpus_of_process().size() / 2));
    Process working = worker(sw, "working", 0, 1, 50'000, 3);
    EXPECT_EQ(working.output(), "INA_OK \n");
  }
  // They end with the jobs.
  for (int i = 0; threads_of(server) != 0 && i < 2000; ++i) ::usleep(5000);
  EXPECT_EQ(threads_of(server), 0);
  Process again = worker(sw, "again", 0, 1, 50'000, 3);
  EXPECT_EQ(again.output(), "INA_OK \n");
}

TEST(Psd, JobsInWhichNothingHappensTakeNoTime) {
  TestSwitch sw(dedicated(16));
  Process server = start_server(sw);
  constexpr int kJobs = 8;
  std::vector<test::Peer> peers;
  for (int job = 0; job < kJobs; ++job)
    peers.push_back(joined(sw, "job-" + std::to_string(job), 0, 1));
  ASSERT_FALSE(await_job(sw, [&](const auto&) {
                 return std::ranges::all_of(sw.status()["jobs"], [](const auto& job) {
                   return job["fallback_missing"] == false;
                 });
               }).is_null());
  const uint64_t before = sleeps(server.pid());
  ::usleep(1'000'000);
  EXPECT_LE(sleeps(server.pid()) - before, 4 * kJobs);
}

TEST(Psd, ItIsLetInHoweverManyConnectionsThereAre) {
  TestSwitch::Options options = dedicated(16);
  options.conductor = [base = options.conductor](switchd::ConductorConfig& config) {
    base(config);
    config.control.max_connections = 4;
  };
  TestSwitch sw(options);
  Process patient = worker(sw, "patient", 0, 1, 10, 1);
  ASSERT_FALSE(await_job(sw, [](const auto& job) { return job["joined"].size() == 1; }).is_null());
  // In a job that waits for its workers, so that nobody takes these connections away.
  std::vector<test::Peer> others;
  for (int rank = 0; rank < 3; ++rank) others.push_back(joined(sw, "waiting", rank, 4));
  Process server = start_server(sw);
  EXPECT_EQ(patient.output(), "INA_OK \n");
}

}  // namespace
}  // namespace ina
