// A shard of the aggregator under a policy that shares slots: receive this, expect that.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "aggregator/aggregator.h"
#include "tests/support/worker_literal.h"
#include "wire/message.h"

namespace ina::aggregator {

using Fate = Verdict::Fate;
using To = Emission::To;
using scheduler::Decay;
using scheduler::PolicyKind;
using wire::Type;
using Values = std::vector<int32_t>;

inline constexpr uint32_t kWindow = 4;
inline constexpr uint32_t kSlotBytes = 64;
inline constexpr uint32_t kEpoch = 5;
inline constexpr uint32_t kInstance = 3;
inline constexpr uint32_t kBurst = 4;

/// A packet as a test describes it.
struct Said {
  Type type = Type::kGrad;
  JobIndex job = 0;
  uint32_t rank = 0;
  uint64_t seq = 0;
  Values values{};
  uint8_t priority = 10;
  uint32_t epoch = kEpoch;
  uint32_t instance = kInstance;
  uint16_t flags = 0;
  wire::Origin origin{};
  WorkerSet bitmap = {};
};

class PolicyTest : public testing::Test {
 protected:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  using Lines = std::vector<Line>;
  struct JobMemory {
    Lines results;
    std::vector<WorkerSet> seen;
    std::vector<uint8_t> parked_at;

    JobMemory() { hold(kWindow); }
    void hold(uint32_t window) {
      results.assign(2 * size_t{window} * kSlotBytes / 64, {});
      seen.assign(JobSpec::seen_words(window, 1), {});
      parked_at.assign(JobSpec::seen_words(window, 1), 0);
    }
  };

  /// One way, so that it is plain who meets whom; `slots` 1: all fragments collide.
  void start(uint32_t slots, scheduler::PolicyOptions policy = one_way(PolicyKind::kEsa),
             uint32_t most_in_burst = kBurst) {
    shape_ = Shape{};
    shape_.slots = slots;
    shape_.slot_bytes = kSlotBytes;
    shape_.max_jobs = 4;
    shape_.burst = most_in_burst;
    shape_.policy = policy;
    rows_.assign(Aggregator::row_memory_bytes(shape_) / sizeof(Line), {});
    aggregator_ = std::make_unique<Aggregator>(shape_, std::as_writable_bytes(std::span(rows_)));
    jobs_.clear();
    next_ = 0;
  }
  void start(uint32_t slots, PolicyKind kind) { start(slots, one_way(kind)); }
  static scheduler::PolicyOptions one_way(PolicyKind kind) { return {.kind = kind, .ways = 1}; }

  JobIndex add_job(uint32_t workers, scheduler::Quota quota = {}, uint8_t priority_max = 255,
                   Home home = Home::kWorkers, Seq first = {}, GivenResult* given = nullptr) {
    jobs_.emplace_back();
    JobSpec spec;
    spec.id = JobId{100u + next_};
    spec.epoch = kEpoch;
    spec.workers = workers;
    spec.window = kWindow;
    spec.start = first;
    spec.quota = quota;
    spec.rules.priority_max = priority_max;
    spec.rules.home = home;
    spec.instance = kInstance;
    spec.results = reinterpret_cast<std::byte*>(jobs_.back().results.data());
    spec.seen = jobs_.back().seen.data();
    spec.given = given;
    aggregator_->add_job(next_, spec);
    return next_++;
  }

  /// All in one burst.
  std::vector<Verdict> burst(const std::vector<Said>& said) {
    std::vector<RxPacket> packets;
    for (const Said& one : said) {
      wire::Message message;
      message.type = one.type;
      message.epoch = one.epoch;
      message.seq = static_cast<uint32_t>(one.seq);
      // Workers know of no instance when they contribute.
      message.instance = one.type == Type::kGrad ? 0 : one.instance;
      message.flags = one.flags;
      message.origin = one.origin;
      message.bitmap = one.bitmap;
      message.elements = static_cast<uint16_t>(one.values.size());
      message.operation_elements = one.values.size();
      message.dtype = DType::kInt32;
      message.op = Op::kSum;
      message.collective = Collective::kAllReduce;
      message.priority = one.priority;
      message.rank = Rank{63};  // a lie
      sent_.push_back(one.values);
      packets.push_back({message, reinterpret_cast<const std::byte*>(sent_.back().data()),
                         static_cast<uint32_t>(one.values.size() * 4), one.job,
                         Rank{static_cast<uint8_t>(one.rank)}});
    }
    std::vector<Verdict> verdicts(packets.size());
    aggregator_->on_burst(packets, now_, verdicts);
    return verdicts;
  }
  Verdict say(const Said& said) { return burst({said})[0]; }
  Verdict grad(JobIndex job, uint32_t rank, uint64_t seq, int32_t value, uint8_t priority = 10) {
    return say({.job = job, .rank = rank, .seq = seq, .values = {value}, .priority = priority});
  }

  static Values values_of(const Emission& emission) {
    Values values(emission.payload_bytes / 4);
    if (!values.empty()) std::memcpy(values.data(), emission.payload, emission.payload_bytes);
    return values;
  }

  static void expect_part(const Emission& part, JobIndex job, uint64_t seq, WorkerSet bits,
                          const Values& values) {
    EXPECT_EQ(part.to, To::kFallback);
    EXPECT_EQ(part.job, job);
    EXPECT_EQ(part.message.type, Type::kPart);
    EXPECT_EQ(part.message.seq, static_cast<uint32_t>(seq));
    EXPECT_EQ(part.message.bitmap, bits);
    EXPECT_EQ(part.message.epoch, kEpoch);
    EXPECT_EQ(part.message.instance, kInstance);
    EXPECT_EQ(values_of(part), values);
    EXPECT_FALSE(wire::validate(part.message, part.payload_bytes, kSlotBytes));
  }
  static void expect_result(const Emission& result, uint64_t seq, const Values& values,
                            wire::Origin origin = wire::Origin::kSwitch) {
    EXPECT_EQ(result.to, To::kAll);
    EXPECT_EQ(result.message.type, Type::kResult);
    EXPECT_EQ(result.message.origin, origin);
    EXPECT_EQ(result.message.seq, static_cast<uint32_t>(seq));
    EXPECT_EQ(values_of(result), values);
  }
  static void expect_drop(const Verdict& verdict, DropReason reason) {
    EXPECT_EQ(verdict.fate, Fate::kDropped);
    EXPECT_EQ(verdict.reason, reason) << name(verdict.reason);
    EXPECT_EQ(verdict.emissions, 0);
  }
  static void expect_held(const Verdict& verdict) {
    EXPECT_EQ(verdict.fate, Fate::kAbsorbed);
    EXPECT_EQ(verdict.emissions, 0);
  }
  /// The contribution went to the fallback alone.
  static void expect_bypass(const Verdict& verdict) {
    EXPECT_EQ(verdict.fate, Fate::kForwarded);
    ASSERT_EQ(verdict.emissions, 1);
    EXPECT_EQ(verdict.emission[0].to, To::kFallback);
    EXPECT_EQ(verdict.emission[0].message.type, Type::kPart);
    EXPECT_EQ(verdict.emission[0].message.flags, wire::kFlagRaw);
  }

  /// I5, after every test.
  void TearDown() override {
    if (!aggregator_) return;
    const Counters& c = aggregator_->counters();
    EXPECT_EQ(c.packets, c.absorbed + c.forwarded + c.dropped());
    EXPECT_EQ(c.absorbed + c.bypassed, aggregator_->contributions_held() +
                                           c.contributions_in_results + c.contributions_moved +
                                           c.contributions_discarded);
    for (JobIndex job = 0; job < next_; ++job) aggregator_->remove_job(job);
    EXPECT_EQ(c.slots_used, 0u);
  }

  const Counters& counters() const { return aggregator_->counters(); }

  Shape shape_;
  Lines rows_;
  std::unique_ptr<Aggregator> aggregator_;
  std::deque<JobMemory> jobs_;
  std::deque<Values> sent_;  ///< payloads stay
  JobIndex next_ = 0;
  Nanos now_ = 0;
};

}  // namespace ina::aggregator
