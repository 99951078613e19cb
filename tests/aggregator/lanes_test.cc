// A shard with fragment numbers that are shared out over lanes.
#include <gtest/gtest.h>

#include <vector>

#include "aggregator/aggregator.h"
#include "aggregator/divider.h"

namespace ina::aggregator {
namespace {

TEST(Divider, DividesAsTheOperatorsDo) {
  const uint64_t numbers[] = {0, 1, 2, 3, 63, 64, 1000003, uint64_t{1} << 32, UINT64_MAX};
  for (const uint64_t divisor : {1, 2, 3, 4, 6, 7, 24, 64, 1000, 65536})
    for (const uint64_t number : numbers) {
      const Divider by(divisor);
      EXPECT_EQ(by.divisor(), divisor);
      EXPECT_EQ(by.quotient(number), number / divisor) << number << " / " << divisor;
      EXPECT_EQ(by.remainder(number), number % divisor) << number << " % " << divisor;
    }
}

struct alignas(64) Line {
  std::byte bytes[64];
};

/// Contributions of one worker that found no slot, of a window of which `each` fragments are in
/// this lane, in an array of four times as many.
uint64_t without_slot(uint32_t lanes, uint32_t lane, uint32_t each) {
  Shape shape;
  shape.slots = 4 * each;
  shape.slot_bytes = 64;
  shape.max_jobs = 1;
  shape.lanes = lanes;
  shape.lane = lane;
  shape.policy.kind = scheduler::PolicyKind::kEsa;
  std::vector<Line> rows(Aggregator::row_memory_bytes(shape) / sizeof(Line));
  Aggregator aggregator(shape, std::as_writable_bytes(std::span(rows)));

  JobSpec spec;
  spec.id = JobId{7};
  spec.workers = 2;
  spec.window = each * lanes;
  std::vector<Line> results(2 * spec.window);
  std::vector<WorkerSet> seen(JobSpec::seen_words(spec.window, lanes));
  spec.results = results[0].bytes;
  spec.seen = seen.data();
  aggregator.add_job(0, spec);

  const int32_t value = 1;
  for (uint32_t i = 0; i < each; ++i) {
    wire::Message message;
    message.type = wire::Type::kGrad;
    message.seq = lane + i * lanes;
    message.elements = 1;
    message.operation_elements = 1;
    message.dtype = DType::kInt32;
    message.op = Op::kSum;
    message.collective = Collective::kAllReduce;
    message.priority = 1;
    const RxPacket packet{message, reinterpret_cast<const std::byte*>(&value), 4, 0, Rank{0}};
    Verdict verdict;
    aggregator.on_burst({&packet, 1}, 0, {&verdict, 1});
  }
  EXPECT_EQ(aggregator.counters().absorbed + aggregator.counters().bypassed, each);
  return aggregator.counters().bypassed;
}

TEST(Lanes, AWindowDoesNotCollideWithItselfHoweverManyLanesShareIt) {
  for (const uint32_t lanes : {1, 2, 3, 4, 8, 16})
    for (const uint32_t lane : {0u, lanes - 1})
      EXPECT_EQ(without_slot(lanes, lane, 64), 0u) << lane << " of " << lanes;
}

}  // namespace
}  // namespace ina::aggregator
