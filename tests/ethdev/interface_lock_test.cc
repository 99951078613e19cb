#include "io/ethdev/interface_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace ina::io {
namespace {

using testing::HasSubstr;

/// In a network namespace of its own, where one may be made: others may use this machine's.
class InterfaceLockTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (::unshare(CLONE_NEWNET) != 0) ::unshare(CLONE_NEWUSER | CLONE_NEWNET);
  }
  /// What another process says.
  static std::string elsewhere(const auto& say) {
    int pipe[2];
    EXPECT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string text = say();
      (void)!::write(pipe[1], text.data(), text.size());
      ::_exit(0);
    }
    ::close(pipe[1]);
    std::string text(1000, '\0');
    const ssize_t bytes = ::read(pipe[0], text.data(), text.size());
    text.resize(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
    ::close(pipe[0]);
    ::waitpid(child, nullptr, 0);
    return text;
  }
  static std::string obstacle(InterfaceUse use) {
    return elsewhere([use] { return InterfaceLock::obstacle("lo", use); });
  }
  static std::string own_process() { return "process " + std::to_string(::getpid()); }
};

TEST_F(InterfaceLockTest, APortHasItForItself) {
  EXPECT_EQ(obstacle(InterfaceUse::kPort), "");
  const auto lock = InterfaceLock::take("lo", InterfaceUse::kPort);
  ASSERT_TRUE(lock);
  EXPECT_THAT(obstacle(InterfaceUse::kPort),
              HasSubstr("interface lo is used by a port of a switch of " + own_process()));
  EXPECT_THAT(obstacle(InterfaceUse::kWorker), HasSubstr(own_process()));
  for (const InterfaceUse use : {InterfaceUse::kPort, InterfaceUse::kWorker}) {
    const auto second = InterfaceLock::take("lo", use);
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().text, HasSubstr("of this process already"));
  }
}

TEST_F(InterfaceLockTest, ItGoesWithItsOwner) {
  { const auto lock = InterfaceLock::take("lo", InterfaceUse::kPort); }
  EXPECT_EQ(obstacle(InterfaceUse::kPort), "");
  EXPECT_TRUE(InterfaceLock::take("lo", InterfaceUse::kPort));
}

TEST_F(InterfaceLockTest, WorkersShareItWithEachOtherAlone) {
  std::vector<InterfaceLock> locks;
  for (int i = 0; i < 3; ++i) {
    auto lock = InterfaceLock::take("lo", InterfaceUse::kWorker);
    ASSERT_TRUE(lock);
    locks.push_back(std::move(*lock));
  }
  EXPECT_EQ(obstacle(InterfaceUse::kWorker), "");
  EXPECT_THAT(obstacle(InterfaceUse::kPort),
              HasSubstr("interface lo is used by a worker (dpdk:) of " + own_process()));
  EXPECT_FALSE(InterfaceLock::take("lo", InterfaceUse::kPort));
}

TEST_F(InterfaceLockTest, ManyWhoAskDoNotOpenIt) {
  const auto lock = InterfaceLock::take("lo", InterfaceUse::kPort);
  for (int i = 0; i < 6000; ++i) ASSERT_FALSE(InterfaceLock::take("lo", InterfaceUse::kPort)) << i;
}

TEST_F(InterfaceLockTest, AnInterfaceThatIsNotThereIsForOthersToTell) {
  EXPECT_EQ(InterfaceLock::obstacle("ina-none", InterfaceUse::kPort), "");
}

}  // namespace
}  // namespace ina::io
