// A worker's attacks on the switch with descriptors and memory, and the switch's
// defence.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "common/clock.h"
#include "tests/support/as_user.h"
#include "tests/support/control_peer.h"
#include "tests/support/deadline.h"
#include "tests/support/evil_files.h"
#include "tests/support/raw_worker.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using control::Json;
using test::RawWorker;
using test::TestSwitch;
using testing::HasSubstr;

using test::kTimeoutNs;
/// Limit for requests that must not wait for another one that takes a minute.
constexpr Nanos kAtOnceNs = 8'000'000'000;

control::Connection connect(const TestSwitch& sw) {
  auto opened = control::Connection::open(sw.socket_path(), kTimeoutNs);
  EXPECT_TRUE(opened);
  return opened ? std::move(*opened) : control::Connection();
}

Json hear(const control::Connection& connection) {
  auto message = connection.receive(kTimeoutNs);
  return message && *message ? (*message)->body : Json();
}

Json join(const control::Connection& connection, const std::string& job, int workers = 1) {
  EXPECT_TRUE(connection.send({{"type", "join"},
                               {"version", control::kControlVersion},
                               {"job", job},
                               {"rank", 0},
                               {"world_size", workers},
                               {"transport", "shm"}}));
  return hear(connection);
}

Json register_memory(RawWorker& worker, uint32_t number, const Fd& file, uint64_t bytes) {
  EXPECT_TRUE(worker.control.send({{"type", "register"}, {"number", number}, {"bytes", bytes}},
                                  {file.get()}));
  return worker.hear();
}

template <class Condition>
bool in_the_end(Condition&& condition) {
  for (int i = 0; i < 1'000; ++i) {
    if (condition()) return true;
    ::usleep(10'000);
  }
  return false;
}

// ---- descriptors

TEST(Descriptors, ASocketThatLingersHoldsNobodyUpInWhateverMessageItComes) {
  const TestSwitch sw;
  for (const char* type : {"attach", "register", "join", "status", "nonsense"}) {
    for (const bool joined : {false, true}) {
      SCOPED_TRACE(std::string(type) + (joined ? " in a job" : ""));
      test::LingeringSocket socket;
      const control::Connection connection = connect(sw);
      if (joined) {
        ASSERT_EQ(join(connection, type)["type"], "joined");
      }
      const Nanos begun = now_ns();
      ASSERT_TRUE(connection.send({{"type", type}, {"number", 1}, {"bytes", 4096}}, {socket.fd()}));
      socket.let_go();
      const Json answer = hear(connection);
      ASSERT_TRUE(answer.is_object());
      EXPECT_TRUE(answer["type"] == "refused" || answer["status"] != INA_OK) << answer;
      EXPECT_TRUE(sw.status().contains("jobs"));
      EXPECT_LT(now_ns() - begun, kAtOnceNs);
    }
  }
}

TEST(Descriptors, ComeInTwoMessagesAndAtTheirTimeOnly) {
  const TestSwitch sw({.conductor = [](switchd::ConductorConfig& config) {
    config.frame_ports = {{"eth0", {{2, 0, 0, 0, 0, 9}, 0x0a000001, 7584}}};
  }});
  const Fd file = test::sealed_file(4096);
  const auto refusal = [&](const control::Connection& connection, const char* type) {
    EXPECT_TRUE(connection.send({{"type", type}, {"number", 1}, {"bytes", 4096}}, {file.get()}));
    const Json answer = hear(connection);
    EXPECT_EQ(answer["type"], "refused") << answer;
    return answer.value("text", "");
  };
  EXPECT_THAT(refusal(connect(sw), "attach"), HasSubstr("there is no job for them"));
  RawWorker explains(sw.socket_path(), "a", 0, 1);
  ASSERT_TRUE(explains.hear_until("ready"));
  EXPECT_THAT(refusal(explains.control, "explain"), HasSubstr("which it may not"));
  RawWorker twice(sw.socket_path(), "b", 0, 1);
  ASSERT_TRUE(twice.hear_until("ready"));
  EXPECT_THAT(refusal(twice.control, "attach"), HasSubstr("comes at the wrong time"));
  const control::Connection frames = connect(sw);
  ASSERT_TRUE(frames.send(test::frame_join("", "", 0, "c")));
  ASSERT_EQ(hear(frames)["type"], "joined");
  EXPECT_THAT(refusal(frames, "attach"), HasSubstr("over another port than shm"));
}

TEST(Descriptors, OneThatIsNeverReadHoldsNobodyUp) {
  const TestSwitch sw;
  test::LingeringSocket socket;
  control::Connection connection = connect(sw);
  // The first message has the connection closed; the second is still in it then.
  ASSERT_TRUE(connection.send({{"type", "leave"}}, {0}));
  (void)connection.send({{"type", "leave"}}, {socket.fd()});
  socket.let_go();
  const Nanos begun = now_ns();
  EXPECT_EQ(hear(connection)["type"], "refused");
  connection.close();
  EXPECT_TRUE(sw.status().contains("jobs"));
  EXPECT_LT(now_ns() - begun, kAtOnceNs);
}

TEST(Descriptors, TheSwitchStopsWhileTheyWait) {
  TestSwitch sw;
  test::LingeringSocket socket;
  control::Connection connection = connect(sw);
  ASSERT_EQ(join(connection, "job")["type"], "joined");
  ASSERT_TRUE(connection.send({{"type", "attach"}}, {socket.fd()}));
  socket.let_go();
  const Nanos begun = now_ns();
  sw.stop();
  EXPECT_LT(now_ns() - begun, kAtOnceNs);
}

TEST(Descriptors, MessagesKeepTheirOrder) {
  const TestSwitch sw;
  RawWorker worker(sw.socket_path(), "job", 0, 1);
  ASSERT_TRUE(worker.hear_until("ready"));
  const Fd file = test::sealed_file(1 << 20);
  for (uint32_t number = 1; number < 20; ++number) {
    ASSERT_TRUE(worker.control.send({{"type", "register"}, {"number", number}, {"bytes", 1 << 20}},
                                    {file.get()}));
    ASSERT_TRUE(worker.control.send({{"type", "explain"}}));
  }
  for (uint32_t number = 1; number < 20; ++number) {
    const Json registered = worker.hear();
    EXPECT_EQ(registered["type"], "registered") << registered;
    EXPECT_EQ(registered["number"], number);
    EXPECT_EQ(registered["status"], INA_OK) << registered;
    EXPECT_EQ(worker.hear()["type"], "explain");
  }
}

TEST(Descriptors, WithoutItsDoormanTheSwitchSaysSo) {
  const TestSwitch sw;
  RawWorker before(sw.socket_path(), "before", 0, 1);
  ASSERT_TRUE(before.hear_until("ready"));
  ASSERT_EQ(::kill(sw.doorman().pid(), SIGKILL), 0);
  RawWorker after(sw.socket_path(), "after", 0, 1);
  const Json answer = after.hear();
  EXPECT_TRUE(answer.is_null() ||
              answer["text"].get<std::string>().find("ina-doorman") != std::string::npos)
      << answer;
  EXPECT_TRUE(sw.status().contains("jobs"));
  ASSERT_TRUE(before.control.send({{"type", "explain"}}));
  EXPECT_EQ(before.hear()["type"], "explain") << "what runs goes on";
}

TEST(Descriptors, AWorkerThatDiesWhileItIsWaitedForIsNoticed) {
  const TestSwitch sw;
  for (int i = 0; i < 20; ++i) {
    RawWorker worker(sw.socket_path(), "job", 0, 1);
    ASSERT_TRUE(worker.hear_until("ready"));
    const Fd file = test::sealed_file(1 << 20);
    ASSERT_TRUE(worker.control.send({{"type", "register"}, {"number", 1}, {"bytes", 1 << 20}},
                                    {file.get()}));
    worker.control.close();
    ASSERT_TRUE(in_the_end([&] { return sw.status()["jobs"].empty(); }));
  }
}

TEST(Descriptors, UnreadAnswersAreFew) {
  const TestSwitch sw;
  std::vector<control::Connection> silent;
  const auto ask = [&] {
    silent.push_back(connect(sw));
    EXPECT_TRUE(silent.back().send({{"type", "status"}}));
  };
  for (int i = 0; i < 20; ++i) ask();
  const control::Connection twice = connect(sw);
  ASSERT_TRUE(twice.send({{"type", "status"}}));
  EXPECT_THAT(hear(twice)["text"].get<std::string>(), HasSubstr("answers to status were not read"));
  EXPECT_EQ(join(twice, "job")["type"], "joined");
  EXPECT_EQ(hear(silent.front())["type"], "status");
  for (size_t i = 1; i < silent.size(); ++i) (void)silent[i].receive(kTimeoutNs);
  EXPECT_TRUE(sw.status().contains("jobs")) << "once they are read there is room again";
}

// ---- memory that workers bring

TEST(PeerMemory, OneWithHolesIsRefusedAndTheJobGoesOn) {
  const TestSwitch sw;
  RawWorker worker(sw.socket_path(), "job", 0, 1);
  ASSERT_TRUE(worker.hear_until("ready"));
  const Fd sparse(::memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  constexpr uint64_t kHuge = uint64_t{64} << 30;
  ASSERT_EQ(::ftruncate(sparse.get(), kHuge), 0);
  ASSERT_EQ(::fcntl(sparse.get(), F_ADD_SEALS, kRegionSeals), 0);
  const Json refused = register_memory(worker, 1, sparse, kHuge);
  EXPECT_EQ(refused["status"], INA_ERR_REFUSED);
  EXPECT_THAT(refused["text"].get<std::string>(), HasSubstr("has holes"));
  const Fd good = test::sealed_file(8192);
  EXPECT_EQ(register_memory(worker, 1, good, 4096)["status"], INA_ERR_REFUSED) << "another size";
  EXPECT_EQ(register_memory(worker, 1, good, 8192)["status"], INA_OK);
  EXPECT_EQ(register_memory(worker, 1, good, 8192)["status"], INA_ERR_INVALID) << "taken";
  EXPECT_EQ(register_memory(worker, 64, good, 8192)["status"], INA_ERR_INVALID);
}

TEST(PeerMemory, MappingsAreABudgetAndRunningOutIsARefusal) {
  const TestSwitch sw(
      {.conductor = [](switchd::ConductorConfig& config) { config.mappings = 40; }});
  std::vector<std::unique_ptr<RawWorker>> workers;
  const Fd file = test::sealed_file(4096);
  workers.push_back(std::make_unique<RawWorker>(sw.socket_path(), "job", 0, 1));
  ASSERT_TRUE(workers[0]->hear_until("ready"));
  uint32_t taken = 0;
  Json answer;
  for (uint32_t number = 1; number < 64; ++number) {
    answer = register_memory(*workers[0], number, file, 4096);
    if (answer["status"] != INA_OK) break;
    ++taken;
  }
  EXPECT_THAT(answer["text"].get<std::string>(),
              HasSubstr("mappings, the switch has 20 for 'uid:"));
  EXPECT_GT(taken, 10u);
  const control::Connection other = connect(sw);
  EXPECT_THAT(join(other, "other")["text"].get<std::string>(), HasSubstr("mappings"));
  EXPECT_EQ(sw.status()["aggregator"]["mappings_used"], 20);
  // Mappings given back are free again.
  ASSERT_TRUE(workers[0]->control.send({{"type", "unregister"}, {"number", 1}}));
  EXPECT_EQ(register_memory(*workers[0], 1, file, 4096)["status"], INA_OK);
  workers.clear();
  EXPECT_TRUE(in_the_end([&] { return sw.status()["aggregator"]["mappings_used"] == 0; }));
}

/// The pages of a large file are its owner's, but the switch needs tables that lead to them.
TEST(PeerMemory, PageTablesAreChargedToWhomTheyServe) {
  constexpr uint64_t kFileBytes = uint64_t{64} << 20;
  constexpr uint64_t kTableBytes = kFileBytes / 512;
  const auto charged = [](const TestSwitch& sw) {
    return sw.status()["aggregator"]["memory_used_bytes"].get<uint64_t>();
  };
  const Fd file = test::sealed_file(kFileBytes);
  uint64_t job_bytes = 0;
  {
    const TestSwitch sw;
    RawWorker worker(sw.socket_path(), "job", 0, 1);
    ASSERT_TRUE(worker.hear_until("ready"));
    job_bytes = charged(sw);
  }
  const TestSwitch sw({.conductor = [&](switchd::ConductorConfig& config) {
    config.jobs.memory_bytes = job_bytes + 2 * kTableBytes;
  }});
  {
    RawWorker worker(sw.socket_path(), "job", 0, 1);
    ASSERT_TRUE(worker.hear_until("ready"));
    EXPECT_EQ(register_memory(worker, 1, file, kFileBytes)["status"], INA_OK);
    EXPECT_NE(register_memory(worker, 2, file, 2 * kFileBytes)["status"], INA_OK) << "no such file";
    EXPECT_EQ(charged(sw), job_bytes + kTableBytes);
    EXPECT_EQ(register_memory(worker, 2, file, kFileBytes)["status"], INA_OK);
    const Json refused = register_memory(worker, 3, file, kFileBytes);
    EXPECT_EQ(refused["status"], INA_ERR_REFUSED);
    EXPECT_THAT(refused["text"].get<std::string>(), HasSubstr("bytes of memory"));
    ASSERT_TRUE(worker.control.send({{"type", "unregister"}, {"number", 1}}));
    EXPECT_EQ(register_memory(worker, 3, file, kFileBytes)["status"], INA_OK);
    EXPECT_EQ(charged(sw), job_bytes + 2 * kTableBytes);
  }
  EXPECT_TRUE(in_the_end([&] { return charged(sw) == 0; }));
}

TEST(PeerMemory, DescriptorsAreABudgetToo) {
  const TestSwitch sw(
      {.conductor = [](switchd::ConductorConfig& config) { config.descriptors = 12; }});
  std::vector<std::unique_ptr<RawWorker>> workers;
  workers.push_back(std::make_unique<RawWorker>(sw.socket_path(), "a", 0, 1));
  workers.push_back(std::make_unique<RawWorker>(sw.socket_path(), "b", 0, 1));
  const control::Connection third = connect(sw);
  EXPECT_THAT(join(third, "c")["text"].get<std::string>(), HasSubstr("descriptors"));
  EXPECT_TRUE(workers[0]->hear_until("ready"));
  EXPECT_TRUE(workers[1]->hear_until("ready"));
}

/// How many of the workers' requests are answered when another worker's job runs. Each registers
/// memory that takes the switch long to map.
int registered_before_another_joins(const TestSwitch& sw,
                                    std::vector<std::unique_ptr<RawWorker>>& workers,
                                    const Fd& file, uint64_t bytes) {
  for (const auto& worker : workers)
    EXPECT_TRUE(worker->control.send({{"type", "register"}, {"number", 1}, {"bytes", bytes}},
                                     {file.get()}));
  RawWorker other(sw.socket_path(), "other", 0, 1);
  EXPECT_TRUE(other.hear_until("ready"));
  int answered = 0;
  for (const auto& worker : workers) {
    pollfd polled{worker->control.fd(), POLLIN, 0};
    answered += ::poll(&polled, 1, 0) > 0 ? 1 : 0;
  }
  for (const auto& worker : workers) {
    EXPECT_EQ(worker->hear()["status"], INA_OK);
    EXPECT_TRUE(worker->control.send({{"type", "unregister"}, {"number", 1}}));
  }
  return answered;
}

// The default window, under a policy by which jobs have all of it.
TEST(PeerMemory, AJoinDoesNotWaitForMemoryThatIsRegistered) {
  constexpr int kWorkers = 12;
  constexpr uint64_t kBytes = uint64_t{256} << 20;
  const TestSwitch sw({.conductor = [](switchd::ConductorConfig& config) {
    config.aggregator.policy.kind = scheduler::PolicyKind::kEsa;
  }});
  std::vector<std::unique_ptr<RawWorker>> workers;
  for (int rank = 0; rank < kWorkers; ++rank)
    workers.push_back(std::make_unique<RawWorker>(sw.socket_path(), "job", rank, kWorkers,
                                                  Json{{"window_bytes", 4096}}));
  for (const auto& worker : workers) ASSERT_TRUE(worker->hear_until("ready"));
  const Fd file = test::sealed_file(kBytes);
  // On a busy machine a join alone may take as long.
  int least = kWorkers;
  for (int i = 0; i < 5 && least > kWorkers / 2; ++i)
    least = std::min(least, registered_before_another_joins(sw, workers, file, kBytes));
  EXPECT_LE(least, kWorkers / 2);
}

// ---- memory that workers keep

TEST(HeldMemory, IsChargedUntilItIsGivenBack) {
  uint64_t bytes = 0;
  {
    const TestSwitch sw;
    const RawWorker worker(sw.socket_path(), "job", 0, 1);
    bytes = sw.status()["aggregator"]["memory_used_bytes"];
  }
  const TestSwitch sw({.conductor = [&](switchd::ConductorConfig& config) {
    config.jobs.memory_bytes = bytes + bytes / 2;
  }});
  auto keeper = std::make_unique<RawWorker>(sw.socket_path(), "job", 0, 1);
  ASSERT_TRUE(keeper->hear_until("ready"));
  ASSERT_TRUE(keeper->control.send({{"type", "abort"}}));
  ASSERT_TRUE(keeper->hear_until("abort"));
  keeper->control.close();  // its mappings stay
  const Json status = sw.status();
  EXPECT_TRUE(status["jobs"].empty());
  const auto held = status["aggregator"]["memory_held_bytes"].get<uint64_t>();
  EXPECT_GT(held, bytes / 2) << "most of it is what the worker sees";
  EXPECT_EQ(status["aggregator"]["memory_used_bytes"], held);
  ASSERT_EQ(status["tenants"].size(), 1u);
  EXPECT_EQ(status["tenants"][0]["memory_held_bytes"], held);
  {
    const control::Connection next = connect(sw);
    const std::string text = join(next, "next")["text"];
    EXPECT_THAT(text, HasSubstr("memory_held_bytes"));
  }
  keeper.reset();
  const control::Connection next = connect(sw);
  EXPECT_EQ(join(next, "next")["type"], "joined") << "looked at before it is refused";
  EXPECT_EQ(sw.status()["aggregator"]["memory_held_bytes"], 0);
}

TEST(HeldMemory, ResultBuffersAndPlacesThatWereLeftCountToo) {
  const TestSwitch sw;
  std::vector<std::unique_ptr<RawWorker>> workers;
  workers.push_back(std::make_unique<RawWorker>(sw.socket_path(), "job", 0, 1));
  RawWorker& worker = *workers[0];
  ASSERT_TRUE(worker.hear_until("ready"));
  const auto used = sw.status()["aggregator"]["memory_used_bytes"].get<uint64_t>();
  ASSERT_TRUE(worker.control.send({{"type", "share_results"}, {"bytes", 1 << 20}}));
  auto answer = worker.control.receive(kTimeoutNs);
  ASSERT_TRUE(answer && *answer);
  ASSERT_EQ((*answer)->fds.size(), 1u) << (*answer)->body;
  ASSERT_TRUE(worker.control.send({{"type", "free_results"}, {"first_unit", 0}}));
  ASSERT_TRUE(
      in_the_end([&] { return sw.status()["aggregator"]["memory_held_bytes"] == 1 << 20; }));
  EXPECT_EQ(sw.status()["aggregator"]["memory_used_bytes"], used + (1 << 20));
  (*answer)->fds.clear();
  EXPECT_EQ(sw.status()["aggregator"]["memory_used_bytes"], used);

  // A job that gathers, whose workers come and go and keep what they got.
  std::vector<std::unique_ptr<RawWorker>> left;
  const control::Connection stays = connect(sw);
  ASSERT_EQ(join(stays, "gathers", 2)["type"], "joined");
  for (int i = 0; i < 3; ++i) {
    left.push_back(std::make_unique<RawWorker>(sw.socket_path(), "gathers", 1, 2));
    // The job begins to gather again once its other worker has gone.
    left.back()->control.close();
    ASSERT_TRUE(in_the_end([&] {
      const Json jobs = sw.status()["jobs"];
      return jobs.size() == 2 && jobs[1]["missing"].size() == 2;
    }));
  }
  EXPECT_GT(sw.status()["aggregator"]["memory_held_bytes"], 0);
  left.clear();
  EXPECT_EQ(sw.status()["aggregator"]["memory_held_bytes"], 0);
}

// ---- result buffers

TEST(ResultBuffers, ImpossibleSizesAreRefusedAndTheJobGoesOn) {
  const TestSwitch sw;
  RawWorker worker(sw.socket_path(), "job", 0, 1);
  ASSERT_TRUE(worker.hear_until("ready"));
  for (const uint64_t bytes : {uint64_t{0}, ~uint64_t{0}, uint64_t{1} << 40}) {
    ASSERT_TRUE(worker.control.send({{"type", "share_results"}, {"bytes", bytes}}));
    const Json answer = worker.hear();
    EXPECT_EQ(answer["status"], INA_ERR_INVALID) << answer;
    EXPECT_THAT(answer["text"].get<std::string>(), HasSubstr("1 to 4294967040 bytes"));
  }
  ASSERT_TRUE(worker.control.send({{"type", "share_results"}, {"bytes", uint64_t{2} << 30}}));
  EXPECT_EQ(worker.hear()["status"], INA_ERR_REFUSED);
  ASSERT_TRUE(worker.control.send({{"type", "share_results"}, {"bytes", 4096}}));
  EXPECT_EQ(worker.hear()["status"], INA_OK);
}

TEST(ResultBuffers, SeveralAskedForAtOnceComeOneAfterTheOther) {
  const TestSwitch sw;
  RawWorker worker(sw.socket_path(), "job", 0, 1);
  ASSERT_TRUE(worker.hear_until("ready"));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(worker.control.send({{"type", "share_results"}, {"bytes", 4096}}));
    const Json answer = worker.hear();
    EXPECT_EQ(answer["status"], INA_OK) << answer;
    EXPECT_EQ(answer["first_unit"], 16 * i);
  }
  // The second is asked for while the first is made.
  constexpr int kBytes = 16 << 20;
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(worker.control.send({{"type", "share_results"}, {"bytes", kBytes}}));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(worker.hear()["first_unit"], 48 + i * (kBytes / 256));
}

TEST(ResultBuffers, TheTimeToMakeThemIsTheirUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "being another user takes root";
  constexpr uid_t kAlice = 12345, kBob = 12346;
  const test::TempDir folder;
  ::chmod((folder / "").c_str(), 0755);
  const TestSwitch sw({.conductor =
                           [](switchd::ConductorConfig& config) {
                             config.control.mode = 0666;
                             config.work = {.burst_ns = 200'000'000, .one_in = 1'000'000};
                           }},
                      folder / "");
  const auto connect_as = [&](uid_t uid) {
    control::Connection connection;
    test::as_user(uid, [&] { connection = connect(sw); });
    return connection;
  };
  const control::Connection alice = connect_as(kAlice);
  ASSERT_TRUE(alice.send({{"type", "join"},
                          {"version", control::kControlVersion},
                          {"job", "job"},
                          {"rank", 0},
                          {"world_size", 1},
                          {"transport", "shm"}}));
  auto joined = alice.receive(kTimeoutNs);
  ASSERT_TRUE(joined && *joined);
  client::BulkCopier copier{1, 1};
  auto heard = control::heard(std::move(**joined));
  ASSERT_TRUE(heard) << heard.error().text;
  const auto transport =
      membership::join_shm(std::get<control::answer::Joined>(heard->message).place, *heard, copier);
  ASSERT_TRUE(transport) << transport.error().text;
  ASSERT_TRUE(alice.send({{"type", "attach"}}, {(*transport)->region_fd()}));
  while (hear(alice)["type"] != "ready") {
  }
  bool waits = false;
  for (int i = 0; i < 100 && !waits; ++i) {
    ASSERT_TRUE(alice.send({{"type", "share_results"}, {"bytes", 64 << 20}}));
    const auto made = alice.receive(2'000'000'000);
    ASSERT_TRUE(made);
    waits = !*made;
    if (waits) break;
    ASSERT_EQ((*made)->body["status"], INA_OK) << (*made)->body;
    ASSERT_TRUE(alice.send({{"type", "free_results"}, {"first_unit", 0}}));
  }
  EXPECT_TRUE(waits) << "6 GiB were made at once";
  EXPECT_THAT(hear(connect_as(kAlice)).value("text", ""), HasSubstr("keeps the switch busier"));
  const control::Connection bob = connect_as(kBob);
  ASSERT_TRUE(bob.send({{"type", "explain"}}));
  EXPECT_EQ(hear(bob)["type"], "explain");
}

// A buffer made after the job's end is given back.
TEST(ResultBuffers, TheJobMayEndWhileOneIsMade) {
  const TestSwitch sw;
  for (int i = 0; i < 4; ++i) {
    RawWorker worker(sw.socket_path(), "job", 0, 1);
    ASSERT_TRUE(worker.hear_until("ready"));
    ASSERT_TRUE(worker.control.send({{"type", "share_results"}, {"bytes", 16 << 20}}));
    worker.control.close();
  }
  EXPECT_TRUE(in_the_end([&] {
    const Json status = sw.status();
    return status["jobs"].empty() && status["aggregator"]["memory_used_bytes"] == 0;
  }));
}

/// Result buffers that the switch, which is this process, has at the moment: bytes, by inode.
std::map<std::string, uint64_t> result_buffers() {
  std::map<std::string, uint64_t> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("ina-shared-results") == std::string::npos) continue;
    std::istringstream fields(line);
    std::string range, rest, inode;
    fields >> range >> rest >> rest >> rest >> inode;
    char* end = nullptr;
    const uint64_t begin = std::strtoull(range.c_str(), &end, 16);
    found[inode] += std::strtoull(end + 1, nullptr, 16) - begin;
  }
  return found;
}

// Jobs come and go faster than their buffers are made, and nobody is charged for those any more.
TEST(ResultBuffers, ThoseOfJobsThatHaveEndedDoNotPileUp) {
  constexpr uint64_t kBytes = uint64_t{128} << 20;
  constexpr int kJobs = 16;
  const TestSwitch sw;
  for (int i = 0; i < kJobs; ++i) {
    RawWorker worker(sw.socket_path(), "job-" + std::to_string(i), 0, 1);
    ASSERT_TRUE(worker.hear_until("ready"));
    ASSERT_TRUE(worker.control.send({{"type", "share_results"}, {"bytes", kBytes}}));
    worker.control.close();
  }
  RawWorker last(sw.socket_path(), "last", 0, 1);
  ASSERT_TRUE(last.hear_until("ready"));
  ASSERT_TRUE(last.control.send({{"type", "share_results"}, {"bytes", 4096}}));
  uint64_t most = 0;
  std::set<std::string> made;
  pollfd polled{last.control.fd(), POLLIN, 0};
  do {
    uint64_t sum = 0;
    for (const auto& [inode, bytes] : result_buffers()) {
      sum += bytes;
      made.insert(inode);
    }
    most = std::max(most, sum);
  } while (::poll(&polled, 1, 1) == 0);
  EXPECT_EQ(last.hear(20'000'000'000)["status"], INA_OK);
  EXPECT_LE(most, 4 * kBytes) << "given back before more is made";
  EXPECT_LE(made.size(), kJobs / 2u) << "most were not made at all";
}

}  // namespace
}  // namespace ina
