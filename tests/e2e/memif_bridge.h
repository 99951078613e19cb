// A switch and ina-memif, in processes of their own, and workers behind it, for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>

#include "common/clock.h"
#include "control/client.h"
#include "ina/ina.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace ina::test {

inline constexpr Nanos kSecondNs = 1'000'000'000;
inline constexpr Nanos kDeadlineNs = 20 * kSecondNs;
/// Others are told as soon as the kernel has closed the dead one's connection. Far below any
/// time-out of theirs, with room for a machine that does much else; kill_loop.py measures it.
inline constexpr Nanos kNoticeNs = 5 * kSecondNs;

inline bool full() {
  const char* wanted = std::getenv("INA_TEST_FULL");
  return wanted && std::string(wanted) == "1";
}

inline constexpr uid_t kBridgeUser = 64534;

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
  control::Json status() const {
    auto status = control::query_status(socket(), kDeadlineNs);
    EXPECT_TRUE(status) << "the switch does not answer: " << status.error().text;
    return status ? *status : control::Json();
  }
  uint64_t results() const {
    const control::Json now = status();
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
      const control::Json now = status();
      return std::ranges::any_of(now["jobs"], [&](const control::Json& known) {
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
    EXPECT_THAT(told.output(),
                testing::StartsWith("INA_ERR_PEER_LOST rank " + std::to_string(lost_rank)));
    EXPECT_LT(now_ns() - before, kNoticeNs);
    EXPECT_FALSE(switch_->ended()) << read("log");
  }

  /// In memif_bridge_users_test.cc.
  void expect_no_delay(
      const std::function<bool(const control::Connection&, const control::Json&)>& pass);

  static constexpr size_t kPlaces = 3 + 64;  ///< of a bridge for three workers

  TempDir dir_;
  std::string more_control_;
  std::optional<Process> switch_;
  std::optional<Process> bridge_;
};

}  // namespace ina::test
