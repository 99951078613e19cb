// The turns of an owner's threads in the fallback server: how many work at once, and in which
// order.
#include "programs/psd/core_share.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace ina::psd {
namespace {

/// A thread that takes a turn, and holds it until it is told.
class Worker {
 public:
  explicit Worker(CoreShare& share)
      : thread_([this, &share] {
          const CoreShare::Turn turn(share);
          has_turn = true;
          while (!enough) ::usleep(100);
        }) {}
  ~Worker() {
    enough = true;
    thread_.join();
  }
  void await_turn() const {
    while (!has_turn) ::usleep(100);
  }
  std::atomic<bool> has_turn{false}, enough{false};

 private:
  std::thread thread_;
};

void await_waiting(const CoreShare& share, size_t count) {
  while (share.waiting() != count) ::usleep(100);
}

TEST(CoreShares, AnOwnerAloneHasAllCores) {
  CoreShares shares(2);
  const auto alice = shares.of("alice");
  const Worker first(*alice), second(*alice), third(*alice);
  first.await_turn();
  second.await_turn();
  third.await_turn();
}

TEST(CoreShares, WithOthersAnOwnerHasHalfOfThem) {
  CoreShares shares(4);
  const auto alice = shares.of("alice");
  std::optional<std::shared_ptr<CoreShare>> bob = shares.of("bob");
  EXPECT_EQ(shares.of("alice"), alice);
  Worker first(*alice);
  const Worker second(*alice);
  first.await_turn();
  second.await_turn();
  const Worker third(*alice);
  await_waiting(*alice, 1);
  EXPECT_FALSE(third.has_turn);
  const Worker other(**bob);
  other.await_turn();
  first.enough = true;
  third.await_turn();
}

TEST(CoreShares, OneCoreIsEnoughForAll) {
  CoreShares shares(1);
  const auto alice = shares.of("alice");
  const auto bob = shares.of("bob");
  const Worker one(*alice), other(*bob);
  one.await_turn();
  other.await_turn();
}

TEST(CoreShares, WhoeverIsLeftAloneHasAllCoresAgain) {
  CoreShares shares(2);
  const auto alice = shares.of("alice");
  auto bob = shares.of("bob");
  const Worker first(*alice);
  first.await_turn();
  const Worker second(*alice);
  await_waiting(*alice, 1);
  bob.reset();
  shares.look();
  second.await_turn();
}

TEST(CoreShare, TurnsAreInTheOrderOfThoseWhoWait) {
  CoreShare share;
  share.set_most(1);
  std::optional<Worker> first(share);
  first->await_turn();
  std::atomic<int> number{0};
  std::vector<std::thread> threads;
  std::vector<int> turns(8);
  for (size_t i = 0; i < turns.size(); ++i) {
    threads.emplace_back([&, i] {
      const CoreShare::Turn turn(share);
      turns[i] = number++;
    });
    await_waiting(share, i + 1);
  }
  first.reset();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(turns, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
}

}  // namespace
}  // namespace ina::psd
