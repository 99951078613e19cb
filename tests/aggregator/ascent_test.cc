// Switches of a tree, without a network: what each says to its members and to the one above.
#include "aggregator/ascent.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "aggregator/aggregator.h"
#include "tests/support/worker_literal.h"
#include "wire/message.h"

namespace ina::aggregator {
namespace {

using To = Emission::To;
using wire::Message;
using wire::Type;

constexpr uint32_t kWindow = 4;
constexpr uint32_t kSlotBytes = 64;

/// One switch with one job.
class Node {
 public:
  struct Options {
    uint32_t members = 2;
    uint32_t ranks = 4;
    uint32_t slots = 8;
    uint32_t parent_epoch = 0;  ///< 0: the root
    std::vector<uint8_t> member_of = {};
    Seq start = {};
    uint32_t park_after = 0;
  };
  static constexpr uint32_t kEpoch = 5;

  explicit Node(Options options) : options_(std::move(options)) {
    Shape shape;
    shape.slots = options_.slots;
    shape.slot_bytes = kSlotBytes;
    shape.max_jobs = 1;
    shape.burst = 4;
    shape.policy = {.kind = scheduler::PolicyKind::kEsa, .ways = 1};
    rows_.resize(Aggregator::row_memory_bytes(shape) / sizeof(Line));
    results_.resize(2 * size_t{kWindow} * kSlotBytes / sizeof(Line));
    aggregator_ = std::make_unique<Aggregator>(shape, std::as_writable_bytes(std::span(rows_)));
    JobSpec spec;
    spec.id = JobId{7};
    spec.epoch = kEpoch;
    spec.workers = options_.members;
    spec.window = kWindow;
    spec.start = options_.start;
    spec.rejoined = options_.start != Seq{};
    spec.rules.home = Home::kTree;
    spec.rules.rto_min_ns = 1000;
    spec.results = results_.data()->bytes;
    spec.seen = seen_;
    spec.park_after = options_.park_after;
    spec.tree = {.rows = tree_rows_,
                 .holders = holders_,
                 .member_of = options_.member_of.empty() ? nullptr : options_.member_of.data(),
                 .ranks = options_.ranks,
                 .has_parent = options_.parent_epoch != 0,
                 .parent_epoch = options_.parent_epoch};
    aggregator_->add_job(0, spec);
  }

  Verdict say(Message message, const void* payload, uint32_t bytes, Rank rank) {
    const RxPacket packet{message, static_cast<const std::byte*>(payload), bytes, 0, rank};
    EXPECT_FALSE(wire::validate(message, bytes, kSlotBytes));
    Verdict verdict;
    aggregator_->on_burst({&packet, 1}, now_ += 1'000'000, {&verdict, 1});
    return verdict;
  }
  /// What this switch said, as a message of a member, or of the switch above.
  Verdict say(const Emission& emission, Rank rank) {
    return say(emission.message, emission.payload, emission.payload_bytes, rank);
  }
  template <class T>
  Verdict grad(uint32_t member, uint32_t seq, const std::vector<T>& values,
               Message like = Message()) {
    like.type = Type::kGrad;
    like.epoch = kEpoch;
    like.seq = seq;
    if (like.dtype == DType{}) like.dtype = DType::kInt32;
    if (like.op == Op{}) like.op = Op::kSum;
    if (like.collective == Collective{}) like.collective = Collective::kAllReduce;
    if (!like.bare()) like.elements = static_cast<uint16_t>(values.size());
    like.operation_elements = 100;
    sent_.emplace_back(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(sent_.back().data(), values.data(), sent_.back().size());
    return say(like, sent_.back().data(), static_cast<uint32_t>(sent_.back().size()),
               Rank{static_cast<uint16_t>(member)});
  }
  Aggregator& operator*() { return *aggregator_; }
  Aggregator* operator->() { return aggregator_.get(); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  Options options_;
  std::vector<Line> rows_, results_;
  WorkerSet seen_[2 * kWindow] = {};
  WorkerSet holders_[2 * kWindow] = {};
  TreeRow tree_rows_[2 * kWindow] = {};
  std::vector<std::vector<std::byte>> sent_;
  std::unique_ptr<Aggregator> aggregator_;
  Nanos now_ = 0;
};

template <class T>
std::vector<T> values_of(const Emission& emission) {
  std::vector<T> values(emission.payload_bytes / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), emission.payload, emission.payload_bytes);
  return values;
}
using Ints = std::vector<int32_t>;

Message of_reduce(uint16_t receiver) {
  Message message;
  message.collective = Collective::kReduce;
  message.receiver = receiver;
  return message;
}

TEST(Ascent, AWholeFragmentGoesUpAndItsResultComesDown) {
  Node root({.members = 2}), leaf({.members = 2, .parent_epoch = 5});
  EXPECT_EQ(leaf.grad<int32_t>(0, 0, {1, 2}).emissions, 0);
  const Verdict whole = leaf.grad<int32_t>(1, 0, {10, 20});
  ASSERT_EQ(whole.emissions, 1);
  const Emission& part = whole.emission[0];
  EXPECT_EQ(part.to, To::kFallback);
  EXPECT_EQ(part.message.type, Type::kPart);
  EXPECT_EQ(part.message.epoch, 5u);
  EXPECT_EQ(values_of<int32_t>(part), (Ints{11, 22}));

  EXPECT_EQ(root.grad<int32_t>(1, 0, {100, 200}).emissions, 0);
  const Verdict decided = root.say(part, Rank{0});
  ASSERT_EQ(decided.emissions, 1);
  EXPECT_EQ(decided.emission[0].to, To::kAll);
  EXPECT_EQ(values_of<int32_t>(decided.emission[0]), (Ints{111, 222}));

  const Verdict given = leaf.say(decided.emission[0], kFallbackRank);
  ASSERT_EQ(given.emissions, 1);
  EXPECT_EQ(given.emission[0].to, To::kAll);
  EXPECT_EQ(given.emission[0].message.type, Type::kResult);
  EXPECT_EQ(given.emission[0].message.epoch, Node::kEpoch);
  EXPECT_EQ(values_of<int32_t>(given.emission[0]), (Ints{111, 222}));
  EXPECT_EQ(leaf->counters().slots_used, 0u);
  EXPECT_EQ(root->counters().slots_used, 0u);
}

TEST(Ascent, WhoAsksAgainByItsContributionGetsWhatThereIs) {
  Node leaf({.members = 2, .parent_epoch = 5});
  leaf.grad<int32_t>(0, 0, {1});
  const Verdict asked = leaf.grad<int32_t>(0, 0, {1});  // the other one's has not come
  ASSERT_EQ(asked.emissions, 1);
  EXPECT_EQ(asked.emission[0].message.type, Type::kPoll);
  EXPECT_EQ(asked.emission[0].message.phase, wire::Phase::kAgain);
  EXPECT_EQ(asked.emission[0].message.bitmap, 0b10_workers);
  leaf.grad<int32_t>(1, 0, {10});
  const Verdict up = leaf.grad<int32_t>(1, 0, {10});  // the part, or the result, got lost
  ASSERT_EQ(up.emissions, 1);
  EXPECT_EQ(up.emission[0].message.type, Type::kPart);
  EXPECT_EQ(values_of<int32_t>(up.emission[0]), (Ints{11}));

  Message result = up.emission[0].message;
  result.type = Type::kResult;
  const int32_t sum = 111;
  leaf.say(result, &sum, 4, kFallbackRank);
  const Verdict again = leaf.grad<int32_t>(0, 0, {1});
  ASSERT_EQ(again.emissions, 1);
  EXPECT_EQ(again.emission[0].to, To::kSender);
  EXPECT_EQ(values_of<int32_t>(again.emission[0]), (Ints{111}));
  EXPECT_EQ(leaf.say(result, &sum, 4, kFallbackRank).emissions, 0) << "given out once";
}

TEST(Ascent, WhatLeavesASlotMeetsTheRestInItsRow) {
  Node root({.members = 3, .ranks = 3, .slots = 1});
  Message urgent;
  urgent.priority = 200;
  root.grad<int32_t>(0, 0, {1});
  root.grad<int32_t>(0, 1, {2}, urgent);  // takes the slot
  EXPECT_EQ(root->counters().preemptions, 1u);
  root.grad<int32_t>(1, 0, {10});  // finds none
  const Verdict decided = root.grad<int32_t>(2, 0, {100});
  ASSERT_EQ(decided.emissions, 1);
  EXPECT_EQ(values_of<int32_t>(decided.emission[0]), (Ints{111}));
  root.grad<int32_t>(1, 1, {20}, urgent);
  const Verdict other = root.grad<int32_t>(2, 1, {200}, urgent);
  ASSERT_EQ(other.emissions, 1);
  EXPECT_EQ(values_of<int32_t>(other.emission[0]), (Ints{222}));
}

TEST(Ascent, WhatWaitsForAStragglerLeavesItsSlotForItsRow) {
  Node root({.members = 3, .ranks = 3, .park_after = 1});
  EXPECT_EQ(root.grad<int32_t>(0, 0, {1}).emissions, 0);
  const Verdict parked = root.grad<int32_t>(0, 1, {2});
  ASSERT_EQ(parked.emissions, 1);
  EXPECT_EQ(parked.emission[0].to, To::kHolders);
  EXPECT_EQ(parked.emission[0].message.type, Type::kParked);
  EXPECT_EQ(parked.emission[0].message.seq, 0u);
  EXPECT_EQ(parked.emission[0].message.bitmap, 0b1_workers);
  EXPECT_EQ(root->counters().slots_used, 1u);

  const Verdict late = root.grad<int32_t>(1, 0, {10});
  ASSERT_EQ(late.emissions, 1);
  EXPECT_EQ(late.emission[0].to, To::kSender);
  EXPECT_EQ(late.emission[0].message.type, Type::kParked);
  EXPECT_EQ(root->counters().slots_used, 1u);

  const Verdict again = root.grad<int32_t>(0, 0, {1});  // PARKED got lost
  ASSERT_EQ(again.emissions, 2);
  EXPECT_EQ(again.emission[0].message.type, Type::kPoll);
  EXPECT_EQ(again.emission[1].message.type, Type::kParked);
  EXPECT_EQ(again.emission[1].to, To::kSender);

  const Verdict last = root.grad<int32_t>(2, 0, {100});
  ASSERT_EQ(last.emissions, 1);
  EXPECT_EQ(last.emission[0].message.type, Type::kResult);
  EXPECT_EQ(values_of<int32_t>(last.emission[0]), (Ints{111}));
}

TEST(Ascent, WhatIsParkedAboveIsParkedForAllBelow) {
  Node leaf({.members = 2, .parent_epoch = 7});
  Message parked;
  parked.type = Type::kParked;
  parked.epoch = 7;
  leaf.grad<int32_t>(0, 0, {1});
  EXPECT_EQ(leaf.say(parked, nullptr, 0, kFallbackRank).emissions, 0) << "not sent yet";
  const Verdict part = leaf.grad<int32_t>(1, 0, {10});
  const Verdict below = leaf.say(parked, nullptr, 0, kFallbackRank);
  ASSERT_EQ(below.emissions, 1);
  EXPECT_EQ(below.emission[0].to, To::kHolders);
  EXPECT_EQ(below.emission[0].message.type, Type::kParked);
  EXPECT_EQ(below.emission[0].message.epoch, Node::kEpoch);
  EXPECT_EQ(below.emission[0].message.bitmap, 0b11_workers);

  Message result = part.emission[0].message;
  result.type = Type::kResult;
  const int32_t sum = 111;
  leaf.say(result, &sum, 4, kFallbackRank);
  EXPECT_EQ(leaf.say(parked, nullptr, 0, kFallbackRank).emissions, 0) << "the result is there";
}

/// Found by ina-faultsim --trees --seed 20573095: the row of fragment 8 is that of fragment 0.
TEST(Ascent, WhatNobodyNeedsAnyMoreIsNotParkedInAnothersRow) {
  Node leaf({.members = 2, .parent_epoch = 7, .park_after = 1});
  leaf.grad<int32_t>(0, 0, {1});
  Message result;
  result.type = Type::kResult;
  result.dtype = DType::kInt32;
  result.op = Op::kSum;
  result.collective = Collective::kAllReduce;
  result.elements = 1;
  result.operation_elements = 100;
  result.epoch = 7;
  const int32_t sum = 88;
  for (const uint32_t seq : {3, 7, 8}) {
    result.seq = seq;
    leaf.say(result, &sum, 4, kFallbackRank);
  }
  leaf.grad<int32_t>(0, 9, {1});
  EXPECT_EQ(leaf->counters().parked, 0u);
  const Verdict again = leaf.grad<int32_t>(1, 8, {1});
  ASSERT_EQ(again.emissions, 1);
  EXPECT_EQ(values_of<int32_t>(again.emission[0]), (Ints{88}));
}

TEST(Ascent, AMemberWithAFullWindowIsNamedToTheSwitchAbove) {
  Node leaf({.members = 2, .parent_epoch = 7, .park_after = 3});
  Message full;
  full.flags = wire::kFlagFull;
  leaf.grad<int32_t>(0, 0, {1});
  EXPECT_EQ(leaf.grad<int32_t>(1, 0, {1}).emission[0].message.flags & wire::kFlagFull, 0);
  leaf.grad<int32_t>(0, 1, {1}, full);
  EXPECT_NE(leaf.grad<int32_t>(1, 1, {1}).emission[0].message.flags & wire::kFlagFull, 0);
}

TEST(Ascent, TheRootAloneRoundsAndDividesByAllRanks) {
  Node root({.members = 2, .ranks = 4}), leaf({.members = 2, .ranks = 4, .parent_epoch = 5});
  Message average;
  average.dtype = DType::kBFloat16;
  average.op = Op::kAvg;
  // 256 + 1 is no bfloat16; 256 + 1 + 1 + 2 is, and so is a quarter of it.
  const std::vector<uint16_t> k256{0x4380}, k1{0x3f80}, k2{0x4000};
  leaf.grad(0, 0, k256, average);
  const Verdict whole = leaf.grad(1, 0, k1, average);
  ASSERT_EQ(whole.emissions, 1);
  EXPECT_EQ(values_of<float>(whole.emission[0]), std::vector<float>{257});
  root.say(whole.emission[0], Rank{0});
  Message part = whole.emission[0].message;
  const float rest = 3;
  const Verdict decided = root.say(part, &rest, 4, Rank{1});
  ASSERT_EQ(decided.emissions, 1);
  EXPECT_EQ(values_of<uint16_t>(decided.emission[0]), std::vector<uint16_t>{0x4282});  // 65
}

TEST(Ascent, AMovedPayloadGoesDownToItsReceiversDomainAlone) {
  // Rank 300 is at the second leaf, behind member 1 of the root; the payload's source at the first.
  std::vector<uint8_t> of_root(400, 0), of_second(400, TreePlace::kElsewhere);
  for (size_t rank = 200; rank < 400; ++rank) of_root[rank] = 1, of_second[rank] = 0;
  of_second[300] = 1;
  Node root({.members = 2, .ranks = 400, .member_of = of_root});
  Node second({.members = 2, .ranks = 400, .parent_epoch = 5, .member_of = of_second});
  Message payload;
  payload.collective = Collective::kGather;
  payload.receiver = 301;
  Message mark;
  mark.collective = Collective::kGather;
  mark.flags = wire::kFlagBare;
  mark.elements = 1;
  EXPECT_EQ(root.grad<int32_t>(0, 0, {7}, payload).emissions, 0) << "the second leaf's is missing";
  EXPECT_EQ(second.grad<int32_t>(0, 0, {}, mark).emissions, 0);
  const Verdict whole = second.grad<int32_t>(1, 0, {}, mark);
  ASSERT_EQ(whole.emissions, 1);
  EXPECT_TRUE(whole.emission[0].message.bare());
  const Verdict decided = root.say(whole.emission[0], Rank{1});
  ASSERT_EQ(decided.emissions, 2);
  EXPECT_EQ(decided.emission[0].message.bitmap, 0b10_workers);
  EXPECT_EQ(values_of<int32_t>(decided.emission[0]), (Ints{7}));
  EXPECT_EQ(decided.emission[1].message.bitmap, 0b01_workers);
  EXPECT_TRUE(decided.emission[1].message.bare());
  const Verdict given = second.say(decided.emission[0], kFallbackRank);
  ASSERT_EQ(given.emissions, 2);
  EXPECT_EQ(given.emission[0].message.bitmap, 0b10_workers);
  EXPECT_TRUE(given.emission[1].message.bare());
}

TEST(Ascent, ADomainWithoutTheReceiverKeepsWhatItContributed) {
  const std::vector<uint8_t> elsewhere(4, TreePlace::kElsewhere);
  Node leaf({.members = 1, .parent_epoch = 5, .member_of = elsewhere});
  const Verdict whole = leaf.grad<int32_t>(0, 0, {3}, of_reduce(4));
  ASSERT_EQ(whole.emissions, 1);
  Message bare = whole.emission[0].message;
  bare.type = Type::kResult;
  bare.flags = wire::kFlagBare;
  bare.elements = 1;
  ASSERT_EQ(leaf.say(bare, nullptr, 0, kFallbackRank).emissions, 1);
  const Verdict told = leaf.grad<int32_t>(0, 0, {3}, of_reduce(4));
  ASSERT_EQ(told.emissions, 1);
  EXPECT_TRUE(told.emission[0].message.bare());
  // The switch above has started again, and asks.
  Message poll;
  poll.type = Type::kPoll;
  poll.phase = wire::Phase::kAgain;
  poll.epoch = 6;
  const Verdict again = leaf.say(poll, nullptr, 0, kFallbackRank);
  ASSERT_EQ(again.emissions, 1);
  EXPECT_EQ(again.emission[0].message.type, Type::kPart);
  EXPECT_EQ(values_of<int32_t>(again.emission[0]), (Ints{3}));
}

TEST(Ascent, AResultThatAMemberHasIsAskedForAndNeverMadeAgain) {
  Node root({.members = 2, .start = Seq{2}});
  const Seq held[] = {Seq{1}};
  root->set_held(0, Rank{0}, held);
  const Verdict asked = root.grad<int32_t>(1, 1, {5});
  ASSERT_EQ(asked.emissions, 1);
  EXPECT_EQ(asked.emission[0].message.type, Type::kPoll);
  EXPECT_EQ(asked.emission[0].message.phase, wire::Phase::kStatus);
  EXPECT_EQ(asked.emission[0].message.bitmap, 0b01_workers);
  Message have = asked.emission[0].message;
  have.type = Type::kHave;
  have.phase = wire::Phase::kNone;
  have.dtype = DType::kInt32;
  have.op = Op::kSum;
  have.collective = Collective::kAllReduce;
  have.elements = 1;
  have.operation_elements = 100;
  const int32_t result = 42;
  const Verdict given = root.say(have, &result, 4, Rank{0});
  ASSERT_EQ(given.emissions, 1);
  EXPECT_EQ(given.emission[0].to, To::kAll);
  EXPECT_EQ(values_of<int32_t>(given.emission[0]), (Ints{42}));
  std::vector<uint64_t> has;
  root->for_each_held(0, [&](Seq seq) { has.push_back(seq.value); });
  EXPECT_EQ(has, std::vector<uint64_t>{1});
}

TEST(Ascent, AReportIsTakenBackInItsEpochAlone) {
  Node root({.members = 2, .start = Seq{2}});
  const Seq held[] = {Seq{1}};
  root->set_held(0, Rank{0}, held);
  Message sent;
  sent.type = Type::kSent;
  sent.seq = 1;
  sent.epoch = Node::kEpoch - 1;
  root.say(sent, nullptr, 0, Rank{0});
  EXPECT_EQ(root.grad<int32_t>(1, 1, {5}).emissions, 1) << "still asked for";
  sent.epoch = Node::kEpoch;
  root.say(sent, nullptr, 0, Rank{0});
  EXPECT_EQ(root.grad<int32_t>(1, 1, {5}).emissions, 0) << "added";
}

TEST(Ascent, NothingIsTakenFromAboveUntilTheSwitchHasAttachedAndNothingOldAfterwards) {
  Node leaf({.members = 1, .parent_epoch = 5});
  leaf->set_parent_epoch(0, 0);
  EXPECT_EQ(leaf.grad<int32_t>(0, 0, {3}).emissions, 0);
  Message result;
  result.type = Type::kResult;
  result.epoch = 6;
  result.dtype = DType::kInt32;
  result.op = Op::kSum;
  result.collective = Collective::kAllReduce;
  result.elements = 1;
  result.operation_elements = 100;
  const int32_t sum = 9;
  EXPECT_EQ(leaf.say(result, &sum, 4, kFallbackRank).reason, DropReason::kStaleEpoch);
  leaf->set_parent_epoch(0, 7);
  Seq from;
  Verdict waiting;
  ASSERT_TRUE(leaf->ascend_again(0, from, waiting));
  ASSERT_EQ(waiting.emissions, 1);
  EXPECT_EQ(values_of<int32_t>(waiting.emission[0]), (Ints{3}));
  EXPECT_EQ(waiting.emission[0].message.epoch, 7u);
  EXPECT_FALSE(leaf->ascend_again(0, from, waiting));
  EXPECT_EQ(leaf.say(result, &sum, 4, kFallbackRank).reason, DropReason::kStaleEpoch);
  result.epoch = 7;
  EXPECT_EQ(leaf.say(result, &sum, 4, kFallbackRank).emissions, 1);
}

TEST(Ascent, MembersThatDisagreeEndTheJobWhereverTheirContributionsMeet) {
  for (const uint32_t slots : {1, 8}) {
    Node root({.members = 2, .slots = slots});
    Message urgent;
    urgent.priority = 200;
    root.grad<int32_t>(0, 0, {1});
    if (slots == 1) root.grad<int32_t>(0, 1, {2}, urgent);  // fragment 0 goes to its row
    const Verdict verdict = root.grad<int32_t>(1, 0, {1, 2});
    EXPECT_EQ(verdict.reason, DropReason::kMismatch) << slots;
    EXPECT_EQ(verdict.first_rank, Rank{0});
  }
}

}  // namespace
}  // namespace ina::aggregator
