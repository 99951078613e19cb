// The thread that drives an engine and those that sleep, over a transport under the test's control.
#include "client/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <thread>
#include <vector>

#include "common/clock.h"

namespace ina::client {
namespace {

constexpr Nanos kLongNs = 20'000'000'000;
constexpr uint64_t kElements = 16;

/// The only worker's way to a switch that answers once it may.
class HeldTransport final : public Transport {
 public:
  size_t tx_burst(std::span<const TxPacket> packets) override {
    const std::lock_guard lock(mutex_);
    for (const TxPacket& packet : packets) {
      Result& result = results_.emplace_back();
      result.message = packet.message;
      result.message.type = wire::Type::kResult;
      result.payload.resize(packet.message.elements);
      std::copy_n(reinterpret_cast<const float*>(packet.payload), result.payload.size(),
                  result.payload.begin());
    }
    return packets.size();
  }
  size_t rx_burst(std::span<RxPacket> packets) override {
    const std::lock_guard lock(mutex_);
    if (!may_answer_ || results_.empty()) {
      stray_ = false;
      return 0;
    }
    taken_ = std::move(results_.front());
    results_.pop_front();
    packets[0] = {taken_.message, reinterpret_cast<const std::byte*>(taken_.payload.data()),
                  static_cast<uint32_t>(taken_.payload.size() * sizeof(float))};
    return 1;
  }
  void rx_release() override {}
  void wait(Nanos timeout_ns) override {
    std::unique_lock lock(mutex_);
    ++asleep_;
    most_asleep_ = std::max(most_asleep_, asleep_);
    changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                      [&] { return woken_ || (may_answer_ && !results_.empty()); });
    woken_ = false;
    --asleep_;
  }
  void wake() override {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    ++wakes_;
    changed_.notify_all();
  }
  bool set_idle(bool idle) override {
    const std::lock_guard lock(mutex_);
    idle_ = idle;
    return idle && (stray_ || (may_answer_ && !results_.empty()));
  }
  TransportCounters counters() const override { return {}; }

  void answer(bool may = true) {
    const std::lock_guard lock(mutex_);
    may_answer_ = may;
    changed_.notify_all();
  }
  /// Something that nobody waits for; it comes after all answers.
  void bring_stray() {
    const std::lock_guard lock(mutex_);
    stray_ = true;
  }
  bool has_stray() {
    const std::lock_guard lock(mutex_);
    return stray_;
  }
  int asleep() {
    const std::lock_guard lock(mutex_);
    return asleep_;
  }
  int most_asleep() {
    const std::lock_guard lock(mutex_);
    return most_asleep_;
  }
  int wakes() {
    const std::lock_guard lock(mutex_);
    return wakes_;
  }
  bool idle() {
    const std::lock_guard lock(mutex_);
    return idle_;
  }
  size_t sent() {
    const std::lock_guard lock(mutex_);
    return results_.size();
  }

 private:
  struct Result {
    wire::Message message;
    std::vector<float> payload;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Result> results_;
  Result taken_;
  bool may_answer_ = false;
  bool stray_ = false;
  bool woken_ = false;
  bool idle_ = false;
  int wakes_ = 0;
  int asleep_ = 0;
  int most_asleep_ = 0;
};

class ProgressTest : public testing::Test {
 protected:
  ProgressTest() {
    link_.make_engine(config());
    auto transport = std::make_unique<HeldTransport>();
    transport_ = transport.get();
    link_.connect(std::move(transport));
    progress_.go_live();
  }

  static Settings settings() {
    Settings settings;
    settings.timeout_ns = kLongNs;
    settings.idle = IdleMode::kInterrupt;  // an idle thread sleeps at once
    return settings;
  }
  static EngineConfig config() {
    EngineConfig config;
    config.window = 8;
    config.slot_bytes = 256;
    config.rules.rto_min_ns = config.rules.rto_max_ns = 10 * kLongNs;  // nothing gets lost
    return config;
  }
  /// An operation of one fragment.
  Operation* start() {
    const auto lock = progress_.lock();
    auto* const bytes = reinterpret_cast<std::byte*>(data_.data());
    Operation* const operation = operations_.submit(
        {bytes, bytes, kElements, DType::kFloat32, Op::kSum, Collective::kAllReduce}, {}, now_ns());
    progress_.send();
    return operation;
  }
  /// Has a callback add the operation's status to `told`.
  void call_back(Operation* operation, std::vector<int>& told) {
    progress_.completions().add(
        operation,
        [](void* argument, int status) {
          static_cast<std::vector<int>*>(argument)->push_back(status);
        },
        &told);
  }
  Progress::Waited wait(Operation* operation) {
    return progress_.wait(operation, now_ns() + kLongNs);
  }
  void set_away(bool away) {
    {
      const auto lock = progress_.lock();
      const auto state = callers_.lock();
      if (away)
        progress_.presence().go_away(now_ns());
      else
        progress_.presence().come_back();
    }
    callers_.wake();
  }
  template <class Is>
  static void wait_until(Is is) {
    while (!is()) std::this_thread::yield();
  }

  const Settings settings_ = settings();
  Session session_{settings_};
  Link link_{1, 1};
  HeldTransport* transport_ = nullptr;
  Operations operations_{settings_, link_};
  membership::Callers callers_;
  int turns_ = 0;
  Progress progress_{settings_.idle, session_, link_, operations_, callers_, [this] { ++turns_; }};
  std::vector<float> data_ = std::vector<float>(kElements, 2.0f);
};

TEST_F(ProgressTest, WhoeverWaitsDrivesUntilItsOperationIsDone) {
  Operation* const operation = start();
  EXPECT_EQ(transport_->sent(), 1u);
  Progress::Waited waited{};
  std::thread caller([&] { waited = wait(operation); });
  wait_until([&] { return transport_->asleep() == 1; });
  EXPECT_FALSE(progress_.needs_driver()) << "somebody drives";
  transport_->answer();
  caller.join();
  EXPECT_EQ(waited, Progress::Waited::kDone);
  EXPECT_TRUE(transport_->idle());
  EXPECT_GT(turns_, 0);
  EXPECT_EQ(start(), operation) << "it was not released";
}

TEST_F(ProgressTest, OneDrivesAndTheOthersSleep) {
  Operation* const operations[] = {start(), start(), start()};
  std::atomic<int> done{0};
  std::vector<std::thread> callers;
  for (Operation* const operation : operations)
    callers.emplace_back([&, operation] {
      if (wait(operation) == Progress::Waited::kDone) ++done;
    });
  wait_until([&] { return transport_->asleep() == 1 && callers_.any_asleep(); });
  transport_->answer();
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(done, 3);
  EXPECT_EQ(transport_->most_asleep(), 1);
}

TEST_F(ProgressTest, WhoeverDrivesGivesWayToOneThatWantsTheLock) {
  Operation* const operation = start();
  std::thread caller([&] { EXPECT_EQ(wait(operation), Progress::Waited::kDone); });
  wait_until([&] { return transport_->asleep() == 1; });
  const int wakes = transport_->wakes();
  Operation* const other = start();
  EXPECT_GT(transport_->wakes(), wakes);
  transport_->answer();
  caller.join();
  EXPECT_EQ(wait(other), Progress::Waited::kDone);
}

TEST_F(ProgressTest, TheEndOfTheJobEndsAllWaits) {
  Operation* const operations[] = {start(), start()};
  std::atomic<int> failed{0};
  std::vector<std::thread> callers;
  for (Operation* const operation : operations)
    callers.emplace_back([&, operation] {
      if (wait(operation) == Progress::Waited::kFailed) ++failed;
    });
  wait_until([&] { return transport_->asleep() == 1 && callers_.any_asleep(); });
  const int wakes = transport_->wakes();
  progress_.end(INA_ERR_PEER_LOST, "rank 1 is gone");
  EXPECT_GT(transport_->wakes(), wakes);
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(failed, 2);
  EXPECT_FALSE(progress_.needs_driver());
}

TEST_F(ProgressTest, AWaitEndsWhenItsTimeHasCome) {
  Operation* const operation = start();
  EXPECT_EQ(progress_.wait(operation, now_ns() - 1), Progress::Waited::kTimedOut);
  transport_->answer();
  EXPECT_EQ(wait(operation), Progress::Waited::kDone) << "it went on";
}

TEST_F(ProgressTest, ATestTurnsOnceAndDoesNotSleep) {
  Operation* const operation = start();
  EXPECT_EQ(progress_.test(operation), std::nullopt);
  transport_->answer();
  EXPECT_EQ(progress_.test(operation), Progress::Waited::kDone);
  EXPECT_EQ(transport_->most_asleep(), 0);
  EXPECT_EQ(start(), operation) << "it was not released";
}

TEST_F(ProgressTest, NobodyDrivesWhileTheSwitchIsAway) {
  Operation* const operation = start();
  set_away(true);
  EXPECT_FALSE(progress_.needs_driver());
  transport_->answer();
  EXPECT_FALSE(progress_.drive_briefly());
  std::thread caller([&] { EXPECT_EQ(wait(operation), Progress::Waited::kDone); });
  wait_until([&] { return callers_.any_asleep(); });
  EXPECT_FALSE(operation->done.load());
  EXPECT_EQ(transport_->sent(), 1u) << "its answer was taken";
  set_away(false);
  caller.join();
}

TEST_F(ProgressTest, TheBackgroundThreadDrivesWhatNobodyWaitsFor) {
  EXPECT_FALSE(progress_.needs_driver());
  Operation* const operation = start();
  EXPECT_TRUE(progress_.needs_driver());
  progress_.add_driver();
  EXPECT_FALSE(progress_.needs_driver());
  progress_.remove_driver();
  transport_->answer();
  while (progress_.needs_driver()) EXPECT_TRUE(progress_.drive_in_background());
  EXPECT_TRUE(operation->done.load());
  EXPECT_TRUE(transport_->idle());
  EXPECT_EQ(progress_.test(operation), Progress::Waited::kDone);
}

TEST_F(ProgressTest, NeitherDoesItBeforeTheChannelIsLiveNorAfterItIsClosed) {
  Progress early(settings_.idle, session_, link_, operations_, callers_, [] {});
  start();
  {
    const auto lock = early.lock();
    early.count();
  }
  EXPECT_FALSE(early.needs_driver());
  early.go_live();
  EXPECT_TRUE(early.needs_driver());
  {
    const auto lock = early.lock();
    early.close();
  }
  EXPECT_FALSE(early.needs_driver());
  transport_->answer();
  EXPECT_FALSE(early.drive_briefly());
}

TEST_F(ProgressTest, WhatComesAsTheLastOneLeavesIsLookedAt) {
  Operation* const operation = start();
  transport_->answer();
  transport_->bring_stray();
  EXPECT_EQ(wait(operation), Progress::Waited::kDone);
  EXPECT_TRUE(transport_->has_stray());
  EXPECT_TRUE(progress_.needs_driver());
  EXPECT_TRUE(progress_.drive_in_background());
  EXPECT_FALSE(transport_->has_stray());
  EXPECT_FALSE(progress_.needs_driver());
}

TEST_F(ProgressTest, ACallOfTheSwitchIsAnsweredByTheBackgroundThread) {
  transport_->bring_stray();
  progress_.call();
  EXPECT_TRUE(progress_.needs_driver());
  EXPECT_TRUE(progress_.drive_in_background());
  EXPECT_FALSE(transport_->has_stray());
  EXPECT_FALSE(progress_.needs_driver());
}

TEST_F(ProgressTest, ACallbackIsCalledOnceItsOperationHasEnded) {
  std::vector<int> told;
  Operation* const operation = start();
  call_back(operation, told);
  progress_.run_callbacks();
  EXPECT_TRUE(told.empty());
  transport_->answer();
  EXPECT_TRUE(progress_.drive_briefly());
  progress_.run_callbacks();
  EXPECT_EQ(told, std::vector<int>{INA_OK});
}

TEST_F(ProgressTest, ACallbackIsCalledAlsoForTheLastResultBeforeTheSwitchGoes) {
  std::vector<int> told;
  Operation* const operation = start();
  call_back(operation, told);
  progress_.run_callbacks();
  transport_->answer();
  {
    const auto lock = progress_.lock();
    progress_.receive_rest();
    const auto state = callers_.lock();
    progress_.presence().go_away(now_ns());
  }
  progress_.run_callbacks();
  EXPECT_EQ(told, std::vector<int>{INA_OK});
}

}  // namespace
}  // namespace ina::client
