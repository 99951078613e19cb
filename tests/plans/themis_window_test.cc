// The window of a dimension: fragments that wait for the results of others.
#include "plans/themis/window.h"

#include "plans/themis/simulate.h"
#include "tests/plans/themis_fixture.h"

namespace ina::themis {
namespace {

constexpr Picos kUs = 1'000'000;
constexpr Picos kNoRing = 0;

/// So many fragments of a microsecond each.
Stage stage_of(uint64_t fragments, Picos latency_ps, Picos close_ps = 0) {
  const Picos sending_ps = static_cast<Picos>(fragments) * kUs;
  return {.tx_ps = sending_ps,
          .rx_ps = sending_ps,
          .latency_ps = latency_ps,
          .first_ps = kUs,
          .close_ps = close_ps,
          .fragments = fragments,
          .fragment_ps = kUs};
}

/// As Simulator does where nothing else is under way.
Operation send(Window& window, const Stage& stage, Picos ready_ps) {
  const Window::Sending sending = window.send(stage, ready_ps);
  Operation operation{.tx_start_ps = sending.start_ps};
  operation.tx_end_ps = sending.start_ps + stage.tx_ps + sending.stalled_ps;
  operation.rx_start_ps = sending.start_ps + stage.first_ps;
  operation.rx_end_ps = operation.rx_start_ps + stage.rx_ps + sending.stalled_ps;
  operation.end_ps = operation.rx_end_ps + stage.latency_ps;
  window.sent(stage, operation);
  return operation;
}

TEST(ThemisWindow, WithoutALimitNothingWaits) {
  Window window(0, kNoRing);
  for (Picos at_ps = 0; at_ps < 10 * kUs; at_ps += kUs)
    EXPECT_EQ(send(window, stage_of(1000, 100 * kUs), at_ps).tx_start_ps, at_ps);
}

TEST(ThemisWindow, WhatFitsDoesNotWait) {
  Window window(20, kNoRing);
  EXPECT_EQ(send(window, stage_of(10, 100 * kUs), 0).tx_start_ps, 0);
  EXPECT_EQ(send(window, stage_of(10, 100 * kUs), 10 * kUs).tx_start_ps, 10 * kUs);
}

/// Each fragment takes the place of the one that is a window before it. Results come at 101 to 111.
TEST(ThemisWindow, WhatDoesNotFitWaitsForResults) {
  Window window(10, kNoRing);
  EXPECT_EQ(send(window, stage_of(10, 100 * kUs), 0).end_ps, 111 * kUs);
  EXPECT_NEAR(send(window, stage_of(10, 100 * kUs), 10 * kUs).tx_start_ps, (111 - 9) * kUs, 10);
}

TEST(ThemisWindow, FreePlacesAreTakenFirst) {
  Window window(15, kNoRing);
  send(window, stage_of(10, 100 * kUs), 0);
  // The last of 10 takes the place of the fifth.
  const Picos fifth_ps = 101 * kUs + 4 * (10 * kUs / 9);
  EXPECT_EQ(send(window, stage_of(10, 100 * kUs), 10 * kUs).tx_start_ps, fifth_ps - 9 * kUs);
}

TEST(ThemisWindow, AnOperationWaitsForItsOwnResults) {
  Window window(10, kNoRing);
  const Window::Sending sending = window.send(stage_of(30, 100 * kUs), 0);
  EXPECT_EQ(sending.start_ps, 0);
  // 102 us there and back, of which it sends for 10.
  EXPECT_EQ(sending.stalled_ps, 2 * (102 - 10) * kUs);
  EXPECT_EQ(Window(30, kNoRing).send(stage_of(30, 100 * kUs), 0).stalled_ps, 0);
}

/// The result of a closing fragment comes after those of fragments behind it, which wait for it.
TEST(ThemisWindow, AClosingFragmentHoldsItsPlace) {
  const auto start_ps = [](Picos close_ps) {
    Window window(11, kNoRing);
    EXPECT_EQ(send(window, stage_of(10, 100 * kUs, close_ps), 0).end_ps, 111 * kUs);
    return send(window, stage_of(11, 100 * kUs), 10 * kUs).tx_start_ps;
  };
  EXPECT_EQ(start_ps(50 * kUs), (111 + 50 - 10) * kUs);
  EXPECT_EQ(start_ps(80 * kUs), (111 + 80 - 10) * kUs);
}

/// At 21 us there are 90 fragments of a later operation on the ring, if they have room there.
TEST(ThemisWindow, AClosingFragmentWaitsBehindTheRing) {
  const auto start_ps = [](Picos ring_ps) {
    Window window(101, ring_ps);
    EXPECT_EQ(send(window, stage_of(10, 10 * kUs, 100 * kUs), 0).end_ps, 21 * kUs);
    EXPECT_EQ(send(window, stage_of(90, 10 * kUs), 10 * kUs).tx_end_ps, 100 * kUs);
    return send(window, stage_of(11, 10 * kUs), 100 * kUs).tx_start_ps;
  };
  EXPECT_EQ(start_ps(kNoRing), (121 - 10) * kUs);
  EXPECT_EQ(start_ps(30 * kUs), (151 - 10) * kUs);
}

/// The others send in turns, and a rank gets what is for it once in each round of turns.
TEST(ThemisWindow, ResultsOfAnAllToAllAreKnownOneTurnLater) {
  Stage stage = stage_of(30, 100 * kUs);
  const Picos summed_ps = Window(10, kNoRing).send(stage, 0).stalled_ps;
  stage.phase = Phase::kAllToAll;
  EXPECT_EQ(Window(10, kNoRing).send(stage, 0).stalled_ps - summed_ps, 2 * stage.first_ps);
}

/// Eight ranks at 400 Gb/s and 50 us could have five times as much under way.
TEST(ThemisWindow, PlansForSwitchesWaitForIt) {
  Topology topology =
      carried_by_switches({.dimensions = {dimension(DimensionKind::kDirect, 8, 400, 50 * kUs)}});
  EXPECT_EQ(topology.window, kDefaultWindow);
  const std::vector<Request> requests = {
      {.collective = Collective::kAllToAll, .bytes = uint64_t{64} << 20}};
  const PlanOptions options{.scheduler = Scheduler::kBaseline, .chunks = 8};
  const Picos limited_ps = plan(topology, requests, options).timeline.end_ps;
  topology.window = 0;
  const Picos free_ps = plan(topology, requests, options).timeline.end_ps;
  EXPECT_GT(limited_ps, 4 * free_ps);
  topology.window = 1 << 20;
  EXPECT_EQ(plan(topology, requests, options).timeline.end_ps, free_ps);
}

}  // namespace
}  // namespace ina::themis
