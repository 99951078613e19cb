// The text about the process of a worker that a job waits for.
#include "switchd/peer_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ina::switchd {
namespace {

TEST(PeerProcess, StateIsThatOfTheKernelsText) {
  EXPECT_EQ(process_state("Name:\ta\nState:\tT (stopped)\nTgid:\t1\n"), "stopped");
  EXPECT_EQ(process_state("Name:\ta\nState:\tt (tracing stop)\n"), "stopped");
  EXPECT_EQ(process_state("Name:\ta\nState:\tZ (zombie)\n"), "ended");
  EXPECT_EQ(process_state("Name:\ta\nState:\tS (sleeping)\n"), "runs");
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

}  // namespace
}  // namespace ina::switchd
