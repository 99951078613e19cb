// Events of operations that reach their Schedules through an inbox: all, in order, and only if
// asked for.
#include "client/inbox.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

namespace ina::client {
namespace {

/// Notes what it is told.
class Schedule : public OperationListener {
 public:
  void received(Operation& operation) override { told.emplace_back(&operation, false); }
  void completed(Operation& operation) override {
    told.emplace_back(&operation, true);
    if (on_completed) on_completed();
  }
  std::vector<std::pair<Operation*, bool>> told;
  std::function<void()> on_completed;
};

TEST(Inbox, DeliversInOrderAndWhenAsked) {
  Inbox inbox;
  inbox.reserve(2);
  Schedule first;
  Schedule second;
  Operation one;
  Operation other;
  EXPECT_FALSE(inbox.has_mail());
  inbox.post(first, one, false);
  inbox.post(second, other, true);
  inbox.post(first, one, true);
  EXPECT_TRUE(inbox.has_mail());
  EXPECT_TRUE(first.told.empty());
  inbox.deliver();
  EXPECT_FALSE(inbox.has_mail());
  EXPECT_EQ(first.told, (std::vector<std::pair<Operation*, bool>>{{&one, false}, {&one, true}}));
  EXPECT_EQ(second.told, (std::vector<std::pair<Operation*, bool>>{{&other, true}}));
  inbox.deliver();
  EXPECT_EQ(first.told.size(), 2u) << "it is told once";
}

TEST(Inbox, DeliversWhatIsPostedMeanwhile) {
  Inbox inbox;
  inbox.reserve(2);
  Schedule first;
  Schedule second;
  Operation one;
  Operation next;
  first.on_completed = [&] { inbox.post(second, next, true); };
  inbox.post(first, one, true);
  inbox.deliver();
  EXPECT_EQ(second.told, (std::vector<std::pair<Operation*, bool>>{{&next, true}}));
  EXPECT_FALSE(inbox.has_mail());
}

TEST(Inbox, NothingIsLostBetweenThreads) {
  constexpr size_t kPosts = 20'000;
  Inbox inbox;
  inbox.reserve(kPosts);
  Schedule schedule;
  Operation operation;
  std::vector<std::thread> contexts;
  for (int i = 0; i < 2; ++i)
    contexts.emplace_back([&] {
      for (size_t post = 0; post < kPosts / 2; ++post) inbox.post(schedule, operation, true);
    });
  while (schedule.told.size() < kPosts / 4) inbox.deliver();
  for (std::thread& context : contexts) context.join();
  inbox.deliver();
  EXPECT_EQ(schedule.told.size(), kPosts);
}

}  // namespace
}  // namespace ina::client
