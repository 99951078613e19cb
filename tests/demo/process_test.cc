#include "examples/demo/process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "examples/demo/channel.h"

namespace ina::demo {
namespace {

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// Ends only by a signal.
int sleep_for_ever() {
  for (;;) ::pause();
}

TEST(Process, DestructorEndsAndReapsTheChild) {
  pid_t pid = 0;
  {
    const Process child = Process::fork("child", sleep_for_ever);
    pid = child.pid();
  }
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Process, DescribesHowItEnded) {
  Process status = Process::fork("worker 1", [] { return 3; });
  EXPECT_FALSE(status.failed());
  ASSERT_TRUE(status.wait(-1));
  EXPECT_TRUE(status.failed());
  EXPECT_TRUE(contains(status.describe(), "worker 1 (pid ")) << status.describe();
  EXPECT_TRUE(contains(status.describe(), ") ended with status 3")) << status.describe();

  Process killed = Process::fork("worker 2", sleep_for_ever);
  EXPECT_FALSE(killed.wait(0));
  ::kill(killed.pid(), SIGKILL);
  ASSERT_TRUE(killed.wait(-1));
  EXPECT_TRUE(contains(killed.describe(), "signal 9 (Killed)")) << killed.describe();

  Process good = Process::fork("worker 3", [] { return 0; });
  ASSERT_TRUE(good.wait(-1));
  EXPECT_FALSE(good.failed());
}

TEST(Process, SpawnedProgramLogsAndStopsBySigterm) {
  const TemporaryFolder folder;
  const std::string log = folder.path() + "/log";
  Process shell = Process::spawn("sh", {"/bin/sh", "-c", "echo one; echo two >&2; exit 4"}, log);
  ASSERT_TRUE(shell.wait(-1));
  EXPECT_TRUE(contains(shell.describe(), "ended with status 4"));
  EXPECT_EQ(last_lines(log, 5), "\n    one\n    two");
  EXPECT_EQ(last_lines(log, 1), "\n    two");

  Process sleeper = Process::spawn("sleep", {"/bin/sleep", "1000"}, log);
  sleeper.stop(10000);
  EXPECT_TRUE(contains(sleeper.describe(), "signal 15")) << sleeper.describe();
}

TEST(Process, MissingProgramIsNamedInTheLog) {
  const TemporaryFolder folder;
  const std::string log = folder.path() + "/log";
  Process missing = Process::spawn("it", {"/no/such/program"}, log);
  ASSERT_TRUE(missing.wait(-1));
  EXPECT_TRUE(missing.failed());
  EXPECT_TRUE(contains(last_lines(log, 1), "/no/such/program"));
}

TEST(TemporaryFolder, RemovesItselfWithItsContent) {
  std::string path;
  {
    const TemporaryFolder folder;
    path = folder.path();
    std::ofstream(path + "/file") << "content";
    ASSERT_TRUE(std::filesystem::exists(path + "/file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TerminationSignals, AreReadInsteadOfEndingTheProcessAndReachChildren) {
  const TerminationSignals signals;
  EXPECT_FALSE(signals.poll());
  ::raise(SIGINT);
  EXPECT_EQ(signals.poll(), SIGINT);
  EXPECT_FALSE(signals.poll());
  Process child = Process::fork("child", sleep_for_ever);
  ::kill(child.pid(), SIGTERM);
  EXPECT_TRUE(child.wait(10000));
}

TEST(Channel, CarriesMessagesOfAnySizeWhole) {
  auto [launcher, ours] = Channel::make_pair();
  Channel& worker = ours;
  const std::vector<std::byte> large(1'000'000, std::byte{5});
  Process child = Process::fork("child", [&] {
    worker.send(Kind::kEpoch, {});
    worker.send(Kind::kWeights, large);
    return 0;
  });
  worker.close();
  const ChannelMessage first = launcher.receive(), second = launcher.receive();
  EXPECT_EQ(first.kind, Kind::kEpoch);
  EXPECT_TRUE(first.body.empty());
  EXPECT_EQ(second.kind, Kind::kWeights);
  EXPECT_EQ(second.body, large);
  EXPECT_THROW(launcher.receive(), std::runtime_error);
}

TEST(Channel, PumpDoesNotBlockAndTellsTheEnd) {
  auto [launcher, worker] = Channel::make_pair();
  EXPECT_TRUE(launcher.pump());
  EXPECT_FALSE(launcher.next());
  worker.send(Kind::kError, {});
  EXPECT_TRUE(launcher.pump());
  ASSERT_TRUE(launcher.next());
  worker.close();
  EXPECT_FALSE(launcher.pump());
  EXPECT_THROW(launcher.send(Kind::kLeave, {}), std::system_error);
}

}  // namespace
}  // namespace ina::demo
