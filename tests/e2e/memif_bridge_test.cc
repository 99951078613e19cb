// Workers on memif behind ina-memif, as their users and the operator meet them: real processes and
// DPDK. The switch goes on when any of the processes dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <sstream>
#include <thread>

#include "common/clock.h"
#include "control/client.h"
#include "ina/ina.h"
#include "tests/support/as_user.h"
#include "tests/support/evil_files.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace ina {
namespace {

using control::Json;
using test::Process;
using test::TempDir;
using testing::HasSubstr;
using testing::StartsWith;

constexpr Nanos kSecondNs = 1'000'000'000;
constexpr Nanos kDeadlineNs = 20 * kSecondNs;
/// Others are told as soon as the kernel has closed the dead one's connection. Far below any
/// time-out of theirs, with room for a machine that does much else; kill_loop.py measures it.
constexpr Nanos kNoticeNs = 5 * kSecondNs;

bool full() {
  const char* wanted = std::getenv("INA_TEST_FULL");
  return wanted && std::string(wanted) == "1";
}

constexpr uid_t kBridgeUser = 64534;

class MemifBridge : public testing::Test {
 protected:
  std::string read(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(dir_ / name).rdbuf();
    return text.str();
  }
  std::string socket() const { return dir_ / "switch.sock"; }
  std::string control() const { return dir_ / "control.sock"; }
  std::string shm_url() const { return "shm:" + socket(); }
  std::string memif_url(int id) const {
    return "memif:" + (dir_ / "memif.sock") + "?id=" + std::to_string(id) + "&ip=10.0.1." +
           std::to_string(id + 2) + "&mtu=2000&control=" + control();
  }

  /// `policy`: key and value. So few slots, unless each job has its own, that the fallback has
  /// work to do.
  void start_switch(const std::string& policy = "static", const std::string& home = "workers",
                    uint32_t slot_bytes = 1024) {
    const std::string file = dir_ / "switchd.yaml";
    std::ofstream(file)
        << "aggregator: {slots: " << (policy == "static" ? 1024 : 64)
        << ", slot_bytes: " << slot_bytes << ", policy: " << policy
        << "}\nstatic: {slots_per_job: 256}\nfallback: {home: " << home
        << "}\njobs: {window_bytes: 128KiB}\nswitch: {lcores: 2}\neal: {file_prefix: ina-e2e-"
        << ::getpid() << ", huge: no}\nlog: {file: " << (dir_ / "log")
        << "}\ncontrol: {socket: " << socket() << more_control_ << "}\n";
    switch_.emplace(std::vector<std::string>{INA_SWITCHD, "--config", file});
    const auto status = control::query_status(socket(), kDeadlineNs);
    ASSERT_TRUE(status) << status.error().text << "\n" << read("log");
  }
  void start_bridge(const std::string& options = "--workers 3", const std::string& as = "",
                    const control::Trust& trust = {}) {
    const std::string command = "exec " + as + INA_MEMIF + " --switch " + socket() + " --socket " +
                                control() + " --memif " + (dir_ / "memif.sock") + " " + options +
                                " 2>>" + (dir_ / "bridge.log");
    bridge_.emplace(std::vector<std::string>{"/bin/sh", "-c", command});
    // It answers for the switch.
    const auto status = control::query_status(control(), kDeadlineNs, "", trust);
    ASSERT_TRUE(status) << status.error().text << "\n" << read("bridge.log");
  }
  /// The bridge is a user's who lets all others join in its name.
  void start_for_everybody() {
    ASSERT_EQ(::chmod((dir_ / "").c_str(), 0777), 0);
    // The switch closes nothing that the bridge should.
    more_control_ = ", mode: 0666, join_timeout: 60 s";
    start_switch();
    start_bridge("--workers 3 --mode 0666", as(kBridgeUser), {.user = kBridgeUser});
  }
  static std::string as(uid_t uid) {
    return "/usr/bin/setpriv --clear-groups --reuid=" + std::to_string(uid) +
           " --regid=" + std::to_string(uid) + " ";
  }
  /// As somebody may who got hold of the socket although it is not theirs.
  void let_anybody_connect() const {
    EXPECT_EQ(::chmod((dir_ / "").c_str(), 0755), 0);
    EXPECT_EQ(::chmod(control().c_str(), 0777), 0);
  }
  Process worker(const std::string& url, const std::string& job, int rank, int world,
                 size_t elements, int times, int pause_ms = 0) {
    return Process({LOAD_WORKER, url, job, std::to_string(rank), std::to_string(world),
                    std::to_string(elements), std::to_string(times), std::to_string(pause_ms)});
  }
  Json status() const {
    auto status = control::query_status(socket(), kDeadlineNs);
    EXPECT_TRUE(status) << "the switch does not answer: " << status.error().text;
    return status ? *status : Json();
  }
  uint64_t results() const {
    const Json now = status();
    return now["aggregator"]["results"].get<uint64_t>() +
           now["aggregator"]["fallback_results"].get<uint64_t>();
  }
  /// False if it does not come true in time.
  template <class Holds>
  bool await(Holds holds) const {
    for (const Nanos deadline = now_ns() + kDeadlineNs; now_ns() < deadline; ::usleep(1000))
      if (holds()) return true;
    return false;
  }
  /// All its workers take part. A job that runs is too little: a worker that has not heard of it
  /// yet when its connection breaks joins a new job of that name once this one has ended.
  bool await_sums(const std::string& job) const {
    return await([&] {
      const Json now = status();
      return std::ranges::any_of(now["jobs"], [&](const Json& known) {
        return known["name"] == job && known["state"] == "running" &&
               known["results"].get<uint64_t>() + known["fallback_results"].get<uint64_t>() > 0;
      });
    });
  }
  bool await_results(uint64_t more) const {
    const uint64_t before = results();
    return await([&] { return results() >= before + more; });
  }
  /// Memif workers of interfaces 0 and 1 and one on shm end a job of `times` sums well.
  void expect_job(const std::string& job, size_t elements, int times) {
    std::vector<Process> workers;
    for (const int id : {0, 1})
      workers.push_back(worker(memif_url(id), job, id, 3, elements, times));
    workers.push_back(worker(shm_url(), job, 2, 3, elements, times));
    for (Process& one : workers) EXPECT_EQ(one.output(), "INA_OK \n") << read("bridge.log");
  }
  /// A job beside all else, whose sums must stay right.
  struct Bystanders {
    std::vector<Process> workers;
    void finish() {
      workers[0].kill(SIGTERM);
      for (Process& one : workers) EXPECT_EQ(one.output(), "INA_OK \n");
    }
  };
  Bystanders bystanders() {
    Bystanders two;
    for (const int rank : {0, 1})
      two.workers.push_back(worker(shm_url(), "bystander", rank, 2, 20'000, -1));
    EXPECT_TRUE(await_sums("bystander"));
    return two;
  }
  /// Checks the error of a job's shm worker when `kill` ends the other worker, on memif.
  template <class Kill>
  void expect_loss(Process& told, int lost_rank, Kill kill) {
    const Nanos before = now_ns();
    kill();
    EXPECT_THAT(told.output(), StartsWith("INA_ERR_PEER_LOST rank " + std::to_string(lost_rank)));
    EXPECT_LT(now_ns() - before, kNoticeNs);
    EXPECT_FALSE(switch_->ended()) << read("log");
  }

  void expect_no_delay(const std::function<bool(const control::Connection&, const Json&)>& pass);

  static constexpr size_t kPlaces = 3 + 64;  ///< of a bridge for three workers

  TempDir dir_;
  std::string more_control_;
  std::optional<Process> switch_;
  std::optional<Process> bridge_;
};

struct Rules {
  const char* policy;
  const char* home;
};

class MemifBridgePolicies : public MemifBridge, public testing::WithParamInterface<Rules> {};

TEST_P(MemifBridgePolicies, MixedJobsGetEverySumRight) {
  start_switch(GetParam().policy, GetParam().home);
  start_bridge();
  expect_job("mixed", 30'011, 40);
  EXPECT_TRUE(status()["jobs"].empty());
  const Json port = status()["ports"][0];
  EXPECT_GE(port["rx_bytes"], 3u * 40 * 30'011 * 4) << "all of it came by the shm port";
  if (GetParam().policy != std::string("static")) {
    EXPECT_GT(status()["aggregator"]["fallback_results"], 0) << "slots were not few";
  }
  bridge_->kill(SIGUSR1);
  EXPECT_TRUE(await([&] {
    return read("bridge.log").find("interface=\"1\" rx_") != std::string::npos;
  })) << read("bridge.log");
  bridge_->kill(SIGTERM);
  EXPECT_EQ(bridge_->wait(), 0) << read("bridge.log");
  for (const char* name : {"control.sock", "memif.sock"}) {
    struct stat left {};
    EXPECT_NE(::stat((dir_ / name).c_str(), &left), 0) << name << " is left behind";
  }
}

INSTANTIATE_TEST_SUITE_P(All, MemifBridgePolicies,
                         testing::Values(Rules{"static", "workers"}, Rules{"fcfs", "workers"},
                                         Rules{"fcfs", "spill"}, Rules{"esa", "workers"},
                                         Rules{"esa", "spill"}),
                         [](const auto& test) {
                           return std::string(test.param.policy) + "_" + test.param.home;
                         });

/// `urls`: of the ranks. The counts are those of tests/net/wire_test.py.
void expect_every_collective(const std::vector<std::string>& urls, const std::string& job,
                             const std::vector<std::string>& more, const std::string& done) {
  std::vector<Process> workers;
  for (size_t rank = 0; rank < urls.size(); ++rank) {
    std::vector<std::string> command = {GRID_WORKER, urls[rank], job, std::to_string(rank),
                                        std::to_string(urls.size())};
    command.insert(command.end(), more.begin(), more.end());
    workers.emplace_back(command);
  }
  for (Process& one : workers) EXPECT_EQ(one.output(), done) << job;
}

TEST_F(MemifBridge, EveryCollectiveByEveryTypeAndOperation) {
  start_switch("esa", "spill");
  start_bridge();
  const std::vector<std::string> two = {memif_url(0), memif_url(1)};
  const std::vector<std::string> three = {memif_url(0), shm_url(), memif_url(1)};
  expect_every_collective(two, "two", {}, "ok 2629\n");
  expect_every_collective(three, "three", {}, "ok 2629\n");
  expect_every_collective(two, "two-uneven", {"uneven"}, "ok 1828\n");
  expect_every_collective(three, "three-uneven", {"uneven"}, "ok 1828\n");
  EXPECT_TRUE(status()["jobs"].empty());
}

TEST_F(MemifBridge, WorkersThatAreKilledUnderLoadHarmNobodyElse) {
  const int kills = full() ? 300 : 25;
  start_switch("esa");
  start_bridge();
  Bystanders others = bystanders();
  std::mt19937 random(2026);
  int crashes = 0;
  for (int i = 0; i < kills; ++i) {
    const std::string job = "victim-" + std::to_string(i);
    Process doomed = worker(memif_url(i % 3), job, 0, 2, 60'000, -1);
    Process peer = worker(shm_url(), job, 1, 2, 60'000, -1);
    ASSERT_TRUE(await_sums(job)) << read("bridge.log");
    ::usleep(static_cast<useconds_t>(random() % 20'000));
    expect_loss(peer, 0, [&] { doomed.kill(SIGKILL); });
    EXPECT_EQ(doomed.wait(), -SIGKILL);
    if (!bridge_->ended()) continue;
    ++crashes;
    bridge_->wait();
    start_bridge();
  }
  EXPECT_TRUE(await_results(100));
  others.finish();
  EXPECT_FALSE(switch_->ended());
  EXPECT_TRUE(await([&] { return status()["jobs"].empty(); }));
  EXPECT_EQ(status()["aggregator"]["slots_used"], 0);
  RecordProperty("bridge_crashes", crashes);
}

/// The driver aborts its process when a connection ends before it has said hello (DPDK 22.11).
TEST_F(MemifBridge, ADriverThatCrashesTakesItsProcessAlone) {
  start_switch("esa");
  start_bridge();
  Bystanders others = bystanders();
  const auto crash = [&] {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (dir_ / "memif.sock").c_str(), sizeof(address.sun_path) - 1);
    for (const Nanos deadline = now_ns() + kDeadlineNs; now_ns() < deadline && !bridge_->ended();) {
      const Fd peer(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      (void)::connect(peer.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    }
  };
  for (int i = 0; i < 3; ++i) {
    const std::string job = "job-" + std::to_string(i);
    ::setenv("INA_REJOIN_TIMEOUT_US", "300000", 1);
    Process remote = worker(memif_url(0), job, 0, 2, 60'000, -1);
    ::unsetenv("INA_REJOIN_TIMEOUT_US");
    Process local = worker(shm_url(), job, 1, 2, 60'000, -1);
    ASSERT_TRUE(await_sums(job));
    crash();
    ASSERT_TRUE(bridge_->ended()) << "the driver does not crash any more: nothing was tested";
    EXPECT_THAT(local.output(), StartsWith("INA_ERR_PEER_LOST rank 0"));
    EXPECT_THAT(remote.output(), StartsWith("INA_ERR_SWITCH_LOST"));
    EXPECT_EQ(bridge_->wait(), -SIGABRT);
    EXPECT_FALSE(switch_->ended());
    start_bridge();
  }
  expect_job("after", 20'000, 5);
  others.finish();
  EXPECT_FALSE(switch_->ended());
}

TEST_F(MemifBridge, ABridgeThatIsKilledIsALostPeerAndANewOneServesNewJobs) {
  start_switch();
  start_bridge();
  Bystanders others = bystanders();
  for (const int signal : {SIGKILL, SIGSEGV, SIGTERM}) {
    const std::string job = "job-" + std::to_string(signal);
    Process remote = worker(memif_url(0), job, 0, 2, 60'000, -1);
    Process local = worker(shm_url(), job, 1, 2, 60'000, -1);
    ASSERT_TRUE(await_sums(job));
    expect_loss(local, 0, [&] { bridge_->kill(signal); });
    EXPECT_EQ(bridge_->wait(), signal == SIGTERM ? 0 : -signal);
    start_bridge();
    // It comes back to a job that has ended, and says so; it does not wait for ever.
    EXPECT_THAT(remote.output(), StartsWith("INA_ERR_SWITCH_LOST"));
    expect_job("after-" + std::to_string(signal), 20'000, 5);
  }
  others.finish();
  EXPECT_FALSE(switch_->ended());
}

TEST_F(MemifBridge, RestartsOfTheSwitchGoUnnoticed) {
  start_switch("esa");
  start_bridge();
  std::vector<Process> workers;
  for (const int id : {0, 1}) workers.push_back(worker(memif_url(id), "mixed", id, 3, 30'011, -1));
  workers.push_back(worker(shm_url(), "mixed", 2, 3, 30'011, -1));
  std::mt19937 random(2026);
  for (int restart = 0; restart < (full() ? 40 : 6); ++restart) {
    ASSERT_TRUE(await_sums("mixed")) << "restart " << restart << "\n" << read("bridge.log");
    ASSERT_TRUE(await_results(200)) << "restart " << restart;
    ::usleep(static_cast<useconds_t>(random() % 20'000));
    const int signal = restart % 2 == 0 ? SIGKILL : SIGTERM;
    switch_->kill(signal);
    EXPECT_EQ(switch_->wait(), signal == SIGKILL ? -SIGKILL : 0);
    start_switch("esa");
  }
  ASSERT_TRUE(await_sums("mixed"));
  workers[0].kill(SIGTERM);
  for (Process& one : workers) EXPECT_EQ(one.output(), "INA_OK \n") << read("bridge.log");
  EXPECT_FALSE(bridge_->ended()) << "it is the same bridge";
  EXPECT_TRUE(status()["jobs"].empty());
}

/// ina_alloc_result() on all ranks, one of which cannot have the switch write into it.
TEST_F(MemifBridge, ResultBuffersAreOrdinaryMemoryInAMixedJob) {
  start_switch();
  start_bridge();
  const auto run = [](const std::string& url, int rank) {
    ina_config config;
    ina_config_init(&config);
    config.url = url.c_str();
    config.job = "buffers";
    config.rank = rank;
    config.world_size = 2;
    config.timeout_us = 20'000'000;
    ina_context* context = nullptr;
    ASSERT_EQ(ina_init(&config, &context), INA_OK) << ina_last_error(nullptr);
    constexpr size_t kElements = 50'000;
    void* send = nullptr;
    void* recv = nullptr;
    ASSERT_EQ(ina_alloc(context, kElements * 4, &send), INA_OK) << ina_last_error(context);
    ASSERT_EQ(ina_alloc_result(context, kElements * 4, &recv), INA_OK) << ina_last_error(context);
    for (int times = 0; times < 5; ++times) {
      for (size_t i = 0; i < kElements; ++i)
        static_cast<int32_t*>(send)[i] = static_cast<int32_t>(i) * (rank + 1) + times;
      ASSERT_EQ(ina_allreduce(context, send, recv, kElements, INA_INT32, INA_SUM, 0), INA_OK)
          << ina_last_error(context);
      for (size_t i = 0; i < kElements; ++i)
        ASSERT_EQ(static_cast<const int32_t*>(recv)[i], static_cast<int32_t>(i) * 3 + 2 * times);
    }
    EXPECT_EQ(ina_finalize(context, 0), INA_OK);
  };
  std::thread remote(run, memif_url(0), 0);
  run(shm_url(), 1);
  remote.join();
}

/// DPDK has 32 ports, and the memory asked of it must suffice.
TEST_F(MemifBridge, ManyInterfacesShareOneSocket) {
  start_switch();
  start_bridge("--workers 32 --mtu 16000");
  Process first = worker(memif_url(0), "job", 0, 2, 20'000, 3);
  Process last = worker(memif_url(31), "job", 1, 2, 20'000, 3);
  EXPECT_EQ(first.output(), "INA_OK \n") << read("bridge.log");
  EXPECT_EQ(last.output(), "INA_OK \n");
}

TEST_F(MemifBridge, ErrorsSayWhatToDo) {
  start_switch("static", "workers", 2048);
  start_bridge("--mtu 2100");
  Process small = worker(memif_url(0), "job", 0, 1, 10, 1);
  EXPECT_THAT(small.output(), HasSubstr("ina-memif's --mtu must be 2148, it is 2100"));
  bridge_->kill(SIGTERM);
  bridge_->wait();
  start_bridge();
  Process wide(
      {LOAD_WORKER,
       "memif:" + (dir_ / "memif.sock") + "?id=0&ip=10.0.1.2&mtu=9000&control=" + control(),
       "first", "0", "1", "10", "-1", "100"});
  ASSERT_TRUE(await_sums("first"));
  // Another client of the same memif interface does not get as far; this one skips memif.
  Json join = {{"type", "join"},
               {"version", control::kControlVersion},
               {"job", "second"},
               {"rank", 0},
               {"world_size", 1},
               {"transport", "frame"},
               {"address", {{"mac", {2, 0, 0, 0, 0, 1}}, {"ip", 0x0a000002}, {"udp_port", 9000}}}};
  const auto refusal = [&] {
    auto connection = control::Connection::open(control(), kSecondNs);
    EXPECT_TRUE(connection && connection->send(join));
    const auto answer = connection->receive(kDeadlineNs);
    return answer && *answer ? (*answer)->body.value("text", std::string()) : "";
  };
  EXPECT_THAT(refusal(), HasSubstr("memif interface 0 of ina-memif has a worker already"));
  join["job"] = "third";
  join["interface"] = 3;
  EXPECT_THAT(refusal(), HasSubstr("ina-memif has no memif interface 3: its --workers is 3"));
  wide.kill(SIGTERM);
  EXPECT_EQ(wide.output(), "INA_OK \n");

  const auto said = [&](const std::string& options) {
    Process failed({"/bin/sh", "-c", std::string(INA_MEMIF) + " " + options + " 2>&1"});
    const std::string text = failed.output();
    EXPECT_NE(failed.wait(), 0) << text;
    return text;
  };
  EXPECT_THAT(said("--memif /tmp/a,b"), HasSubstr("no comma"));
  EXPECT_THAT(said("--mode 0x"), HasSubstr("octal"));
  EXPECT_THAT(said("--ip 10.0.0"), HasSubstr("not an IPv4 address"));
  if (::geteuid() == 0) {
    EXPECT_THAT(said("--mode 0666"), HasSubstr("run ina-memif as another user"));
  }
  EXPECT_THAT(said("--socket " + control() + " --memif " + (dir_ / "other.sock")),
              HasSubstr("already listens on"));
}

/// A stranger passes descriptors to the bridge, which are slow to close. The bridge answers it and
/// others at once, and jobs go on. `pass`: sends a message with one; false: it cannot.
void MemifBridge::expect_no_delay(
    const std::function<bool(const control::Connection&, const Json&)>& pass) {
  for (const char* type : {"explain", "join", "attach", "register", "status", "nonsense"}) {
    SCOPED_TRACE(type);
    auto connection = control::Connection::open(control(), kDeadlineNs);
    ASSERT_TRUE(connection) << connection.error().text;
    const Nanos begun = now_ns();
    ASSERT_TRUE(pass(*connection, {{"type", type}, {"number", 1}, {"bytes", 4096}}));
    const auto answer = connection->receive(kDeadlineNs);
    ASSERT_TRUE(answer && *answer) << (answer ? "nothing" : answer.error().text);
    EXPECT_THAT((*answer)->body.value("text", ""), HasSubstr("takes no descriptors"));
    EXPECT_TRUE(control::query_status(control(), kDeadlineNs));
    EXPECT_LT(now_ns() - begun, kNoticeNs);
  }
  // The first message has the connection closed; the others are still in it then.
  auto connection = control::Connection::open(control(), kDeadlineNs);
  ASSERT_TRUE(connection) << connection.error().text;
  const Nanos begun = now_ns();
  for (int i = 0; i < 3; ++i) (void)pass(*connection, {{"type", "explain"}});
  connection->close();
  EXPECT_TRUE(control::query_status(control(), kDeadlineNs));
  EXPECT_LT(now_ns() - begun, kNoticeNs);
  expect_job("goes-on", 1'000, 10);
}

TEST_F(MemifBridge, SocketsThatLingerWhenTheyAreClosedHoldNobodyUp) {
  start_switch();
  start_bridge();
  std::deque<test::LingeringSocket> sockets;
  expect_no_delay([&](const control::Connection& connection, const Json& message) {
    test::LingeringSocket& socket = sockets.emplace_back();
    const bool sent = connection.send(message, {socket.fd()}).has_value();
    socket.let_go();
    return sent;
  });
}

TEST_F(MemifBridge, ServesItsOwnUserAndRootAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  start_switch();
  start_bridge();
  for (const char* name : {"control.sock", "memif.sock"}) {
    struct stat status {};
    ASSERT_EQ(::stat((dir_ / name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0077, 0u) << name;
  }
  let_anybody_connect();
  Process stranger({"/bin/sh", "-c",
                    std::string("exec setpriv --reuid=65534 --clear-groups ") + INACTL +
                        " status --socket " + control() + " 2>&1"});
  EXPECT_THAT(stranger.output(), HasSubstr("serves its own user (uid 0) and root, not uid 65534"));
}

// The bridge's thread carries packets. A user who floods it with questions has a share of its time,
// and gets no other by coming back; others find it as before.
TEST_F(MemifBridge, AUserHasAShareOfItsTime) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  start_switch();
  start_bridge();
  let_anybody_connect();
  std::string answer;
  test::as_user(65534, [&] {
    for (const Nanos deadline = now_ns() + kDeadlineNs; now_ns() < deadline;) {
      const auto connection = control::Connection::open(control(), 0);
      if (!connection) continue;
      // Refused, each of them, since it is not the bridge's user.
      for (int i = 0; i < 256 && connection->send({{"type", "status"}}); ++i) {
      }
      const auto heard = connection->receive(kSecondNs);
      if (!heard || !*heard) continue;
      answer = (*heard)->body.value("text", "");
      if (answer.find("busier") != std::string::npos) return;
    }
  });
  EXPECT_THAT(answer, HasSubstr("this user keeps ina-memif busier than it may"));
  EXPECT_TRUE(control::query_status(control(), kDeadlineNs)) << "root is another user";
  expect_job("goes-on", 1'000, 10);
}

/// A connection that the bridge has taken in: for a while it refuses those of a busy user.
control::Connection taken_in(const std::string& socket) {
  for (const Nanos deadline = now_ns() + kDeadlineNs; now_ns() < deadline; ::usleep(1000)) {
    auto connection = control::Connection::open(socket, kSecondNs);
    if (!connection || !connection->send({{"type", "nonsense"}})) continue;
    const auto answer = connection->receive(kSecondNs);
    if (answer && *answer && !(*answer)->body.value("retry", false)) return std::move(*connection);
  }
  ADD_FAILURE() << "the bridge takes in no connection";
  return {};
}

/// Connections of one user who is not the bridge's. All that they say is refused, and takes time.
class Crowd {
 public:
  explicit Crowd(const std::string& socket) {
    test::as_user(65534, [&] {
      for (int i = 0; i < kConnections; ++i) connections_.push_back(taken_in(socket));
    });
  }
  /// Each says as much as the bridge hears of one connection in a turn.
  void ask() {
    const Json message = {{"type", "status"}, {"padding", std::vector<int>(7'500)}};
    for (const auto& connection : connections_)
      for (int i = 0; i < kMessages; ++i) EXPECT_TRUE(connection.send(message));
  }
  /// How many of the connections have an answer.
  int answered() const {
    int count = 0;
    for (const auto& connection : connections_) {
      pollfd polled{connection.fd(), POLLIN, 0};
      count += ::poll(&polled, 1, 0) > 0 ? 1 : 0;
    }
    return count;
  }
  void take_answers() {
    for (const auto& connection : connections_)
      for (int i = 0; i < kMessages; ++i) {
        const auto answer = connection.receive(kDeadlineNs);
        ASSERT_TRUE(answer && *answer) << "a question without an answer";
      }
  }

  static constexpr int kConnections = 12, kMessages = 4;

 private:
  std::vector<control::Connection> connections_;
};

/// Connections of a user, at most `most` and as many as the bridge lets it have. None ever gets a
/// worker, and each has asked a question.
std::vector<control::Connection> hold(const std::string& socket, uid_t uid, size_t most) {
  std::vector<control::Connection> held;
  test::as_user(uid, [&] {
    for (const Nanos deadline = now_ns() + kDeadlineNs;
         now_ns() < deadline && held.size() < most;) {
      auto connection = control::Connection::open(socket, kSecondNs, {.user = kBridgeUser});
      if (!connection) continue;
      (void)connection->send({{"type", "explain"}});
      const auto answer = connection->receive(kSecondNs);
      if (!answer || !*answer) continue;
      if ((*answer)->body["type"] == "explain")
        held.push_back(std::move(*connection));
      else if ((*answer)->body.value("text", "").find("already") != std::string::npos)
        return;
    }
  });
  return held;
}

/// How many of the connections the bridge has closed for others' sake. It says so.
size_t given_up(const std::vector<control::Connection>& connections) {
  return static_cast<size_t>(std::ranges::count_if(connections, [](const auto& connection) {
    const auto last = connection.receive(0);
    if (!last || !*last) return false;
    EXPECT_THAT((*last)->body.value("text", ""), HasSubstr("needs the place"));
    EXPECT_TRUE((*last)->body.value("retry", false)) << (*last)->body;
    return true;
  }));
}

// Another user's worker finds a place, whether one user has all the connections that it may have or
// two have all there are.
TEST_F(MemifBridge, UsersWhoHoldConnectionsKeepNobodyOut) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  ASSERT_NO_FATAL_FAILURE(start_for_everybody());
  const auto expect_worker = [&](const std::string& job) {
    Process one({"/bin/sh", "-c",
                 "exec env INA_SWITCH_USER=" + std::to_string(kBridgeUser) + " " + as(65532) +
                     LOAD_WORKER + " '" + memif_url(0) + "' " + job + " 0 1 1000 3"});
    EXPECT_EQ(one.output(), "INA_OK \n") << read("bridge.log");
  };
  const auto first = hold(control(), 65534, kPlaces);
  EXPECT_EQ(first.size(), kPlaces / 2);
  expect_worker("beside-one");
  const auto second = hold(control(), 65533, kPlaces);
  EXPECT_EQ(second.size(), kPlaces / 2);
  const auto third = hold(control(), 65531, 1);
  expect_worker("beside-all");
  EXPECT_GE(given_up(first) + given_up(second), 1u);
  // Questions keep no place for long.
  EXPECT_TRUE(await([&] {
    return std::ranges::all_of(first, [](const auto& one) { return one.peer_has_closed(); });
  }));
}

/// How many connections of the crowd are served before root's, which is the last of the same turn:
/// all are ready when the bridge, which is stopped, goes on.
int served_in_a_turn(const Process& bridge, Crowd& crowd, const control::Connection& root) {
  bridge.kill(SIGSTOP);
  siginfo_t stopped{};
  EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(bridge.pid()), &stopped, WSTOPPED), 0);
  crowd.ask();
  EXPECT_TRUE(root.send({{"type", "nonsense"}}));
  bridge.kill(SIGCONT);
  const auto answer = root.receive(kDeadlineNs);
  EXPECT_TRUE(answer && *answer);
  return crowd.answered();
}

// A user cannot multiply its burst by its connections: once the share is used up, within a turn,
// the others of its connections wait. They are served in the end.
TEST_F(MemifBridge, ConnectionsOfAUserWhoseShareIsUsedUpWaitForTheNextTurn) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  start_switch();
  start_bridge();
  let_anybody_connect();
  Crowd crowd(control());
  const control::Connection root = taken_in(control());
  // Where the machine is busy, a turn can take so long that debts are paid within it. Without the
  // limit it is none or all, each time.
  std::vector<int> served;
  const auto some = [](int count) { return count > 0 && count <= Crowd::kConnections / 2; };
  while (served.size() < 20 && std::ranges::none_of(served, some)) {
    ::usleep(400'000);  // the user owes nothing any more
    served.push_back(served_in_a_turn(*bridge_, crowd, root));
    ASSERT_NO_FATAL_FAILURE(crowd.take_answers());
  }
  EXPECT_THAT(served, testing::Contains(testing::ResultOf(some, true)));
}

}  // namespace
}  // namespace ina
