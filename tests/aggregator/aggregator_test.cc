// The aggregator shard under the `static` policy: receive this, expect that.
#include "aggregator/aggregator.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/support/worker_literal.h"

namespace ina::aggregator {
namespace {

using Fate = Verdict::Fate;
using To = Emission::To;

constexpr uint32_t kWindow = 4;
constexpr uint32_t kSlotBytes = 256;
constexpr JobIndex kJob = 1;

class AggregatorTest : public testing::Test {
 protected:
  AggregatorTest() { add_job(kJob, 2, {0, 2 * kWindow, 1, 0}, results_); }

  struct alignas(64) Line {
    std::byte bytes[64];
  };
  using Lines = std::vector<Line>;

  void add_job(JobIndex index, uint32_t workers, scheduler::StaticPool pool, Lines& results) {
    JobSpec spec;
    spec.id = JobId{100u + index};
    spec.epoch = 5;
    spec.workers = workers;
    spec.window = kWindow;
    spec.pool = pool;
    spec.results = reinterpret_cast<std::byte*>(results.data());
    spec.placed = placed_[index].data();
    aggregator_->add_job(index, spec);
  }

  /// A contribution of `values` to fragment `seq`.
  Verdict grad(uint32_t rank, uint32_t seq, std::vector<int32_t> values,
               std::function<void(wire::Message&)> change = {}, JobIndex job = kJob) {
    wire::Message message;
    message.type = wire::Type::kGrad;
    message.epoch = 5;
    message.seq = seq;
    message.elements = static_cast<uint16_t>(values.size());
    message.operation_elements = values.size();
    message.dtype = DType::kInt32;
    message.op = Op::kSum;
    message.collective = Collective::kAllReduce;
    if (change) change(message);
    const RxPacket packet{message, reinterpret_cast<const std::byte*>(values.data()),
                          static_cast<uint32_t>(values.size() * 4), job,
                          Rank{static_cast<uint8_t>(rank)}};
    Verdict verdict;
    aggregator_->on_burst({&packet, 1}, 0, {&verdict, 1});
    return verdict;
  }

  static std::vector<int32_t> values_of(const Verdict& verdict) {
    std::vector<int32_t> values(verdict.emission[0].payload_bytes / 4);
    if (!values.empty()) std::memcpy(values.data(), verdict.emission[0].payload, values.size() * 4);
    return values;
  }
  static bool sends_to(const Verdict& verdict, To to) {
    return verdict.emissions == 1 && verdict.emission[0].to == to;
  }

  void expect_drop(const Verdict& verdict, DropReason reason) {
    EXPECT_EQ(verdict.fate, Fate::kDropped);
    EXPECT_EQ(verdict.reason, reason) << name(verdict.reason);
  }

  static constexpr Shape shape_{
      .slots = 16, .slot_bytes = kSlotBytes, .max_jobs = 4, .burst = 4, .policy = {}};
  Lines rows_ = Lines(Aggregator::row_memory_bytes(shape_) / 64);
  Lines results_ = Lines(2 * kWindow * kSlotBytes / 64);
  std::array<std::array<uint64_t, 2 * kWindow>, 4> placed_{};
  Lines other_results_ = Lines(2 * kWindow * kSlotBytes / 64);
  std::optional<Aggregator> aggregator_{std::in_place, shape_,
                                        std::as_writable_bytes(std::span(rows_))};
};

TEST_F(AggregatorTest, FirstContributionIsAbsorbedLastCompletes) {
  const Verdict first = grad(0, 0, {1, 2, 3});
  EXPECT_EQ(first.fate, Fate::kAbsorbed);
  EXPECT_EQ(first.emissions, 0);
  EXPECT_EQ(aggregator_->counters().slots_used, 1u);

  const Verdict last = grad(1, 0, {10, 20, 30});
  EXPECT_EQ(last.fate, Fate::kAbsorbed);
  EXPECT_TRUE(sends_to(last, To::kAll));
  EXPECT_EQ(last.emission[0].message.type, wire::Type::kResult);
  EXPECT_EQ(last.emission[0].message.origin, wire::Origin::kSwitch);
  EXPECT_EQ(last.emission[0].message.bitmap, 0b11_workers);
  EXPECT_EQ(last.emission[0].message.epoch, 5u);
  EXPECT_EQ(values_of(last), (std::vector{11, 22, 33}));
  EXPECT_EQ(last.emission[0].payload, reinterpret_cast<std::byte*>(results_.data()))
      << "row 0 of the ring";
  EXPECT_EQ(aggregator_->counters().slots_used, 0u);
}

TEST_F(AggregatorTest, DuplicateIsDroppedAndNotCounted) {
  grad(0, 0, {1});
  const Verdict again = grad(0, 0, {1});
  expect_drop(again, DropReason::kDuplicate);
  EXPECT_EQ(again.emissions, 0);
  EXPECT_EQ(values_of(grad(1, 0, {1})), std::vector{2});
}

TEST_F(AggregatorTest, QuestionForALostResultIsAnsweredToTheSenderOnly) {
  grad(0, 0, {1});
  grad(1, 0, {2});
  const Verdict again = grad(1, 0, {2});
  expect_drop(again, DropReason::kDuplicate);
  EXPECT_TRUE(sends_to(again, To::kSender));
  EXPECT_NE(again.emission[0].message.flags & wire::kFlagAgain, 0) << "it is an answer";
  EXPECT_EQ(values_of(again), std::vector{3});
  EXPECT_EQ(aggregator_->counters().results_again, 1u);
}

TEST_F(AggregatorTest, ResultIsKeptForTwoWindowsThenTheSlotIsReset) {
  for (uint32_t seq = 0; seq < 2 * kWindow; ++seq) {
    grad(0, seq, {1});
    grad(1, seq, {1});
  }
  EXPECT_EQ(values_of(grad(0, 0, {1})), std::vector{2}) << "still answered";
  EXPECT_EQ(grad(0, 2 * kWindow, {5}).fate, Fate::kAbsorbed) << "the slot's next fragment";
  expect_drop(grad(1, 0, {1}), DropReason::kTooOld);
  EXPECT_EQ(values_of(grad(1, 2 * kWindow, {6})), std::vector{11});
}

TEST_F(AggregatorTest, FragmentBeyondTheWindowIsDropped) {
  EXPECT_EQ(grad(0, kWindow - 1, {1}).fate, Fate::kAbsorbed);
  expect_drop(grad(0, kWindow, {1}), DropReason::kOutsideWindow);
  grad(1, kWindow - 1, {1});  // completes W-1, which allows up to 2W-1
  EXPECT_EQ(grad(0, 2 * kWindow - 1, {1}).fate, Fate::kAbsorbed);
  expect_drop(grad(0, 2 * kWindow, {1}), DropReason::kOutsideWindow);
}

TEST_F(AggregatorTest, ZombieOfALongFinishedFragmentIsTooOld) {
  uint32_t seq = 0;
  for (; seq < 8 * kWindow; ++seq) {
    grad(0, seq, {1});
    grad(1, seq, {1});
  }
  expect_drop(grad(0, seq - 1 - 2 * kWindow, {9}), DropReason::kTooOld);
  expect_drop(grad(0, 1, {9}), DropReason::kTooOld);
}

TEST_F(AggregatorTest, OlderEpochIsToldNewerIsDropped) {
  const Verdict stale = grad(0, 0, {1}, [](auto& m) { m.epoch = 4; });
  expect_drop(stale, DropReason::kStaleEpoch);
  EXPECT_TRUE(sends_to(stale, To::kSender));
  EXPECT_EQ(stale.emission[0].message.type, wire::Type::kStale);
  EXPECT_EQ(stale.emission[0].message.epoch, 5u);
  const Verdict future = grad(0, 0, {1}, [](auto& m) { m.epoch = 6; });
  expect_drop(future, DropReason::kFutureEpoch);
  EXPECT_EQ(future.emissions, 0);
  EXPECT_EQ(aggregator_->counters().slots_used, 0u) << "an epoch is checked before any slot";
}

TEST_F(AggregatorTest, MismatchNamesTheFirstAndStopsTheJob) {
  for (const auto& change : std::initializer_list<std::function<void(wire::Message&)>>{
           [](auto& m) { m.operation = 1; }, [](auto& m) { m.operation_elements = 99; },
           [](auto& m) { m.op = Op::kMax; }, [](auto& m) { m.dtype = DType::kFloat32; },
           [](auto& m) { m.collective = Collective::kBarrier; }}) {
    aggregator_->remove_job(kJob);
    add_job(kJob, 2, {0, 2 * kWindow, 1, 0}, results_);
    grad(0, 0, {1});
    const Verdict verdict = grad(1, 0, {1}, change);
    expect_drop(verdict, DropReason::kMismatch);
    EXPECT_EQ(verdict.first_rank, Rank{0});
    EXPECT_EQ(verdict.first_signature.elements, 1u);
    expect_drop(grad(1, 0, {1}), DropReason::kJobAborted);
  }
}

TEST_F(AggregatorTest, WhatDoesNotBelongIsDroppedByReason) {
  expect_drop(grad(0, 0, {1}, {}, 2), DropReason::kBadJob);
  expect_drop(grad(2, 0, {1}), DropReason::kBadRank);
  expect_drop(grad(0, 0, {1}, [](auto& m) { m.type = wire::Type::kPart; }), DropReason::kBadType);
  EXPECT_EQ(aggregator_->counters().packets, 3u);
  EXPECT_EQ(aggregator_->counters().dropped(), 3u);
}

TEST_F(AggregatorTest, LaneTakesItsOwnFragmentsOnly) {
  Shape shape = shape_;
  shape.lanes = 2;
  shape.lane = 1;
  aggregator_.emplace(shape, std::as_writable_bytes(std::span(rows_)));
  add_job(2, 1, {8, 4, 2, 1}, other_results_);
  EXPECT_TRUE(sends_to(grad(0, 1, {7}, {}, 2), To::kAll));
  expect_drop(grad(0, 2, {7}, {}, 2), DropReason::kWrongLane);
}

TEST_F(AggregatorTest, JobsDoNotTouchEachOther) {
  add_job(2, 2, {8, 2 * kWindow, 1, 0}, other_results_);
  grad(0, 0, {1});
  grad(0, 0, {100}, {}, 2);
  EXPECT_EQ(values_of(grad(1, 0, {2})), std::vector{3});
  EXPECT_EQ(values_of(grad(1, 0, {200}, {}, 2)), std::vector{300});
}

TEST_F(AggregatorTest, RemovedJobLeavesNothingHeldAndItsSlotsServeTheNext) {
  grad(0, 0, {1});
  grad(0, 1, {1});
  grad(1, 1, {1});
  aggregator_->remove_job(kJob);
  EXPECT_EQ(aggregator_->counters().slots_used, 0u);
  EXPECT_EQ(aggregator_->counters().contributions_discarded, 1u);
  EXPECT_EQ(aggregator_->counters().absorbed, 3u);
  EXPECT_EQ(aggregator_->counters().contributions_in_results, 2u);
  add_job(kJob, 2, {0, 2 * kWindow, 1, 0}, results_);
  grad(1, 0, {5});
  EXPECT_EQ(values_of(grad(0, 0, {6})), std::vector{11});
}

TEST_F(AggregatorTest, OldestWaitingNamesFragmentAndMissingWorkers) {
  EXPECT_FALSE(aggregator_->oldest_waiting(kJob));
  grad(1, 2, {1});
  grad(0, 1, {1});
  const auto waiting = aggregator_->oldest_waiting(kJob);
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->seq, Seq{1});
  EXPECT_EQ(waiting->missing, 0b10_workers);
}

TEST_F(AggregatorTest, EmptyOperationStillSynchronises) {
  EXPECT_EQ(grad(0, 0, {}).emissions, 0);
  const Verdict last = grad(1, 0, {});
  EXPECT_TRUE(sends_to(last, To::kAll));
  EXPECT_EQ(last.emission[0].payload_bytes, 0u);
}

// ---- result buffers

TEST_F(AggregatorTest, ResultsGoWhereTheContributionsAimed) {
  alignas(64) std::byte buffer[4 * wire::kTargetUnitBytes] = {};
  aggregator_->add_result_buffer(kJob, {10, 4, buffer});
  const auto aim = [](uint32_t target) {
    return [target](wire::Message& message) { message.target = target; };
  };
  EXPECT_EQ(grad(0, 0, {1, 2}, aim(1 + 12)).fate, Fate::kAbsorbed);
  const Verdict last = grad(1, 0, {10, 20}, aim(1 + 12));
  ASSERT_TRUE(sends_to(last, To::kAll));
  EXPECT_EQ(last.emission[0].payload, buffer + 2 * wire::kTargetUnitBytes);
  EXPECT_EQ(last.emission[0].message.target, 13u);
  EXPECT_EQ(values_of(last), (std::vector<int32_t>{11, 22}));
}

// The fallback answers a late question, and says again what everybody has: the place holds the next
// operation's result by then.
TEST_F(AggregatorTest, AnOlderResultDoesNotOverwriteANewerOne) {
  alignas(64) std::byte buffer[4 * wire::kTargetUnitBytes] = {};
  aggregator_->add_result_buffer(kJob, {0, 4, buffer});
  const auto aim = [](wire::Message& message) { message.target = 1; };
  const auto from_fallback = [](wire::Message& message) {
    message.target = 1;
    message.type = wire::Type::kResult;
  };
  const auto held = [&] {
    int32_t value = 0;
    std::memcpy(&value, buffer, sizeof value);
    return value;
  };
  const auto home = [](uint32_t seq) { return static_cast<uint32_t>(home_of(Seq{seq}, 2)); };
  grad(0, 0, {1}, aim);
  EXPECT_TRUE(sends_to(grad(home(0), 0, {3}, from_fallback), To::kAll));
  EXPECT_EQ(held(), 3);
  grad(0, 1, {10}, aim);
  grad(1, 1, {20}, aim);
  EXPECT_EQ(held(), 30);
  for (const uint32_t seq : {0u, 1u}) {
    const Verdict again = grad(home(seq), seq, {7}, from_fallback);
    EXPECT_TRUE(sends_to(again, To::kAll)) << "one of them may wait for it";
    EXPECT_EQ(held(), 30) << seq;
  }
}

TEST_F(AggregatorTest, AimsOutsideTheJobsBuffersAreDropped) {
  alignas(64) std::byte buffer[4 * wire::kTargetUnitBytes] = {};
  aggregator_->add_result_buffer(kJob, {10, 4, buffer});
  for (const uint32_t target : {1u, 10u, 15u, wire::kMaxTargetUnits})
    expect_drop(grad(0, 0, {1}, [&](wire::Message& message) { message.target = target; }),
                DropReason::kBadOffset);
  // Begins within the buffer and ends beyond it.
  expect_drop(grad(0, 0, std::vector<int32_t>(64 + 1),
                   [](wire::Message& message) { message.target = 1 + 13; }),
              DropReason::kBadOffset);
  EXPECT_EQ(
      grad(0, 0, std::vector<int32_t>(64), [](wire::Message& message) { message.target = 1 + 13; })
          .fate,
      Fate::kAbsorbed);
  aggregator_->remove_result_buffer(kJob, 10);
  expect_drop(
      grad(1, 0, std::vector<int32_t>(64), [](wire::Message& message) { message.target = 1 + 13; }),
      DropReason::kBadOffset);
}

TEST_F(AggregatorTest, DifferentAimsAreAMismatch) {
  alignas(64) std::byte buffer[4 * wire::kTargetUnitBytes] = {};
  aggregator_->add_result_buffer(kJob, {0, 4, buffer});
  grad(0, 0, {1}, [](wire::Message& message) { message.target = 1; });
  expect_drop(grad(1, 0, {1}), DropReason::kMismatch);
}

}  // namespace
}  // namespace ina::aggregator
