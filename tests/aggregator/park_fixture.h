// A shard with a job whose fragments are parked, for tests of straggler help.
#pragma once

#include "tests/aggregator/policy_fixture.h"

namespace ina::aggregator {

inline constexpr uint32_t kParkAfter = 2;

class ParkTest : public PolicyTest {
 protected:
  /// A job of three whose fragments are parked once the second after them begins.
  JobIndex add_parking_job(uint32_t park_room, Home home = Home::kWorkers,
                           uint32_t park_missing = kMaxWorkers) {
    jobs_.emplace_back();
    JobSpec spec;
    spec.id = JobId{100u + next_};
    spec.epoch = kEpoch;
    spec.workers = 3;
    spec.window = window_;
    jobs_.back().hold(window_);
    spec.rules.home = home;
    spec.instance = kInstance;
    spec.park_after = kParkAfter;
    spec.park_pressure = pressure_;
    spec.park_patience = patience_;
    spec.park_window = kParkAfter;
    spec.park_begin = park_begin_;
    spec.park_if_it_pays = park_if_it_pays_;
    spec.parked_at = jobs_.back().parked_at.data();
    spec.park_room = park_room;
    spec.park_missing = park_missing;
    spec.park_home = park_home_;
    spec.results = reinterpret_cast<std::byte*>(jobs_.back().results.data());
    spec.seen = jobs_.back().seen.data();
    spec.links_lose = links_lose_;
    if (lossy_) spec.given = given_.data();
    aggregator_->add_job(next_, spec);
    return next_++;
  }

  /// Ranks 0 and 1 send fragments 0 and 1, and rank 0 then fragment 2; rank 2 is slow. Returns what
  /// becomes of the last.
  Verdict leave_behind(JobIndex job) {
    for (uint64_t seq = 0; seq < kParkAfter; ++seq)
      for (uint32_t rank = 0; rank < 2; ++rank)
        expect_held(grad(job, rank, seq, static_cast<int32_t>(10 * seq + rank + 1)));
    return grad(job, 0, kParkAfter, 21);
  }

  uint64_t parked_now(JobIndex job) const { return aggregator_->job_counters(job).parked_now; }

  static void expect_parked(const Emission& parked, To to, uint64_t seq, WorkerSet holders = {}) {
    EXPECT_EQ(parked.to, to);
    EXPECT_EQ(parked.message.type, Type::kParked);
    EXPECT_EQ(parked.message.seq, static_cast<uint32_t>(seq));
    EXPECT_EQ(parked.message.epoch, kEpoch);
    EXPECT_EQ(parked.message.bitmap, holders);
    EXPECT_EQ(parked.payload_bytes, 0u);
  }

  Verdict part_of_parker(JobIndex job, uint32_t rank, WorkerSet bits, const Values& values) {
    return say({.type = Type::kPart,
                .job = job,
                .rank = rank,
                .values = values,
                .origin = wire::Origin::kParker,
                .bitmap = bits});
  }
  /// The switch's only message is one PART, with the contributions of `bits`, for rank 0 to keep.
  static void expect_part_to_parker(const Verdict& verdict, WorkerSet bits) {
    ASSERT_EQ(verdict.emissions, 1);
    EXPECT_EQ(verdict.emission[0].to, To::kWorker);
    EXPECT_EQ(verdict.emission[0].worker, Rank{0});
    EXPECT_EQ(verdict.emission[0].message.type, Type::kPart);
    EXPECT_EQ(verdict.emission[0].message.origin, wire::Origin::kParker);
    EXPECT_EQ(verdict.emission[0].message.bitmap, bits);
  }
  Verdict result_of_parker(JobIndex job, uint32_t rank, const Values& values) {
    return say({.type = Type::kResult,
                .job = job,
                .rank = rank,
                .values = values,
                .origin = wire::Origin::kParker});
  }
  void start_lossy() {
    lossy_ = true;
    given_.assign(JobSpec::seen_words(window_, 1), GivenResult{});
    start(16);
  }
  /// Where a question, which the switch may answer, goes.
  To asked_for(JobIndex job, uint64_t seq, uint32_t rank = 2, uint16_t flags = wire::kFlagQuick) {
    return say({.type = Type::kQuery, .job = job, .rank = rank, .seq = seq, .flags = flags})
        .emission[0]
        .to;
  }

  uint32_t window_ = kWindow;
  uint32_t park_begin_ = 0;
  bool park_if_it_pays_ = false;
  uint32_t pressure_ = 0;
  Nanos patience_ = 0;
  bool park_home_ = false;
  bool links_lose_ = true;
  bool lossy_ = false;  ///< the switch answers questions
  std::vector<GivenResult> given_;
};

}  // namespace ina::aggregator
