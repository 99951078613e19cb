// The engine's recovery: questions for results that do not come, their times, and the answers.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/fragments/engine_fixture.h"

namespace ina::client {
namespace {

TEST_F(EngineTest, OverdueFragmentIsSentAgainWithGrowingPatience) {
  submit(64);
  send(0);
  EXPECT_EQ(engine_->next_deadline(), kRto);
  EXPECT_TRUE(send(kRto - 1).empty());
  EXPECT_EQ(send(kRto).size(), 1u);
  EXPECT_EQ(engine_->next_deadline(), 2 * kRto) << "no more patience at first";
  EXPECT_EQ(send(2 * kRto).size(), 1u);
  EXPECT_EQ(send(3 * kRto).size(), 1u);
  EXPECT_EQ(engine_->next_deadline(), 5 * kRto) << "then twice as much";
  Nanos now = 5 * kRto;
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(send(now).size(), 1u);
    EXPECT_LE(engine_->next_deadline(), now + 8 * kRto) << "capped";
    now = engine_->next_deadline();
  }
  EXPECT_EQ(engine_->counters().fragments_resent, 7u);
  EXPECT_EQ(engine_->counters().queries, 2u) << "each fourth time the fallback is asked";
}

TEST_F(EngineTest, RecoversWhatIsLostAsFastAsTheFallbackCan) {
  send_a_wide_window();
  const auto oldest = send(kRto);
  ASSERT_EQ(oldest.size(), 64u) << "no more at once, though all 256 are overdue";
  const auto recover = [&](size_t first, size_t count, Nanos now) {
    PlainCopier copier;
    for (size_t i = first; i < first + count; ++i) {
      RxPacket poll{oldest[i].message, nullptr, 0};
      poll.message.type = wire::Type::kPoll;
      poll.message.phase = wire::Phase::kBind;
      poll.message.bitmap = WorkerSet::of(Rank{3});
      engine_->on_packets({&poll, 1}, now, copier);
      const auto raw = send(now);
      ASSERT_EQ(raw.size(), 1u);
      EXPECT_EQ(raw[0].message.type, wire::Type::kDefer);
      result(raw[0], 1, now, [](wire::Message& m) { m.origin = wire::Origin::kFallback; });
    }
  };
  recover(0, 31, kRto + 2);
  EXPECT_TRUE(send(kRto + 3).empty());
  recover(31, 1, kRto + 4);
  EXPECT_EQ(engine_->next_deadline(), kRto + 4) << "half of them are there";
  const auto more = send(kRto + 4);
  ASSERT_EQ(more.size(), 64u);
  EXPECT_EQ(more[0].message.seq, 64u);
}

TEST_F(EngineTest, WhatWasOnlyLateIsNotAskedFor) {
  const auto packets = send_a_wide_window();
  ASSERT_EQ(send(kRto).size(), 64u);
  for (size_t i = 0; i < 64; ++i) result(packets[i], 1, kRto + 2);
  EXPECT_TRUE(send(kRto + 3).empty()) << "who was waited for has come";
}

TEST_F(EngineTest, ResultOfAnOverdueFragmentStopsItsResending) {
  submit(64 * 2);
  const auto packets = send(0);
  TxPacket overdue[8];
  ASSERT_EQ(engine_->prepare(overdue, kRto), 2u);
  engine_->sent(0, kRto);  // no room in the transport
  result(packets[0], 5, kRto + 1);
  ASSERT_EQ(engine_->prepare(overdue, kRto + 2), 1u);
  EXPECT_EQ(overdue[0].message.seq, 1u);
}

TEST_F(EngineTest, SlowRoundTripsStretchTheTimeout) {
  submit(64);
  const auto first = send(0);
  result(first[0], 1, 50 * kRto);
  submit(64);
  send(60 * kRto);
  EXPECT_GT(engine_->next_deadline(), 60 * kRto + 50 * kRto);
}

TEST_F(EngineTest, WhatACrowdHasLostIsNotRecoveredAtTheCrowdsPace) {
  constexpr Nanos kCrowded = 1000 * kRto;
  constexpr uint32_t kFragments = 1000;
  EngineConfig shared = config();
  shared.window = 1024;
  shared.rules.policy = scheduler::PolicyKind::kFcfs;
  shared.rules.home = Home::kDedicated;
  engine_.emplace(shared);
  const Operation* operation = submit(64 * kFragments);
  std::vector<TxPacket> sent;
  while (sent.size() < kFragments) {
    const auto some = send(0);
    sent.insert(sent.end(), some.begin(), some.end());
  }
  Nanos now = kCrowded;
  result(sent[0], 1, now);
  // All the others are lost, and decided when they are asked for a second time.
  std::vector<int> asked(kFragments);
  for (; !operation->done && now < 100 * kCrowded; now = std::max(now, engine_->next_deadline())) {
    for (auto some = send(now); !some.empty(); some = send(now))
      for (const TxPacket& packet : some)
        if (packet.message.type == wire::Type::kQuery && ++asked[packet.message.seq] == 2)
          result(sent[packet.message.seq], 1, now + 1000,
                 [](auto& m) { m.origin = wire::Origin::kFallback; });
    if (operation->done) break;
  }
  EXPECT_TRUE(operation->done);
  EXPECT_LT(now, 8 * kCrowded) << "two long time-outs, and then short ones";
}

// ---- lossy links

class LossRecoveryTest : public LossyLinkTest {
 protected:
  LossRecoveryTest() { start(0); }
  void start(uint32_t in_switch) {
    EngineConfig shared = config();
    shared.in_switch = in_switch;
    shared.window = 256;
    shared.lossy_link = true;
    shared.rules.policy = scheduler::PolicyKind::kFcfs;
    shared.rules.home = Home::kDedicated;
    shared.rules.rto_min_ns = 100'000'000;
    shared.rules.rto_max_ns = 200'000'000;
    engine_.emplace(shared);
  }
  size_t questions_for(const TxPacket& fragment, Nanos now) {
    return static_cast<size_t>(std::ranges::count_if(send_all(now), [&](const TxPacket& packet) {
      return packet.message.type == wire::Type::kQuery &&
             packet.message.seq == fragment.message.seq;
    }));
  }
  Nanos wait_for_the_last_one(wire::Origin origin, uint16_t flags, int operations_between = 0);
  Nanos wait_after_late_results(Nanos late, uint16_t flags);
  /// How long each of the next questions has to wait, when nobody answers.
  std::vector<Nanos> gaps_between_questions(const TxPacket& fragment, Nanos now, size_t count) {
    std::vector<Nanos> gaps;
    for (Nanos asked = now; gaps.size() < count;) {
      if (questions_for(fragment, now = engine_->next_deadline()) == 0) continue;
      gaps.push_back(now - asked);
      asked = now;
    }
    return gaps;
  }
};

TEST_F(LossRecoveryTest, WhatWasOvertakenIsAskedForOftenAndThenWithPatience) {
  submit(64 * 40);
  Nanos now = 0;
  const auto first = send_all(now);
  for (const TxPacket& packet : std::span(first).subspan(1)) result(packet, 1, now += 10'000);
  result(send_all(now).back(), 1, now += 10'000);
  EXPECT_EQ(questions_for(first.front(), now), 1u);
  const std::vector<Nanos> gaps = gaps_between_questions(first.front(), now, 20);
  EXPECT_LE(gaps.front(), 2'000'000) << "the answer to the first is only POLL status";
  for (size_t i = 1; i < 8; ++i) EXPECT_EQ(gaps[i], gaps.front()) << "steps may be lost, too";
  EXPECT_GE(gaps[10], 4 * gaps.front()) << "a straggler is not asked for ever";
  EXPECT_LE(gaps.back(), 200'000'000);
}

/// Answers are as large as results, and each is one that a slow link has still to bring.
TEST_F(LossRecoveryTest, NothingIsAskedForAgainBeforeTheLinkCanHaveBroughtTheAnswers) {
  constexpr Nanos kBetweenResults = 225'000;  // 1,408 bytes at 50 Mbit/s
  Nanos now = 0;
  for (int i = 0; i < 10; ++i) {
    submit(64 * 4);
    for (const TxPacket& packet : send_all(now)) result(packet, 1, now += kBetweenResults);
  }
  submit(64 * 40);
  const auto packets = send_all(now);
  ASSERT_GE(packets.size(), 16u) << "many more than were under way when round trips were measured";
  result(packets[1], 1, now += kBetweenResults);
  const Nanos answers = kBetweenResults * static_cast<Nanos>(packets.size());
  for (const Nanos gap : gaps_between_questions(packets.front(), now, 4))
    EXPECT_GE(gap, answers * 9 / 10);
}

TEST_F(LossRecoveryTest, NothingIsLateWhileTheResultsBeforeItCome) {
  submit(64 * 20);
  Nanos now = 0;
  const auto packets = send_all(now);
  // Its time-out is 100 ms.
  for (const TxPacket& packet : std::span(packets).first(packets.size() - 1)) {
    result(packet, 1, now += 50'000'000);
    EXPECT_EQ(questions_for(packets.back(), now), 0u);
  }
  EXPECT_LE(gaps_between_questions(packets.back(), now, 1).front(), 200'000'000);
}

TEST_F(LossRecoveryTest, ResultsThatCameAfterTheTimeOutDoNotMakeItLonger) {
  submit(64 * 20);
  Nanos now = 0;
  for (const TxPacket& packet : send_all(now)) {
    result(packet, 1, now += 50'000'000);
    send_all(now);
  }
  submit(64 * 4);
  EXPECT_LE(gaps_between_questions(send_all(now).front(), now, 1).front(), 300'000'000);
}

/// All results of an operation come late, and each has been asked for once. Until when the next
/// operation's first fragment is asked for; `flags`: of the answers to these questions.
Nanos LossRecoveryTest::wait_after_late_results(Nanos late, uint16_t flags) {
  submit(64 * 4);
  Nanos now = 0;
  const auto packets = send_all(now);
  EXPECT_EQ(questions_for(packets.front(), now += 100'000'000), 1u);
  now = late;
  for (const TxPacket& packet : packets) result(packet, 1, now);
  for (const TxPacket& packet : packets)
    result(packet, 1, now, [flags](wire::Message& message) { message.flags |= flags; });
  submit(64 * 4);
  return gaps_between_questions(send_all(now).front(), now, 1).front();
}

TEST_F(LossRecoveryTest, AnAnswerToANeedlessQuestionSaysHowLongRoundTripsAre) {
  constexpr Nanos kLate = 150'000'000;
  EXPECT_GE(wait_after_late_results(kLate, wire::kFlagAgain), kLate);
}

/// What comes twice by itself says nothing: the question may have been what made it come.
TEST_F(LossRecoveryTest, AResultThatWasAskedForSaysNothingOfRoundTrips) {
  EXPECT_EQ(wait_after_late_results(150'000'000, 0), 100'000'000);
}

TEST_F(LossRecoveryTest, WhatMayGoRoundByTheFallbackIsAskedForWithPatience) {
  submit(64 * 40);
  Nanos now = 0;
  const auto first = send_all(now);
  const auto split = [](wire::Message& message) { message.flags |= wire::kFlagSplit; };
  for (const TxPacket& packet : std::span(first).subspan(1))
    result(packet, 1, now += 10'000, split);
  const auto later = send_all(now += 50'000'000);
  result(later.back(), 1, now += 10'000);
  EXPECT_EQ(questions_for(first.front(), now), 1u);
  EXPECT_GE(gaps_between_questions(first.front(), now, 1).front(), 90'000'000);
}

/// One fragment is overtaken, asked for and then given out by `origin`, with `flags`. Some time
/// later the last one has no result, and nothing overtakes it: how long until it is asked for.
/// `operations_between`: without a loss, of 12 fragments each.
Nanos LossRecoveryTest::wait_for_the_last_one(wire::Origin origin, uint16_t flags,
                                              int operations_between) {
  submit(64 * 12);
  Nanos now = 0;
  auto packets = send_all(now);
  for (const TxPacket& packet : std::span(packets).subspan(1)) result(packet, 1, now += 10'000);
  submit(64 * 12);
  for (const TxPacket& packet : send_all(now))
    if (packet.message.type == wire::Type::kGrad) result(packet, 1, now += 1'000'000);
  EXPECT_EQ(questions_for(packets.front(), now), 1u);
  result(packets.front(), 1, now, [&](wire::Message& message) {
    message.origin = origin;
    message.flags |= flags;
  });
  for (int i = 0; i < operations_between; ++i) {
    submit(64 * 12);
    for (const TxPacket& packet : send_all(now)) result(packet, 1, now += 10'000);
  }
  submit(64 * 12);
  packets = send_all(now);
  for (const TxPacket& packet : std::span(packets).first(packets.size() - 1))
    result(packet, 1, now += 10'000);
  return gaps_between_questions(packets.back(), now, 1).front();
}

TEST_F(LossRecoveryTest, TheLastOneIsAskedForWhereTheLinkLoses) {
  EXPECT_LE(wait_for_the_last_one(wire::Origin::kSwitch, wire::kFlagAgain), 10'000'000)
      << "the switch gave a result again";
}

TEST_F(LossRecoveryTest, AResultThatIsMerelyLateIsNoLoss) {
  EXPECT_GE(wait_for_the_last_one(wire::Origin::kSwitch, 0), 90'000'000);
}

TEST_F(LossRecoveryTest, ALinkLosesForAFewTimesWhatIsInTheSwitch) {
  EXPECT_LE(wait_for_the_last_one(wire::Origin::kSwitch, wire::kFlagAgain, 4), 10'000'000);
  start(12);  // of a window of 256
  EXPECT_GE(wait_for_the_last_one(wire::Origin::kSwitch, wire::kFlagAgain, 4), 90'000'000);
}

TEST_F(LossRecoveryTest, WhatGoesRoundByTheFallbackWasNotLost) {
  EXPECT_GE(wait_for_the_last_one(wire::Origin::kFallback, 0), 90'000'000);
}

TEST_F(LossRecoveryTest, WhereSlotsAreShortWhatIsOvertakenMayBeOnItsWay) {
  submit(64 * 40);
  Nanos now = 0;
  const auto first = send_all(now);
  const auto split = [](wire::Message& message) { message.flags |= wire::kFlagSplit; };
  for (const TxPacket& packet : std::span(first).subspan(1))
    result(packet, 1, now += 1'000'000, split);
  result(send_all(now).back(), 1, now += 10'000, split);
  EXPECT_EQ(questions_for(first.front(), now), 0u);
}

TEST_F(LossRecoveryTest, WhereNothingWasLostSomebodyIsSlow) {
  submit(64 * 20);
  Nanos now = 0;
  const auto packets = send_all(now);
  for (const TxPacket& packet : std::span(packets).first(packets.size() - 1))
    result(packet, 1, now += 10'000);
  EXPECT_GE(gaps_between_questions(packets.back(), now, 1).front(), 90'000'000);
}

/// Nothing that is sent later overtakes it for longer than reordering may take.
TEST_F(LossRecoveryTest, WhatIsMissedAmongTheLastOnesIsAskedForSoon) {
  submit(64 * 20);
  Nanos now = 0;
  const auto packets = send_all(now);
  for (size_t i = 0; i < packets.size(); ++i)
    if (i != 10) result(packets[i], 1, now += 1'000);
  EXPECT_EQ(questions_for(packets[10], now += 400'000), 0u) << "it may come yet";
  EXPECT_LE(gaps_between_questions(packets[10], now, 1).front(), 200'000);
}

TEST_F(LossRecoveryTest, WhatIsMissedWhereFragmentsAreSplitIsNot) {
  submit(64 * 20);
  Nanos now = 0;
  const auto packets = send_all(now);
  const auto split = [](wire::Message& message) { message.flags |= wire::kFlagSplit; };
  for (size_t i = 0; i < packets.size(); ++i)
    if (i != 10) result(packets[i], 1, now += 1'000, split);
  EXPECT_GE(gaps_between_questions(packets[10], now, 1).front(), 90'000'000);
}

/// The switch says that it lacks a contribution.
class SentAgainTest : public LossRecoveryTest {
 protected:
  std::vector<TxPacket> lose_one() {
    submit(64 * 24);
    auto packets = send_all(now_);
    for (const TxPacket& packet : std::span(packets).subspan(1)) result(packet, 1, now_ += 10'000);
    return packets;
  }
  void ask_for(const TxPacket& fragment, wire::Phase phase = wire::Phase::kLost) {
    RxPacket poll{fragment.message, nullptr, 0};
    poll.message.type = wire::Type::kPoll;
    poll.message.phase = phase;
    PlainCopier copier;
    engine_->on_packets({&poll, 1}, now_, copier);
  }
  size_t sent_again(const TxPacket& fragment) {
    return static_cast<size_t>(std::ranges::count_if(send(now_), [&](const TxPacket& packet) {
      return packet.message.type == wire::Type::kGrad && packet.message.seq == fragment.message.seq;
    }));
  }
  Nanos now_ = 0;
};

TEST_F(SentAgainTest, ItsContributionOnceForAllThatAsk) {
  const auto packets = lose_one();
  now_ += 1'000'000;
  ask_for(packets[0]);
  ask_for(packets[0]);
  EXPECT_EQ(sent_again(packets[0]), 1u);
  ask_for(packets[0]);
  EXPECT_EQ(sent_again(packets[0]), 0u) << "it is still on its way";
  now_ += 1'000'000;
  ask_for(packets[0]);
  EXPECT_EQ(sent_again(packets[0]), 1u) << "lost once more";
}

/// The worker's link may have become slower: its queue would grow with each needless copy.
TEST_F(SentAgainTest, NothingThatMayBeInTheWorkersOwnQueue) {
  const auto packets = lose_one();
  ask_for(packets[0], wire::Phase::kAgain);
  EXPECT_EQ(sent_again(packets[0]), 0u) << "others left with it, and have their results";
  submit(64 * 2);
  const auto later = send_all(now_ += 1'000'000);
  result(later[0], 1, now_ += 10'000);
  ask_for(packets[0], wire::Phase::kAgain);
  EXPECT_EQ(sent_again(packets[0]), 1u) << "one that left well after it has its result";
}

TEST_F(SentAgainTest, WhatMayBeInAQueueWhenNothingHasComeForLong) {
  const auto packets = lose_one();
  now_ += 200'000'000;
  ask_for(packets[0], wire::Phase::kAgain);
  EXPECT_EQ(sent_again(packets[0]), 1u);
}

TEST_F(SentAgainTest, TheCopySaysThatItIsOne) {
  const auto packets = lose_one();
  EXPECT_EQ(packets[0].message.flags & wire::kFlagAgain, 0);
  now_ += 1'000'000;
  ask_for(packets[0]);
  const auto sent = send(now_);
  const auto copy = std::ranges::find_if(sent, [&](const TxPacket& packet) {
    return packet.message.type == wire::Type::kGrad && packet.message.seq == packets[0].message.seq;
  });
  ASSERT_NE(copy, sent.end());
  EXPECT_NE(copy->message.flags & wire::kFlagAgain, 0);
}

/// A later result says that nobody is waited for any more.
TEST_F(SentAgainTest, PatienceEndsWhenAllHaveSentIt) {
  const auto packets = lose_one();
  ask_for(packets[0]);
  send_all(now_);
  result(packets[0], 1, now_ += 10'000);
  submit(64 * 2);
  const auto late = send_all(now_);
  ASSERT_EQ(late.size(), 2u);
  EXPECT_GE(gaps_between_questions(late[0], now_, 16).back(), 50'000'000);
  now_ += 200'000'000;
  send_all(now_);
  result(late[1], 1, now_);
  EXPECT_LE(gaps_between_questions(late[0], now_, 1).front(), 2'000'000);
}

TEST_F(SentAgainTest, NothingThatHasItsResultOrWasNotSent) {
  const auto packets = lose_one();
  now_ += 1'000'000;
  ask_for(packets[1]);
  TxPacket later = packets[0];
  later.message.seq = 1000;
  ask_for(later);
  for (const TxPacket& packet : send_all(now_))
    EXPECT_NE(packet.message.seq, packets[1].message.seq);
}

/// The switch's part of it went with the epoch: the fallback must collect the contributions.
TEST_F(SentAgainTest, NothingOfAnOlderEpoch) {
  const auto packets = lose_one();
  engine_->set_epoch(config().epoch + 1, now_ += 1'000'000);
  ask_for(packets[0]);
  EXPECT_EQ(sent_again(packets[0]), 0u);
}

TEST_F(SentAgainTest, EachFourthQuestionIsForTheFallback) {
  const auto packets = lose_one();
  std::vector<bool> quick;
  while (quick.size() < 8) {
    now_ = std::max(now_ + 1, engine_->next_deadline());
    for (const TxPacket& packet : send_all(now_))
      if (packet.message.type == wire::Type::kQuery && packet.message.seq == packets[0].message.seq)
        quick.push_back((packet.message.flags & wire::kFlagQuick) != 0);
  }
  EXPECT_EQ(quick, (std::vector{true, true, true, false, true, true, true, false}));
}

}  // namespace
}  // namespace ina::client
