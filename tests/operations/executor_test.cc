// Schedules over made-up channels: order, dependencies, scratch memory, the end.
#include "operations/executor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

namespace ina::client {
namespace {

using scheduler::Buffer;
using scheduler::Compute;
using scheduler::Copy;
using scheduler::Operate;
using scheduler::Schedule;

// Sums of one rank: the result is the contribution. It takes operations in order of submission.
class Queue final : public Channel {
 public:
  struct Entry {
    Operation operation;
    bool held = true;
    bool skipped = false;
    bool completed = false;
    bool forgotten = false;
  };

  Operation* submit_held(const OperationSpec& spec, Nanos) override {
    Entry& entry = *entries.emplace_back(std::make_unique<Entry>());
    entry.operation.spec = spec;
    entry.operation.number = static_cast<uint32_t>(entries.size() - 1);
    return &entry.operation;
  }
  void let_go(Operation* operation, const std::byte* send, std::byte* recv, uint64_t elements,
              std::shared_ptr<const scheduler::BlockTable>) override {
    EXPECT_TRUE(of(operation).held) << "let go twice";
    of(operation).held = false;
    operation->spec.send = send;
    operation->spec.recv = recv;
    operation->spec.elements = elements;
  }
  void skip(Operation* operation) override {
    of(operation).held = false;
    of(operation).skipped = true;
  }
  void forget(Operation* operation) override {
    EXPECT_FALSE(of(operation).forgotten);
    of(operation).forgotten = true;
  }

  Entry& of(const Operation* operation) { return *entries[operation->number]; }
  bool may_complete(size_t index) const {
    if (entries[index]->completed || entries[index]->skipped) return false;
    for (size_t i = 0; i <= index; ++i)
      if (entries[i]->held) return false;
    return true;
  }
  void complete(size_t index) {
    Entry& entry = *entries[index];
    ASSERT_TRUE(may_complete(index)) << index;
    entry.completed = true;
    OperationSpec& spec = entry.operation.spec;
    if (spec.elements != 0 && spec.recv != spec.send)
      std::memcpy(spec.recv, spec.send, spec.elements * wire_bytes(spec.dtype));
    spec.listener->completed(entry.operation);
  }

  /// All of its bytes are there; it has not completed.
  void receive(size_t index) {
    ASSERT_TRUE(may_complete(index)) << index;
    entries[index]->operation.spec.listener->received(entries[index]->operation);
  }

  std::vector<std::unique_ptr<Entry>> entries;
};

class Kernels final : public Executor::Kernels {
 public:
  void run(const Compute& compute, const Executor::Frame& frame) override {
    ran.push_back(compute.argument);
    if (then) then(compute, frame);
  }
  std::vector<uint64_t> ran;
  std::function<void(const Compute&, const Executor::Frame&)> then;
};

Operate sum(uint64_t elements, Buffer send, Buffer receive, uint32_t channel = 0) {
  return {.channel = channel,
          .dtype = DType::kInt32,
          .elements = elements,
          .send = send,
          .receive = receive};
}
constexpr Buffer kSend{Buffer::Place::kSend, 0}, kReceive{Buffer::Place::kReceive, 0},
    kScratch{Buffer::Place::kScratch, 0};

class ExecutorTest : public testing::Test {
 protected:
  Operation* start(Schedule schedule, Executor::Handle handle = Executor::Handle::kKept) {
    OperationSpec spec;
    spec.send = reinterpret_cast<const std::byte*>(input_);
    spec.recv = reinterpret_cast<std::byte*>(output_);
    return executor_.start(std::make_shared<Schedule>(std::move(schedule)), spec, &kernels_, handle,
                           0);
  }
  // One operation with scratch memory of this size.
  static Schedule one(uint64_t scratch_bytes, uint32_t channel = 0) {
    Schedule schedule;
    schedule.set_scratch_bytes(scratch_bytes);
    schedule.add(sum(1, kScratch, kScratch, channel));
    return schedule;
  }

  int32_t input_[4] = {1, 2, 3, 4};
  int32_t output_[4] = {};
  Queue queues_[2];
  Kernels kernels_;
  Channel* channels_[2] = {&queues_[0], &queues_[1]};
  Executor executor_{channels_, 1000};
};

TEST_F(ExecutorTest, StagesWaitForThoseBeforeThem) {
  Schedule schedule;
  schedule.set_scratch_bytes(sizeof(input_));
  const auto copy = schedule.add(Copy{kSend, kScratch, sizeof(input_)});
  const auto first = schedule.add(sum(4, kScratch, kScratch), {copy});
  const auto kernel = schedule.add(Compute{0, 7}, {first});
  const auto second = schedule.add(sum(4, kScratch, kReceive), {kernel});
  schedule.add(Compute{0, 8}, {second});
  kernels_.then = [](const Compute& compute, const Executor::Frame& frame) {
    if (compute.argument == 7) ++reinterpret_cast<int32_t*>(frame.scratch())[3];
  };
  Operation* const whole = start(std::move(schedule));
  ASSERT_EQ(queues_[0].entries.size(), 2u) << "all are submitted at the start";
  EXPECT_FALSE(queues_[0].entries[0]->held);
  EXPECT_TRUE(queues_[0].entries[1]->held);
  EXPECT_TRUE(kernels_.ran.empty());
  queues_[0].complete(0);
  EXPECT_EQ(kernels_.ran, (std::vector<uint64_t>{7}));
  EXPECT_FALSE(queues_[0].entries[1]->held);
  EXPECT_FALSE(whole->done.load());
  queues_[0].complete(1);
  EXPECT_TRUE(whole->done.load());
  EXPECT_EQ(whole->complete, 5u);
  EXPECT_EQ(kernels_.ran, (std::vector<uint64_t>{7, 8}));
  EXPECT_EQ(output_[3], 5);
  EXPECT_TRUE(executor_.release(whole));
  EXPECT_FALSE(executor_.release(whole));
  EXPECT_TRUE(queues_[0].entries[0]->forgotten && queues_[0].entries[1]->forgotten);
}

TEST_F(ExecutorTest, AStageMayWaitForReceiptOnly) {
  Schedule schedule;
  const auto first = schedule.add(sum(1, kSend, kReceive));
  const Schedule::Stage received[] = {first};
  schedule.add(Compute{0, 1}, {}, received);
  schedule.add(Compute{0, 2}, {first});
  Operation* const whole = start(std::move(schedule));
  queues_[0].receive(0);
  EXPECT_EQ(kernels_.ran, (std::vector<uint64_t>{1}));
  EXPECT_FALSE(whole->done.load());
  queues_[0].receive(0);
  EXPECT_EQ(kernels_.ran.size(), 1u) << "told twice";
  queues_[0].complete(0);
  EXPECT_EQ(kernels_.ran, (std::vector<uint64_t>{1, 2}));
  EXPECT_TRUE(whole->done.load());
  EXPECT_EQ(executor_.counters().receipts, 1u);
}

TEST_F(ExecutorTest, WhatHasEndedHasBeenReceived) {
  Schedule schedule;
  const auto kernel = schedule.add(Compute{0, 1});
  const Schedule::Stage ran[] = {kernel};
  const auto first = schedule.add(sum(1, kSend, kReceive), {}, ran);
  const Schedule::Stage received[] = {first};
  schedule.add(Compute{0, 2}, std::span(ran), received);
  Operation* const whole = start(std::move(schedule));
  EXPECT_FALSE(queues_[0].entries[0]->held);
  queues_[0].complete(0);
  EXPECT_EQ(kernels_.ran, (std::vector<uint64_t>{1, 2}));
  EXPECT_TRUE(whole->done.load());
  EXPECT_EQ(executor_.counters().receipts, 0u);
}

TEST_F(ExecutorTest, ChannelsDoNotHoldEachOtherBack) {
  Schedule schedule;
  const auto first = schedule.add(sum(1, kSend, kReceive, 0));
  schedule.add(sum(1, kSend, kReceive, 0), {first});
  schedule.add(sum(1, kSend, kReceive, 1));
  Operation* const whole = start(std::move(schedule));
  queues_[1].complete(0);
  queues_[0].complete(0);
  EXPECT_FALSE(whole->done.load());
  queues_[0].complete(1);
  EXPECT_TRUE(whole->done.load());
}

TEST_F(ExecutorTest, AKernelSetsSizesAndSkips) {
  Schedule schedule;
  const auto first = schedule.add(sum(1, kSend, kReceive));
  const auto kernel = schedule.add(Compute{}, {first});
  const auto sized = schedule.add(sum(4, kSend, kReceive), {kernel});
  const auto skipped = schedule.add(sum(4, kSend, kReceive), {kernel});
  schedule.add(Compute{0, 1}, {skipped});
  kernels_.then = [=](const Compute& compute, const Executor::Frame& frame) {
    if (compute.argument != 0) return;
    frame.set_elements(sized, 2);
    frame.skip(skipped);
  };
  Operation* const whole = start(std::move(schedule));
  queues_[0].complete(0);
  EXPECT_EQ(queues_[0].entries[1]->operation.spec.elements, 2u);
  EXPECT_TRUE(queues_[0].entries[2]->skipped);
  EXPECT_EQ(kernels_.ran, (std::vector<uint64_t>{0, 1})) << "what was skipped has ended";
  // The engine may tell the end of skipped operations, too.
  Operation& told = queues_[0].entries[2]->operation;
  told.spec.listener->completed(told);
  EXPECT_FALSE(whole->done.load());
  queues_[0].complete(1);
  EXPECT_TRUE(whole->done.load());
  EXPECT_EQ(executor_.counters().operations, 3u) << "as the engine counts";
}

TEST_F(ExecutorTest, ScratchMemoryIsBoundedAndGivenInTurn) {
  Operation* wholes[4];
  for (Operation*& whole : wholes) whole = start(one(400));  // of 1000 bytes
  const auto let_go = [&] {
    std::vector<bool> result;
    for (const auto& entry : queues_[0].entries) result.push_back(!entry->held);
    return result;
  };
  EXPECT_EQ(let_go(), (std::vector{true, true, false, false}));
  EXPECT_NE(queues_[0].entries[0]->operation.spec.recv, queues_[0].entries[1]->operation.spec.recv);
  queues_[0].complete(1);
  EXPECT_EQ(let_go(), (std::vector{true, true, true, false}));
  EXPECT_EQ(queues_[0].entries[2]->operation.spec.recv, queues_[0].entries[1]->operation.spec.recv);
  queues_[0].complete(0);
  EXPECT_EQ(let_go(), (std::vector{true, true, true, true}));
  queues_[0].complete(2);
  queues_[0].complete(3);
  for (Operation* whole : wholes) EXPECT_TRUE(whole->done.load() && executor_.release(whole));
}

// Ranks may start schedules of different channels in different order: one that waits here for
// another channel's may be what that one waits for elsewhere.
TEST_F(ExecutorTest, ScratchMemoryOfOneChannelIsNotWaitedForByAnother) {
  start(one(900));
  start(one(900));
  start(one(900, 1));
  EXPECT_TRUE(queues_[0].entries[1]->held);
  EXPECT_FALSE(queues_[1].entries[0]->held);
  Schedule without;
  without.add(Compute{0, 5});
  start(std::move(without));
  EXPECT_EQ(kernels_.ran, (std::vector<uint64_t>{5}));
}

TEST_F(ExecutorTest, MoreThanTheLimitGetsABlockOfItsOwn) {
  Operation* const whole = start(one(5000));
  EXPECT_FALSE(queues_[0].entries[0]->held);
  queues_[0].complete(0);
  EXPECT_TRUE(whole->done.load());
}

TEST_F(ExecutorTest, ForgottenOnesAreUsedAgain) {
  for (size_t i = 0; i < 10; ++i) {
    start(one(400), Executor::Handle::kForgotten);
    queues_[0].complete(i);
    EXPECT_FALSE(queues_[0].entries[i]->forgotten) << "the engine is not done with it yet";
    EXPECT_TRUE(i == 0 || queues_[0].entries[i - 1]->forgotten);
  }
  EXPECT_EQ(executor_.counters().schedules, 10u);
}

TEST_F(ExecutorTest, GivenUpNothingGoesOn) {
  Schedule schedule;
  const auto first = schedule.add(sum(1, kSend, kReceive));
  schedule.add(Compute{}, {first});
  Operation* const whole = start(std::move(schedule));
  EXPECT_TRUE(executor_.release(whole));
  EXPECT_TRUE(queues_[0].entries[0]->forgotten);
  Operation& late = queues_[0].entries[0]->operation;
  late.spec.listener->completed(late);
  EXPECT_TRUE(kernels_.ran.empty());
}

// Random schedules over two channels, whose operations complete in random order: each kernel runs
// once, after all that it waits for, and every schedule ends.
TEST_F(ExecutorTest, RandomSchedulesEnd) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Queue queues[2];
    Channel* const channels[] = {&queues[0], &queues[1]};
    Executor executor(channels, 3000);
    constexpr uint32_t kSchedules = 6;
    struct Made {
      std::shared_ptr<Schedule> schedule = std::make_shared<Schedule>();
      std::vector<std::vector<Schedule::Stage>> awaited;
      std::vector<int> ran;  // kernels, by stage
      Operation* whole = nullptr;
    };
    std::vector<Made> made(kSchedules);
    Kernels kernels;
    kernels.then = [&](const Compute& compute, const Executor::Frame& frame) {
      Made& one = made[compute.kernel];
      ++one.ran[frame.stage()];
      for (const Schedule::Stage earlier : one.awaited[frame.stage()])
        EXPECT_EQ(one.ran[earlier], std::holds_alternative<Compute>(one.schedule->work(earlier)))
            << "seed " << seed;
    };
    for (uint32_t s = 0; s < kSchedules; ++s) {
      Made& one = made[s];
      one.schedule->set_scratch_bytes(random() % 3 * 1000);
      const uint32_t stages = 1 + random() % 20;
      one.ran.resize(stages);
      for (uint32_t i = 0; i < stages; ++i) {
        auto& awaited = one.awaited.emplace_back();
        for (uint32_t j = 0; j < i; ++j)
          if (random() % 4 == 0) awaited.push_back(j);
        if (random() % 2 == 0)
          one.schedule->add(Compute{s, i}, awaited);
        else
          one.schedule->add(sum(1, kSend, kReceive, random() % 2), awaited);
      }
      OperationSpec spec;
      spec.send = reinterpret_cast<const std::byte*>(input_);
      spec.recv = reinterpret_cast<std::byte*>(output_);
      one.whole = executor.start(one.schedule, spec, &kernels, Executor::Handle::kKept, 0);
    }
    for (;;) {
      std::vector<std::pair<uint32_t, size_t>> ready;
      for (uint32_t q = 0; q < 2; ++q)
        for (size_t i = 0; i < queues[q].entries.size(); ++i)
          if (queues[q].may_complete(i)) ready.emplace_back(q, i);
      if (ready.empty()) break;
      const auto [q, i] = ready[random() % ready.size()];
      queues[q].complete(i);
    }
    for (const Made& one : made) {
      ASSERT_TRUE(one.whole->done.load()) << "seed " << seed;
      for (Schedule::Stage stage = 0; stage < one.schedule->size(); ++stage)
        EXPECT_EQ(one.ran[stage], std::holds_alternative<Compute>(one.schedule->work(stage)));
      EXPECT_TRUE(executor.release(one.whole));
    }
  }
}

}  // namespace
}  // namespace ina::client
