// Priorities of operations: their order, and the range in which they can be told apart.
#include "scheduler/priority.h"

#include <gtest/gtest.h>

namespace ina::scheduler {
namespace {

constexpr Nanos kMs = 1'000'000;

/// Priority of a job that has `remaining` iterations of `iteration` to go.
uint8_t priority_of(uint64_t remaining, Nanos iteration, uint32_t layer = 0) {
  PriorityMeter meter;
  meter.started(0, 0);
  meter.set_hints({.layer = layer, .layers = 10, .remaining_iterations = remaining + 1}, 0);
  meter.set_hints({.layer = layer, .layers = 10, .remaining_iterations = remaining}, iteration);
  return meter.priority(iteration);
}

TEST(Priority, TellsJobsApartFromMicrosecondsToWeeks) {
  constexpr Nanos kWeekOfMs = 7 * 24 * 3'600'000ll;
  uint8_t before = 255;
  for (uint64_t remaining_ms = 1; remaining_ms < kWeekOfMs; remaining_ms *= 2) {
    const uint8_t now = priority_of(remaining_ms, kMs);
    EXPECT_LT(now, before) << remaining_ms;
    before = now;
  }
  EXPECT_GT(before, 1);
  EXPECT_EQ(priority_of(1, 1), 255);
}

TEST(Priority, FrontLayersAreMoreUrgent) {
  EXPECT_GT(priority_of(100, kMs, 1), priority_of(100, kMs, 10));
}

TEST(Priority, AJobThatWaitsForCommunicationIsMoreUrgent) {
  PriorityMeter waits, computes;
  for (PriorityMeter* meter : {&waits, &computes}) meter->started(0, 0);
  waits.finished(9 * kMs, 0);
  computes.finished(kMs, 0);
  for (PriorityMeter* meter : {&waits, &computes}) meter->started(10 * kMs, 0);
  EXPECT_GT(waits.priority(10 * kMs), computes.priority(10 * kMs));
}

}  // namespace
}  // namespace ina::scheduler
