// Contributions of a burst that are taken together: the outcome of any burst is as if its packets
// had come one at a time, each group's one after the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "aggregator/aggregator.h"
#include "aggregator/serve.h"
#include "tests/aggregator/policy_fixture.h"

namespace ina::aggregator {
namespace {

// ---- which packets are a group

RxPacket contribution(JobIndex job, uint32_t rank, uint32_t seq) {
  wire::Message message;
  message.type = Type::kGrad;
  message.seq = seq;
  message.elements = 1;
  message.operation_elements = 1;
  message.dtype = DType::kInt32;
  message.op = Op::kSum;
  message.collective = Collective::kAllReduce;
  return {message, nullptr, 4, job, Rank{static_cast<uint8_t>(rank)}};
}

std::vector<uint32_t> order_of(BurstGroups& groups, const std::vector<RxPacket>& packets) {
  groups.divide(packets);
  std::vector<uint32_t> order;
  for (const BurstGroups::Group& group : groups.all()) {
    order.push_back(group.first);
    groups.for_each_follower(group, [&](uint32_t at, const RxPacket& packet) {
      EXPECT_EQ(&packet, &packets[at]);
      order.push_back(at);
    });
    EXPECT_EQ(order.back(), group.last);
  }
  return order;
}

TEST(BurstGroups, PutsContributionsToAFragmentBehindTheFirstOfThem) {
  BurstGroups groups;
  EXPECT_EQ(order_of(groups, {contribution(0, 0, 7), contribution(0, 0, 8), contribution(0, 1, 7),
                              contribution(1, 0, 7), contribution(0, 1, 8), contribution(0, 2, 7)}),
            (std::vector<uint32_t>{0, 2, 5, 1, 4, 3}));
  EXPECT_TRUE(groups.any());
  ASSERT_EQ(groups.all().size(), 3u);
  EXPECT_EQ(groups.all()[0].size, 3u);
  EXPECT_EQ(groups.all()[1].size, 2u);
  EXPECT_EQ(groups.all()[2].size, 1u);
}

TEST(BurstGroups, KnowNothingOfTheBurstBefore) {
  BurstGroups groups;
  order_of(groups, {contribution(0, 0, 8), contribution(0, 0, 7), contribution(0, 1, 7)});
  EXPECT_EQ(order_of(groups, {contribution(0, 0, 7), contribution(0, 0, 9), contribution(0, 2, 8)}),
            (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_FALSE(groups.any());
}

TEST(BurstGroups, WhatDiffersInItsSignatureIsAnotherGroup) {
  const std::vector<void (*)(wire::Message&)> changes = {
      [](wire::Message& m) { m.operation_elements = 2; },
      [](wire::Message& m) { m.operation = 2; },
      [](wire::Message& m) { m.dtype = DType::kFloat32; },
      [](wire::Message& m) { m.op = Op::kMax; },
      [](wire::Message& m) { m.collective = Collective::kReduce; },
      [](wire::Message& m) { m.target = 1; },
      [](wire::Message& m) { m.receiver = 1; },
      [](wire::Message& m) { m.elements = 0; },
      [](wire::Message& m) { m.epoch = 2; },
      [](wire::Message& m) { m.type = Type::kQuery; },
      [](wire::Message& m) { m.flags = wire::kFlagBare; }};
  for (const auto change : changes) {
    BurstGroups groups;
    std::vector<RxPacket> packets = {contribution(0, 0, 7), contribution(0, 1, 7)};
    order_of(groups, packets);
    EXPECT_TRUE(groups.any());
    change(packets[1].message);
    order_of(groups, packets);
    EXPECT_FALSE(groups.any());
  }
}

// ---- what becomes of them

using GroupsTest = PolicyTest;

TEST_F(GroupsTest, OnlyThoseAreNotedThatAskForMoreThanToBeCounted) {
  start(8, one_way(PolicyKind::kEsa), 130);
  add_job(64);
  std::vector<Said> said;
  for (uint32_t i = 0; i < 130; ++i) said.push_back({.rank = i % 60, .seq = i / 60, .values = {1}});
  const std::vector<size_t> again = {1, 63, 65, 129};
  for (const size_t i : again) said[i] = said[i - 1];
  const auto verdicts = burst(said);
  std::vector<size_t> noted;
  aggregator_->for_each_noted([&](size_t i) { noted.push_back(i); });
  EXPECT_EQ(noted, again);
  for (const size_t i : again) expect_drop(verdicts[i], DropReason::kDuplicate);
  grad(0, 63, 0, 1);
  aggregator_->for_each_noted([&](size_t) { ADD_FAILURE() << "of the burst before"; });
}

TEST_F(GroupsTest, AWholeFragmentNeverTouchesItsRow) {
  start(1);
  add_job(3);
  std::memset(rows_.data(), 0x5a, rows_.size() * sizeof(Line));
  const auto before = rows_.front();
  const auto verdicts = burst({{.rank = 2, .seq = 1, .values = {1, 2}},
                               {.rank = 0, .seq = 1, .values = {10, 20}},
                               {.rank = 1, .seq = 1, .values = {100, 200}}});
  expect_held(verdicts[0]);
  expect_held(verdicts[1]);
  ASSERT_EQ(verdicts[2].emissions, 1);
  expect_result(verdicts[2].emission[0], 1, {111, 222});
  EXPECT_EQ(std::memcmp(&before, rows_.data(), sizeof(before)), 0);
  EXPECT_EQ(counters().groups, 1u);
  EXPECT_EQ(counters().grouped, 3u);
}

TEST_F(GroupsTest, AWholeFragmentHasHadASlotForAMoment) {
  start(1);
  add_job(2);
  burst({{.rank = 0, .seq = 0, .values = {1}}, {.rank = 1, .seq = 0, .values = {2}}});
  EXPECT_EQ(counters().slots_used, 0u);
  EXPECT_EQ(counters().slots_used_peak, 1u);
  EXPECT_EQ(aggregator_->job_counters(0).slots_held_peak, 1u);
}

TEST_F(GroupsTest, AWholeFragmentForWhichNoSlotIsFreeGoesToTheFallback) {
  start(1);
  add_job(2);
  add_job(2);
  expect_held(grad(1, 0, 0, 7, 200));
  for (const Verdict& verdict : burst({{.rank = 0, .seq = 0, .values = {1}, .priority = 1},
                                       {.rank = 1, .seq = 0, .values = {2}, .priority = 1}}))
    EXPECT_EQ(verdict.fate, Fate::kForwarded);
  EXPECT_EQ(counters().bypassed, 2u);
}

TEST_F(GroupsTest, WhatTheRowHoldsIsAddedToo) {
  start(4);
  add_job(4);
  expect_held(grad(0, 3, 0, 1000));
  for (const Verdict& verdict :
       burst({{.rank = 0, .seq = 0, .values = {1}}, {.rank = 1, .seq = 0, .values = {10}}}))
    expect_held(verdict);
  EXPECT_EQ(counters().grouped, 2u);
  const Verdict last = grad(0, 2, 0, 100);
  ASSERT_EQ(last.emissions, 1);
  expect_result(last.emission[0], 0, {1111});
}

TEST_F(GroupsTest, AWorkerCountsOnceInAGroup) {
  start(4);
  add_job(3);
  const auto verdicts = burst({{.rank = 0, .seq = 0, .values = {1}},
                               {.rank = 1, .seq = 0, .values = {10}},
                               {.rank = 1, .seq = 0, .values = {10}},
                               {.rank = 2, .seq = 0, .values = {100}}});
  expect_drop(verdicts[2], DropReason::kDuplicate);
  ASSERT_EQ(verdicts[3].emissions, 1);
  expect_result(verdicts[3].emission[0], 0, {111});
}

TEST_F(GroupsTest, WhatLeavesItsSlotTakesAllOfTheGroupAlong) {
  start(1);
  add_job(3);
  add_job(3);
  const auto verdicts = burst({{.rank = 0, .seq = 0, .values = {1}, .priority = 1},
                               {.job = 1, .rank = 0, .seq = 0, .values = {7}, .priority = 200},
                               {.rank = 1, .seq = 0, .values = {10}, .priority = 1}});
  ASSERT_EQ(verdicts[1].emissions, 1);
  expect_part(verdicts[1].emission[0], 0, 0, 0b11_workers, {11});
}

TEST_F(GroupsTest, WhatFollowsAPartIsTheWholeGroup) {
  start(1);
  add_job(3);
  add_job(2);
  expect_held(grad(0, 0, 0, 1, 1));
  ASSERT_EQ(grad(1, 0, 0, 7, 200).emissions, 1) << "takes the slot";
  ASSERT_EQ(grad(1, 1, 0, 7, 200).emissions, 1) << "gives it back";
  const auto verdicts =
      burst({{.rank = 1, .seq = 0, .values = {10}}, {.rank = 2, .seq = 0, .values = {100}}});
  expect_held(verdicts[0]);
  ASSERT_EQ(verdicts[1].emissions, 1);
  expect_part(verdicts[1].emission[0], 0, 0, 0b110_workers, {110});
}

// ---- all of it at random, against one packet at a time

/// Everything that a test can see of a verdict.
struct Seen {
  std::string text;
  std::vector<std::byte> payloads;
  friend bool operator==(const Seen&, const Seen&) = default;
  friend void PrintTo(const Seen& seen, std::ostream* out) { *out << seen.text; }
};

Seen look_at(const Verdict& verdict) {
  Seen seen;
  const auto add = [&](uint64_t number) { seen.text += " " + std::to_string(number); };
  add(static_cast<uint64_t>(verdict.fate));
  if (verdict.fate == Fate::kDropped) seen.text += name(verdict.reason);
  for (const Emission& emission : verdict.to_send()) {
    const wire::Message& m = emission.message;
    for (const uint64_t number : {static_cast<uint64_t>(emission.to),
                                  uint64_t{value(emission.worker)},
                                  uint64_t{emission.job},
                                  m.bitmap.bits(),
                                  m.operation_elements,
                                  uint64_t{m.operation},
                                  uint64_t{m.epoch},
                                  uint64_t{m.seq},
                                  uint64_t{m.instance},
                                  uint64_t{m.elements},
                                  uint64_t{m.flags},
                                  static_cast<uint64_t>(m.type),
                                  static_cast<uint64_t>(m.dtype),
                                  static_cast<uint64_t>(m.op),
                                  static_cast<uint64_t>(m.collective),
                                  uint64_t{value(m.rank)},
                                  uint64_t{m.priority},
                                  static_cast<uint64_t>(m.origin),
                                  uint64_t{m.receiver},
                                  uint64_t{m.target}})
      add(number);
    seen.payloads.insert(seen.payloads.end(), emission.payload,
                         emission.payload + emission.payload_bytes);
  }
  return seen;
}

struct Kind {
  DType dtype;
  Op op;
  Collective collective;
  uint8_t receiver = 0;
};

constexpr Kind kKinds[] = {
    {DType::kFloat32, Op::kSum, Collective::kAllReduce},
    {DType::kInt8, Op::kSum, Collective::kAllReduce},
    {DType::kInt8, Op::kProduct, Collective::kAllReduce},
    {DType::kFloat16, Op::kAvg, Collective::kReduceScatter, 2},
    {DType::kBFloat16, Op::kSum, Collective::kReduce, 1},
    {DType::kInt64, Op::kBxor, Collective::kAllReduce},
    {DType::kFloat64, Op::kProduct, Collective::kAllReduce},
    {DType::kFloat32, Op::kMin, Collective::kAllReduce},
    {DType::kInt32, Op::kSum, Collective::kBroadcast},
    {DType::kInt32, Op::kMax, Collective::kReduce, 2},
    {DType::kUInt8, Op::kBor, Collective::kAllReduce},
    {DType::kBool, Op::kSum, Collective::kAllReduce},
    {DType::kInt64, Op::kBand, Collective::kReduceScatter, 1},
};

/// One switch: a shard and the memory of its jobs.
class Switch {
 public:
  static constexpr uint32_t kSlots = 6, kRowBytes = 128, kJobs = 3, kMostInBurst = 24, kWindow = 4;
  static constexpr uint32_t kBufferUnits = 4;

  Switch(scheduler::PolicyOptions policy, uint32_t workers, bool parks) {
    shape_.slots = scheduler::traits(policy.kind).hashed ? kSlots : kJobs * 2 * kWindow;
    shape_.slot_bytes = kRowBytes;
    shape_.max_jobs = kJobs;
    shape_.burst = kMostInBurst;
    shape_.policy = policy;
    rows_.resize(Aggregator::row_memory_bytes(shape_) / sizeof(Line));
    shard_ = std::make_unique<Aggregator>(shape_, std::as_writable_bytes(std::span(rows_)));
    for (uint32_t job = 0; job < kJobs; ++job) {
      JobSpec spec;
      spec.id = JobId{100u + job};
      spec.epoch = kEpoch;
      spec.workers = workers;
      spec.window = kWindow;
      spec.instance = kInstance;
      spec.pool = {job * 2 * kWindow, 2 * kWindow, 1, 0};
      spec.quota.floor = job == 1 ? 2 : 0;
      results_[job].resize(2 * kWindow * kRowBytes / sizeof(Line));
      spec.results = reinterpret_cast<std::byte*>(results_[job].data());
      seen_[job].assign(JobSpec::seen_words(kWindow, 1), {});
      spec.seen = seen_[job].data();
      placed_[job].assign(JobSpec::seen_words(kWindow, 1), 0);
      spec.placed = placed_[job].data();
      spec.joining = {.most = 3, .patience = 6};
      if (parks) {
        parked_at_[job].assign(JobSpec::seen_words(kWindow, 1), 0);
        spec.parked_at = parked_at_[job].data();
        spec.park_after = 2;
        spec.park_room = 3;
      }
      shard_->add_job(static_cast<JobIndex>(job), spec);
      shard_->add_result_buffer(static_cast<JobIndex>(job),
                                {0, kBufferUnits, reinterpret_cast<std::byte*>(&buffers_[job])});
    }
  }

  std::vector<Verdict> decide(std::span<const RxPacket> packets, Nanos now) {
    std::vector<Verdict> verdicts(packets.size());
    shard_->on_burst(packets, now, verdicts);
    return verdicts;
  }
  /// Carries the verdicts out, and returns the bare results that are sent now.
  std::string bare_results(std::span<const RxPacket> packets, std::span<const Verdict> verdicts,
                           Nanos now) {
    std::string sent;
    const auto send = [&](JobIndex job, Rank rank, const Emission& emission) {
      const wire::Message& m = emission.message;
      if (m.type != Type::kResult || !m.bare() || emission.to != Emission::To::kHolders) return;
      for (const uint64_t number : {uint64_t{job}, uint64_t{value(rank)}, uint64_t{m.seq},
                                    uint64_t{m.elements}, uint64_t{m.flags}})
        sent += std::to_string(number) + " ";
      sent += "\n";
    };
    for (size_t i = 0; i < packets.size(); ++i)
      carry_out(*shard_, verdicts[i], packets[i].rank, send);
    send_bare_results(*shard_, now, send);
    return sent;
  }
  Aggregator& shard() { return *shard_; }
  bool has_same_results(const Switch& other) const {
    const auto same = [](const auto& a, const auto& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(Line)) == 0;
    };
    return std::ranges::equal(results_, other.results_, same) &&
           std::ranges::equal(buffers_, other.buffers_, same);
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  Shape shape_;
  std::vector<Line> rows_;
  std::array<std::vector<Line>, kJobs> results_;
  using Buffer = std::array<Line, kBufferUnits * wire::kTargetUnitBytes / sizeof(Line)>;
  std::array<Buffer, kJobs> buffers_{};
  std::array<std::vector<WorkerSet>, kJobs> seen_;
  std::array<std::vector<uint8_t>, kJobs> parked_at_;
  std::array<std::vector<uint64_t>, kJobs> placed_;
  std::unique_ptr<Aggregator> shard_;
};

struct RandomCase {
  PolicyKind policy;
  uint32_t ways;
  bool parks;
};

class RandomBursts : public testing::TestWithParam<RandomCase> {
 protected:
  using Random = std::mt19937_64;

  /// Mostly what workers that keep to the protocol might send, again and again, in any order.
  RxPacket draw(Aggregator& shard, const std::vector<std::byte>& memory, uint32_t workers,
                Random& random) {
    const auto job = static_cast<JobIndex>(random() % Switch::kJobs);
    const uint64_t end = shard.results_end(job).value;
    const uint64_t seq = end + random() % (Switch::kWindow + 3) - std::min<uint64_t>(end, 3);
    const Kind& kind = kKinds[(seq / 4 + job) % std::size(kKinds)];
    RxPacket packet;
    wire::Message& m = packet.message;
    m.type = Type::kGrad;
    m.epoch = random() % 50 == 0 ? kEpoch - 1 : kEpoch;
    m.seq = static_cast<uint32_t>(seq);
    m.dtype = kind.dtype;
    m.op = kind.op;
    m.collective = kind.collective;
    m.receiver = kind.receiver;
    m.operation_elements = 1000;
    m.elements = static_cast<uint16_t>(
        (1 + seq % 3 * 5) % (Switch::kRowBytes / wire_bytes(accumulator_of(kind.dtype)) + 1));
    if (kind.collective == Collective::kAllReduce && seq % 3 == 0)
      m.target = 1 + seq % Switch::kBufferUnits;
    m.priority = static_cast<uint8_t>(random() % 40);
    if (random() % 3 == 0) m.flags |= wire::kFlagPrompt;
    if (random() % 10 == 0) m.flags |= wire::kFlagEcn;
    if (random() % 10 == 0) m.flags |= wire::kFlagFull;
    packet.job = job;
    packet.rank = Rank{static_cast<uint8_t>(random() % (random() % 40 == 0 ? 64 : workers))};
    if (is_moved(kind.collective) && value(packet.rank) != 0) {
      m.flags |= wire::kFlagBare;
      m.elements = 1;
    } else {
      packet.payload_bytes = m.elements * wire_bytes(kind.dtype);
      packet.payload = memory.data() + random() % (memory.size() - packet.payload_bytes);
    }
    if (random() % 4000 == 0) m.operation = 1;  // which ends the job
    // Under `fcfs` slots wait for the fallback's messages.
    const bool waits = scheduler::traits(shard.shape().policy.kind).held_until_acknowledged;
    if (random() % (waits ? 3 : 30) == 0) say_something_else(packet, random);
    return packet;
  }

  static void say_something_else(RxPacket& packet, Random& random) {
    wire::Message& m = packet.message;
    switch (random() % 3) {
      case 0:
        m.type = Type::kQuery;
        m.flags = 0;
        break;
      case 1:
        m.type = Type::kRemind;
        m.instance = kInstance;
        m.flags = 0;
        packet.rank = Rank{0};
        break;
      default:  // a result of the fallback
        if (m.bare()) return;
        m.type = Type::kResult;
        m.origin = wire::Origin::kFallback;
        m.instance = kInstance;
        m.flags = 0;
        packet.rank = Rank{0};
        return;
    }
    m.elements = 0;
    packet.payload = nullptr;
    packet.payload_bytes = 0;
  }

  static std::vector<size_t> noted(const Aggregator& shard) {
    std::vector<size_t> indices;
    shard.for_each_noted([&](size_t i) { indices.push_back(i); });
    return indices;
  }
  static std::vector<size_t> to_be_noted(const std::vector<Verdict>& verdicts) {
    std::vector<size_t> indices;
    for (size_t i = 0; i < verdicts.size(); ++i)
      if (verdicts[i].fate != Verdict::Fate::kAbsorbed || verdicts[i].emissions != 0)
        indices.push_back(i);
    return indices;
  }

  static void expect_same_counters(Aggregator& grouped, Aggregator& single) {
    Counters counters = grouped.counters();
    counters.groups = counters.grouped = 0;
    EXPECT_EQ(std::memcmp(&counters, &single.counters(), sizeof(counters)), 0);
    for (uint32_t i = 0; i < Switch::kJobs; ++i) {
      const auto job = static_cast<JobIndex>(i);
      EXPECT_EQ(
          std::memcmp(&grouped.job_counters(job), &single.job_counters(job), sizeof(JobCounters)),
          0);
    }
    EXPECT_EQ(grouped.contributions_held(), single.contributions_held());
  }
};

TEST_P(RandomBursts, AreAsPacketsOneAtATime) {
  const auto [kind, ways, parks] = GetParam();
  uint64_t sums = 0;
  uint64_t bare_results = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const auto workers = static_cast<uint32_t>(1 + random() % 6);
    const scheduler::PolicyOptions policy{.kind = kind, .ways = ways};
    Switch grouped(policy, workers, parks), single(policy, workers, parks);
    std::vector<std::byte> memory(4096);
    // No NaN of any type: the bits of a sum of two are those of either, by the kernel's
    // instructions.
    for (std::byte& byte : memory) byte = std::byte(random() & 0xbf);
    BurstGroups groups;
    for (Nanos now = 0; now < 200; ++now) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", burst " + std::to_string(now));
      std::vector<RxPacket> packets(1 + random() % Switch::kMostInBurst);
      for (RxPacket& packet : packets) packet = draw(grouped.shard(), memory, workers, random);
      const std::vector<Verdict> verdicts = grouped.decide(packets, now);
      std::vector<Verdict> expected(packets.size());
      for (const uint32_t i : order_of(groups, packets))
        expected[i] = single.decide({&packets[i], 1}, now)[0];
      for (size_t i = 0; i < packets.size(); ++i)
        ASSERT_EQ(look_at(expected[i]), look_at(verdicts[i])) << i;
      ASSERT_EQ(noted(grouped.shard()), to_be_noted(verdicts));
      ASSERT_TRUE(grouped.has_same_results(single));
      const std::string bare = grouped.bare_results(packets, verdicts, now);
      ASSERT_EQ(bare, single.bare_results(packets, expected, now));
      bare_results += !bare.empty();
      ASSERT_NO_FATAL_FAILURE(expect_same_counters(grouped.shard(), single.shard()));
    }
    sums += grouped.shard().counters().groups;
  }
  EXPECT_GT(sums, 100u);
  EXPECT_GT(bare_results, 100u);
}

INSTANTIATE_TEST_SUITE_P(Policies, RandomBursts,
                         testing::Values(RandomCase{PolicyKind::kStatic, 1, false},
                                         RandomCase{PolicyKind::kFcfs, 1, false},
                                         RandomCase{PolicyKind::kFcfs, 4, true},
                                         RandomCase{PolicyKind::kEsa, 1, false},
                                         RandomCase{PolicyKind::kEsa, 4, false},
                                         RandomCase{PolicyKind::kEsa, 2, true}),
                         [](const auto& one) {
                           return std::string(name(one.param.policy)) + "_" +
                                  std::to_string(one.param.ways) +
                                  (one.param.parks ? "_parks" : "");
                         });

}  // namespace
}  // namespace ina::aggregator
