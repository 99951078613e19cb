// Slots of a shard: how fragments are found in them, and which rows they have.
#include "aggregator/slot_array.h"

#include <gtest/gtest.h>

#include <set>

namespace ina::aggregator {
namespace {

constexpr uint32_t kSlots = 8;
constexpr uint32_t kSpare = 2;
constexpr uint32_t kRowBytes = 64;
constexpr JobIndex kJob = 3;

class SlotArrayTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  /// As the `number`th fragment of its job, which is fragment `number` of the only lane.
  void put(uint32_t index, uint64_t number, JobIndex job = kJob) {
    Slot& slot = slots_[index];
    slot.seq = Seq{number};
    slot.job = job;
    slot.state = SlotState::kFilling;
    slots_.tag(slot, number);
  }
  Slot* find(uint64_t number, uint32_t first, JobIndex job = kJob) {
    return slots_.find(job, Seq{number}, number, first);
  }
  alignas(64) std::byte rows_[(kSlots + kSpare) * kRowBytes];
  SlotArray slots_{kSlots, GetParam(), kSpare, kRowBytes, rows_, std::pmr::get_default_resource()};
};

TEST_P(SlotArrayTest, AFragmentIsFoundWhereItMayLieAndNowhereElse) {
  const uint32_t last = 4 + GetParam() - 1;  // of the set that begins with slot 4
  put(last, 100);
  EXPECT_EQ(find(100, last), &slots_[last]);
  EXPECT_EQ(find(100, 4), &slots_[last]) << "any slot of a set is as good";
  EXPECT_EQ(find(100, 4 - GetParam()), nullptr) << "another set";
  EXPECT_EQ(find(101, last), nullptr);
  EXPECT_EQ(find(100, last, kJob + 1), nullptr);
}

TEST_P(SlotArrayTest, AnEmptySlotHoldsNothing) {
  put(4, 100);
  slots_.clear(slots_[4]);
  EXPECT_EQ(find(100, 4), nullptr);
  EXPECT_EQ(slots_[4].state, SlotState::kEmpty);
  put(4, 101);
  EXPECT_EQ(find(100, 4), nullptr);
  EXPECT_EQ(find(101, 4), &slots_[4]);
}

TEST_P(SlotArrayTest, ANewFragmentIsShownTheEmptySlotOfItsSet) {
  if (!slots_.has_sets()) return;
  for (uint32_t i = 0; i < kSlots; ++i) put(i, 100 + i);
  EXPECT_EQ(slots_.tags().empty_or(4), 4u) << "there is none";
  const uint32_t last = 4 + GetParam() - 1;
  slots_.clear(slots_[last]);
  EXPECT_EQ(slots_.tags().empty_or(4), last);
}

TEST_P(SlotArrayTest, ARowThatLeftIsNobodysForSoManyChanges) {
  std::byte* const left = slots_.row_of(slots_[0]);
  slots_.change_row(slots_[0]);
  for (uint32_t i = 1; i < kSpare; ++i) {
    slots_.change_row(slots_[i]);
    for (const Slot& slot : slots_.all()) EXPECT_NE(slots_.row_of(slot), left);
  }
  slots_.change_row(slots_[kSpare]);
  EXPECT_EQ(slots_.row_of(slots_[kSpare]), left);
}

TEST_P(SlotArrayTest, NoTwoSlotsHaveTheSameRow) {
  for (uint32_t i = 0; i < 3 * kSlots; ++i) {
    Slot& slot = slots_[i * 5 % kSlots];
    slots_.change_row(slot);
    if (i % 2 != 0) slots_.clear(slot);
    std::set<std::byte*> rows;
    for (const Slot& each : slots_.all()) rows.insert(slots_.row_of(each));
    EXPECT_EQ(rows.size(), kSlots);
    EXPECT_GE(*rows.begin(), rows_);
    EXPECT_LE(*rows.rbegin() + kRowBytes, rows_ + sizeof(rows_));
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, SlotArrayTest, ::testing::Values(1, 2, 4));

/// Compared in words: each field counts, and nothing else.
TEST(Slot, ExpectsASignatureAndTheNumberOfElements) {
  wire::Message message;
  message.operation_elements = 0x123456789abcdef0;
  message.operation = 0xfedcba98;
  message.elements = 0x8001;
  message.dtype = DType::kBool;
  message.op = Op::kBxor;
  message.collective = Collective::kReduce;
  message.receiver = 0x1555;
  message.target = 0xabcdef;
  Slot slot;
  slot.set_signature(message.signature());
  slot.elements = message.elements;
  slot.flags = 0xffff;
  slot.state = SlotState::kFilling;
  slot.job = 0xffff;
  slot.priority = 0xff;
  EXPECT_TRUE(slot.expects(message));
  message.flags = 0x7ff;
  message.type = wire::Type::kGrad;
  message.phase = wire::Phase::kLost;
  message.rank = Rank{63};
  message.lane = 63;
  message.origin = wire::Origin::kParker;
  message.priority = 1;
  message.seq = message.epoch = message.instance = 7;
  EXPECT_TRUE(slot.expects(message)) << "these are no part of it";
  const auto differs = [&](auto&& change) {
    wire::Message other = message;
    change(other);
    EXPECT_NE(other.signature() == slot.signature() && other.elements == slot.elements, true);
    return !slot.expects(other);
  };
  for (uint32_t bit = 0; bit < 64; ++bit)
    EXPECT_TRUE(differs([&](auto& m) { m.operation_elements ^= uint64_t{1} << bit; })) << bit;
  for (uint32_t bit = 0; bit < 32; ++bit)
    EXPECT_TRUE(differs([&](auto& m) { m.operation ^= 1u << bit; })) << bit;
  for (uint32_t bit = 0; bit < 24; ++bit)
    EXPECT_TRUE(differs([&](auto& m) { m.target = (m.target ^ 1u << bit) & 0xffffff; })) << bit;
  for (uint32_t bit = 0; bit < 16; ++bit)
    EXPECT_TRUE(differs([&](auto& m) { m.elements ^= static_cast<uint16_t>(1u << bit); })) << bit;
  for (uint32_t bit = 0; bit < 13; ++bit)
    EXPECT_TRUE(differs([&](auto& m) { m.receiver = (m.receiver ^ 1u << bit) & 0x1fff; })) << bit;
  EXPECT_TRUE(differs([](auto& m) { m.dtype = DType::kInt8; }));
  EXPECT_TRUE(differs([](auto& m) { m.op = Op::kSum; }));
  EXPECT_TRUE(differs([](auto& m) { m.collective = Collective::kBarrier; }));
}

}  // namespace
}  // namespace ina::aggregator
