// The text about the process of a worker that a job waits for.
#include "switchd/reports/peer_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace ina::switchd {
namespace {

TEST(PeerProcess, StateIsThatOfTheKernelsText) {
  EXPECT_EQ(process_state("Name:\ta\nState:\tT (stopped)\nTgid:\t1\n"), "stopped");
  EXPECT_EQ(process_state("Name:\ta\nState:\tt (tracing stop)\n"), "stopped");
  EXPECT_EQ(process_state("Name:\ta\nState:\tZ (zombie)\n"), "ended");
  EXPECT_EQ(process_state("Name:\ta\nState:\tS (sleeping)\n"), "runs");
  EXPECT_EQ(process_state("Name:\ta\nState:\tD (disk sleep)\n"), "blocked");
  EXPECT_EQ(process_state("Name:\tState:\tT\n"), "") << "the name is the process's own";
  EXPECT_EQ(process_state("Name:\ta\nState:\t"), "");
  EXPECT_EQ(process_state(""), "");
}

TEST(PeerProcess, AStoppedProcessIsToldFromOneThatRuns) {
  control::PeerCredentials peer;
  peer.pid = ::getpid();
  EXPECT_EQ(process_state(peer), "runs");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0)
    for (;;) ::pause();
  peer.pid = child;
  ASSERT_EQ(::kill(child, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_EQ(process_state(peer), "stopped");
  peer.remote = true;
  EXPECT_EQ(process_state(peer), "") << "another host's process of that number";
  peer.remote = false;
  ::kill(child, SIGKILL);
  siginfo_t ended{};
  EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(process_state(peer), "ended");
  ::waitpid(child, &status, 0);
}

/// A folder with /proc and /sys of a process that is in the control groups `groups`.
class FrozenProcess : public testing::Test {
 protected:
  FrozenProcess() { peer_.pid = 4711; }
  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = root_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void set(const char* state, const char* groups) {
    write("proc/4711/status", std::string("Name:\ta\nState:\t") + state + "\n");
    write("proc/4711/cgroup", groups);
  }
  std::string state() { return process_state(peer_, root_ / ""); }

  test::TempDir root_;
  control::PeerCredentials peer_;
};

TEST_F(FrozenProcess, OfVersion2IsToldFromOneThatSleeps) {
  set("S (sleeping)", "0::/system.slice/train.service\n");
  const std::string events = "sys/fs/cgroup/system.slice/train.service/cgroup.events";
  write(events, "populated 1\nfrozen 0\n");
  EXPECT_EQ(state(), "runs");
  write(events, "populated 1\nfrozen 1\n");
  EXPECT_EQ(state(), "frozen");
  write("proc/4711/status", "Name:\ta\nState:\tT (stopped)\n");
  EXPECT_EQ(state(), "stopped") << "SIGCONT comes first";
}

TEST_F(FrozenProcess, OfVersion1IsToldFromOneThatWaitsForADisk) {
  set("D (disk sleep)", "9:name=systemd:/\n6:freezer:/jobs/a\n0::/\n");
  EXPECT_EQ(state(), "blocked");
  write("sys/fs/cgroup/freezer/jobs/a/freezer.state", "THAWED\n");
  EXPECT_EQ(state(), "blocked");
  write("sys/fs/cgroup/freezer/jobs/a/freezer.state", "FROZEN\n");
  EXPECT_EQ(state(), "frozen");
}

TEST_F(FrozenProcess, OfVersion2BesideVersion1) {
  set("S (sleeping)", "6:freezer:/\n0::/jobs\n");
  write("sys/fs/cgroup/unified/jobs/cgroup.events", "frozen 1\n");
  EXPECT_EQ(state(), "frozen");
}

}  // namespace
}  // namespace ina::switchd
