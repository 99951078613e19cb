// Callbacks and descriptors of operations for which no thread waits, without a job.
#include "client/completions.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <vector>

namespace ina::client {
namespace {

/// Operations with a callback each, which notes what it was told.
class CompletionsTest : public testing::Test {
 protected:
  static void note(void* told, int status) {
    static_cast<std::vector<int>*>(told)->push_back(status);
  }
  void add(Operation& operation) { completions_.add(&operation, note, &told_); }
  /// Finishes with INA_OK what has ended.
  void run() {
    completions_.run(failed_, [this](Operation*, bool done) {
      return done ? static_cast<int>(INA_OK) : failed_.load();
    });
  }
  bool readable(int fd) {
    pollfd wait{fd, POLLIN, 0};
    return ::poll(&wait, 1, 0) == 1;
  }

  Completions completions_;
  std::atomic<int> failed_{INA_OK};
  std::vector<int> told_;
  Operation first_, second_;
};

TEST_F(CompletionsTest, ACallbackIsUnattendedUntilItIsCalled) {
  EXPECT_FALSE(completions_.unattended());
  add(first_);
  add(second_);
  EXPECT_TRUE(completions_.unattended());
  run();
  EXPECT_TRUE(told_.empty());
  second_.done = true;
  EXPECT_TRUE(completions_.announce());
  run();
  EXPECT_EQ(told_, std::vector<int>{INA_OK});
  EXPECT_TRUE(completions_.unattended());  // the first
  first_.done = true;
  completions_.announce();
  run();
  run();
  EXPECT_EQ(told_, std::vector<int>(2, INA_OK));
  EXPECT_FALSE(completions_.unattended());
  EXPECT_FALSE(completions_.announce());
}

TEST_F(CompletionsTest, OneThatEndedBeforeItsCallbackCameIsToldWithoutAnAnnouncement) {
  first_.done = true;
  add(first_);
  run();
  EXPECT_EQ(told_, std::vector<int>{INA_OK});
}

TEST_F(CompletionsTest, AllHearTheEndOfTheJob) {
  add(first_);
  add(second_);
  run();
  failed_ = INA_ERR_PEER_LOST;
  run();
  EXPECT_EQ(told_, std::vector<int>(2, INA_ERR_PEER_LOST));
}

TEST_F(CompletionsTest, GivingUpTellsWhatIsLeft) {
  add(first_);
  completions_.give_up(INA_ERR_ABORTED);
  completions_.give_up(INA_ERR_ABORTED);
  EXPECT_EQ(told_, std::vector<int>{INA_ERR_ABORTED});
  EXPECT_FALSE(completions_.unattended());
}

TEST_F(CompletionsTest, WhoeverAskedForTheDescriptorMayPollIt) {
  const Result<int> fd = completions_.fd();
  ASSERT_TRUE(fd);
  EXPECT_EQ(*completions_.fd(), *fd);
  EXPECT_TRUE(completions_.unattended());
  EXPECT_FALSE(readable(*fd));
  EXPECT_FALSE(completions_.announce());  // no callback
  EXPECT_TRUE(readable(*fd));
}

}  // namespace
}  // namespace ina::client
