// The shard's record of contributions that have gone to the fallback: fragments of one slot, under
// the `esa` policy.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "aggregator/aggregator.h"
#include "tests/support/worker_literal.h"

namespace ina::aggregator {
namespace {

constexpr uint32_t kWindow = 8;
constexpr uint32_t kSlotBytes = 256;

class GoneTest : public testing::Test {
 protected:
  void start(uint32_t workers, bool residual = true) {
    shape_.policy = {.kind = scheduler::PolicyKind::kEsa, .residual = residual};
    rows_.resize(Aggregator::row_memory_bytes(shape_) / sizeof(Line));
    aggregator_.emplace(shape_, std::as_writable_bytes(std::span(rows_)));
    JobSpec spec;
    spec.workers = workers;
    spec.window = kWindow;
    spec.results = results_.data()->bytes;
    spec.seen = seen_;
    aggregator_->add_job(0, spec);
  }

  Verdict grad(uint32_t rank, uint32_t seq, uint8_t priority) {
    wire::Message message;
    message.type = wire::Type::kGrad;
    message.seq = seq;
    message.elements = 1;
    message.operation_elements = 1;
    message.dtype = DType::kInt32;
    message.op = Op::kSum;
    message.collective = Collective::kAllReduce;
    message.priority = priority;
    static constexpr int32_t kValue = 1;
    const RxPacket packet{message, reinterpret_cast<const std::byte*>(&kValue), 4, 0,
                          Rank{static_cast<uint8_t>(rank)}};
    Verdict verdict;
    aggregator_->on_burst({&packet, 1}, 0, {&verdict, 1});
    return verdict;
  }

  /// Rank 0 contributes to fragments 0, 1 and 2, each of which takes the slot from the one before.
  void send_three() {
    for (uint32_t seq = 0; seq < 3; ++seq) grad(0, seq, static_cast<uint8_t>(10 * (seq + 1)));
    ASSERT_EQ(aggregator_->counters().preemptions, 2u);
  }

  struct alignas(64) Line {
    std::byte bytes[64];
  };
  Shape shape_{
      .slots = 1, .slot_bytes = kSlotBytes, .max_jobs = 1, .burst = 4, .lanes = 1, .policy = {}};
  std::vector<Line> rows_;
  std::vector<Line> results_ = std::vector<Line>(2 * kWindow * kSlotBytes / sizeof(Line));
  WorkerSet seen_[2 * kWindow] = {};
  std::optional<Aggregator> aggregator_;
};

TEST_F(GoneTest, VictimIsRememberedThoughTheSlotHasHadOthersSince) {
  start(3);
  send_three();
  grad(1, 0, 200);
  const Verdict last = grad(2, 0, 200);
  ASSERT_EQ(last.emissions, 1) << "what is here must not wait for rank 0, which has gone";
  EXPECT_EQ(last.emission[0].to, Emission::To::kFallback);
  EXPECT_EQ(last.emission[0].message.bitmap, 0b110_workers);
  EXPECT_EQ(aggregator_->counters().slots_used, 0u);
}

TEST_F(GoneTest, LastContributionFollowsTheOthersWithoutTakingASlot) {
  start(2);
  send_three();
  const Verdict last = grad(1, 0, 255);
  ASSERT_EQ(last.emissions, 1);
  EXPECT_EQ(last.emission[0].message.type, wire::Type::kPart);
  EXPECT_EQ(last.emission[0].message.flags, wire::kFlagRaw);
  EXPECT_EQ(last.emission[0].message.bitmap, 0b10_workers);
  EXPECT_EQ(aggregator_->counters().preemptions, 2u);
  EXPECT_EQ(grad(1, 2, 1).emission[0].message.type, wire::Type::kResult) << "kept its slot";
}

TEST_F(GoneTest, WithoutTheResidualTheRestLiesInTheSlot) {
  start(3, false);
  send_three();
  grad(1, 0, 200);
  EXPECT_EQ(grad(2, 0, 200).emissions, 0);
  EXPECT_EQ(aggregator_->counters().slots_used, 1u);
}

}  // namespace
}  // namespace ina::aggregator
