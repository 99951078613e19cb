// Bare results that are put together, rule by rule (docs/protocol.md, "Joined bare results").
#include "aggregator/bare_results.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/worker_literal.h"

namespace ina::aggregator {
namespace {

constexpr uint32_t kLanes = 2;
constexpr uint32_t kMost = 4;
constexpr Nanos kPatience = 100;
constexpr JobIndex kJob = 1;

struct Run {
  uint32_t rank, seq, fragments;
  bool operator==(const Run&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Run& run) {
    return out << "rank " << run.rank << ": " << run.fragments << " from " << run.seq;
  }
};
using Runs = std::vector<Run>;

class BareResultsTest : public testing::Test {
 protected:
  BareResultsTest() { start({kMost, kPatience}); }

  void start(const Joining& joining) {
    results_.remove_job(kJob);
    results_.add_job(kJob, joining, Seq{});
    for (uint8_t rank = 0; rank < 3; ++rank) results_.set_prompt(kJob, Rank{rank}, 0, false);
  }

  static wire::Message result(uint32_t seq, WorkerSet to, uint32_t operation = 0) {
    wire::Message message;
    message.type = wire::Type::kResult;
    message.flags = wire::kFlagBare;
    message.elements = 1;
    message.seq = seq;
    message.bitmap = to;
    message.operation = operation;
    return message;
  }
  auto sender() {
    return [this](JobIndex job, Rank rank, const wire::Message& message) {
      EXPECT_EQ(job, kJob);
      EXPECT_EQ(message.bitmap, WorkerSet::of(rank));
      EXPECT_TRUE(message.bare());
      sent_.push_back({value(rank), message.seq, message.elements});
    };
  }
  void bare(uint32_t seq, WorkerSet to = WorkerSet::of(Rank{0}), uint32_t operation = 0) {
    results_.add(kJob, result(seq, to, operation), sender());
  }
  /// With a payload, or of the closing fragment.
  void whole(uint32_t seq, uint8_t receiver, uint16_t elements, uint32_t operation = 0,
             bool runs_on = true) {
    wire::Message message = result(seq, {}, operation);
    message.flags = 0;
    message.receiver = receiver;
    message.elements = elements;
    if (receiver == 0) return results_.passed_to_all(kJob, message);
    const WorkerSet to = WorkerSet::of(Rank{static_cast<uint16_t>(receiver - 1)});
    results_.passed(kJob, message, to, runs_on);
  }
  /// The runs sent since the last call, by the end of the burst.
  Runs sent(Nanos now = 0) {
    results_.flush(now, sender());
    return std::exchange(sent_, {});
  }

  BareResults results_{2, kLanes};

 private:
  Runs sent_;
};

TEST_F(BareResultsTest, ARunGoesAtAQuarterOfTheWindow) {
  EXPECT_EQ(Joining::of(32, kLanes, kPatience).most, 4u);
  EXPECT_EQ(Joining::of(4, kLanes, kPatience).most, 1u) << "nothing is kept of a tiny window";
  for (uint32_t i = 0; i + 1 < kMost; ++i) {
    bare(i * kLanes, 0b101_workers);
    EXPECT_EQ(sent(), Runs{});
  }
  bare(3 * kLanes, 0b101_workers);
  bare(4 * kLanes, 0b001_workers);  // of the same burst
  EXPECT_EQ(sent(), (Runs{{0, 0, 5}, {2, 0, 4}}));
  EXPECT_EQ(results_.due(), BareResults::kNever);
}

TEST_F(BareResultsTest, OnlyTheNextFragmentJoins) {
  bare(0);
  bare(4);
  EXPECT_EQ(sent(), (Runs{{0, 0, 1}})) << "fragment 2 is not decided";
  bare(2);
  EXPECT_EQ(sent(), (Runs{{0, 4, 1}, {0, 2, 1}})) << "what others overtook is not kept";
}

TEST_F(BareResultsTest, ARunGoesOnOverItsWorkersOwnFragments) {
  bare(0);
  whole(2, 1, 8);
  whole(4, 2, 8);
  EXPECT_EQ(sent(), Runs{});
  bare(4);
  EXPECT_EQ(sent(), Runs{});
  whole(6, 1, 8);
  EXPECT_EQ(sent(), (Runs{{0, 0, 3}})) << "up to the last that is bare";
}

/// It cannot tell which fragments of the run it was given bytes of.
TEST_F(BareResultsTest, ARunForASwitchBelowEndsWithItsDomainsOwnFragments) {
  bare(0);
  whole(2, 1, 8, 0, false);
  EXPECT_EQ(sent(), (Runs{{0, 0, 1}}));
  bare(4);
  EXPECT_EQ(sent(), Runs{});
}

TEST_F(BareResultsTest, WhatComesBehindARunSendsIt) {
  bare(0);
  whole(4, 1, 8);
  EXPECT_EQ(sent(), (Runs{{0, 0, 1}})) << "fragment 2 is missing";
  bare(6);
  EXPECT_EQ(sent(), Runs{});
  whole(8, 1, 8, 1);
  EXPECT_EQ(sent(), (Runs{{0, 6, 1}})) << "it is of the next operation";
}

TEST_F(BareResultsTest, AnotherOperationSendsAllRuns) {
  bare(0, 0b110_workers);
  bare(2, 0b001_workers, 1);
  EXPECT_EQ(sent(), (Runs{{1, 0, 1}, {2, 0, 1}}));
}

TEST_F(BareResultsTest, TheClosingFragmentStandsForThoseOfItsOperation) {
  bare(0, 0b111_workers, 7);
  whole(2, 0, 0, 6);
  whole(2, 0, 8, 7);
  EXPECT_EQ(sent(), Runs{});
  EXPECT_NE(results_.due(), BareResults::kNever);
  whole(2, 0, 0, 7);
  EXPECT_EQ(sent(1000), Runs{});
  EXPECT_EQ(results_.due(), BareResults::kNever);
}

TEST_F(BareResultsTest, SmallWindowsAreNotMadeToWait) {
  results_.set_prompt(kJob, Rank{1}, 0, true);
  bare(0, 0b11_workers);
  EXPECT_EQ(sent(), (Runs{{1, 0, 1}}));
  results_.set_prompt(kJob, Rank{0}, 0, true);
  EXPECT_EQ(sent(), (Runs{{0, 0, 1}}));
}

TEST_F(BareResultsTest, WhoHasSaidNothingYetIsNotMadeToWait) {
  results_.add_job(kJob, {kMost, kPatience}, Seq{});
  bare(0);
  EXPECT_EQ(sent(), (Runs{{0, 0, 1}}));
}

TEST_F(BareResultsTest, ARunWaitsForAPatienceAndNoLongerThanTwo) {
  bare(0);
  EXPECT_EQ(sent(0), Runs{});
  bare(0, 0b10_workers);
  EXPECT_EQ(sent(50), Runs{});
  EXPECT_EQ(results_.due(), kPatience);
  EXPECT_EQ(sent(kPatience), Runs{});
  bare(0, 0b100_workers);
  EXPECT_EQ(results_.due(), 2 * kPatience);
  EXPECT_EQ(sent(2 * kPatience), (Runs{{0, 0, 1}, {1, 0, 1}}));
  EXPECT_EQ(sent(3 * kPatience), (Runs{{2, 0, 1}}));
}

TEST_F(BareResultsTest, WithoutPatienceNothingOutlivesItsBurst) {
  start({kMost, 0});
  bare(0);
  bare(2);
  EXPECT_EQ(sent(), (Runs{{0, 0, 2}}));
  EXPECT_EQ(results_.due(), BareResults::kNever);
}

TEST_F(BareResultsTest, AJobThatEndsTakesItsRunsAlong) {
  bare(0);
  start({kMost, kPatience});
  EXPECT_EQ(sent(10 * kPatience), Runs{});
}

TEST_F(BareResultsTest, NumbersMayWrap) {
  results_.add_job(kJob, {kMost, kPatience}, Seq{UINT32_MAX - 1});
  results_.set_prompt(kJob, Rank{0}, 0, false);
  for (uint32_t i = 0; i < kMost; ++i) bare(UINT32_MAX - 1 + i * kLanes);
  EXPECT_EQ(sent(), (Runs{{0, UINT32_MAX - 1, kMost}}));
}

/// Its window was large when it sent what comes last, and is small now.
TEST_F(BareResultsTest, AMessageThatWasOvertakenDoesNotSayThatResultsMayBeKept) {
  results_.set_prompt(kJob, Rank{0}, 40, true);
  results_.set_prompt(kJob, Rank{0}, 38, false);
  bare(0);
  EXPECT_EQ(sent(), (Runs{{0, 0, 1}}));
  results_.set_prompt(kJob, Rank{0}, 42, false);
  bare(2);
  EXPECT_EQ(sent(), Runs{});
  results_.set_prompt(kJob, Rank{0}, 20, true);
  EXPECT_EQ(sent(), (Runs{{0, 2, 1}})) << "sent again, and says how things are";
}

}  // namespace
}  // namespace ina::aggregator
