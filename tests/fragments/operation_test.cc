// The fragments of an operation, and each worker's part in them.
#include "fragments/operation.h"

#include <gtest/gtest.h>

#include <vector>

namespace ina::client {
namespace {

using scheduler::Block;
using scheduler::BlockTable;

constexpr uint32_t kSlotBytes = 1024;
constexpr uint32_t kPerFragment = kSlotBytes / 4;  // int32
constexpr Rank kMe{1};
constexpr uint8_t kMine = 1 + value(kMe), kOthers = 1;

class OperationTest : public testing::Test {
 protected:
  OperationTest() {
    operation_.spec.send = send_.data();
    operation_.spec.recv = recv_.data();
    operation_.spec.dtype = DType::kInt32;
    operation_.number = 7;
    operation_.first_seq = Seq{100};
  }

  void sum(uint64_t elements) {
    operation_.spec.elements = elements;
    operation_.cut(kSlotBytes, kMe);
  }
  void move(Collective collective, const std::vector<Block>& blocks) {
    operation_.spec.collective = collective;
    operation_.spec.blocks = std::make_shared<BlockTable>(blocks, kPerFragment, uint16_t{5});
    operation_.spec.elements = operation_.spec.blocks->elements();
    operation_.cut(kSlotBytes, kMe);
  }
  TxPacket fragment(uint64_t index) const {
    TxPacket packet;
    operation_.describe(operation_.first_seq + index, kMe, packet);
    return packet;
  }
  ExpectedResult expected(uint64_t index) const {
    return operation_.expected(operation_.first_seq + index, kMe);
  }

  std::vector<std::byte> send_ = std::vector<std::byte>(16 * kSlotBytes);
  std::vector<std::byte> recv_ = std::vector<std::byte>(16 * kSlotBytes);
  Operation operation_;
};

TEST_F(OperationTest, FragmentsOfASumCoverItOnce) {
  for (const uint64_t elements : {1u, kPerFragment, kPerFragment + 1, 3 * kPerFragment - 1}) {
    sum(elements);
    uint64_t at = 0;
    for (uint64_t index = 0; index < operation_.fragments; ++index) {
      const TxPacket packet = fragment(index);
      const ExpectedResult result = expected(index);
      EXPECT_EQ(packet.payload, send_.data() + at);
      EXPECT_EQ(result.to, recv_.data() + at);
      EXPECT_EQ(packet.payload_bytes, 4u * packet.message.elements);
      EXPECT_EQ(operation_.contribution_bytes(operation_.first_seq + index), packet.payload_bytes);
      EXPECT_EQ(result.elements, packet.message.elements);
      EXPECT_EQ(result.signature, packet.message.signature());
      at += packet.payload_bytes;
    }
    EXPECT_EQ(at, 4 * elements);
    EXPECT_EQ(operation_.to_receive, operation_.fragments);
  }
}

TEST_F(OperationTest, NothingIsOneFragmentToo) {
  sum(0);
  EXPECT_EQ(operation_.fragments, 1u);
  EXPECT_EQ(fragment(0).payload_bytes, 0u);
  EXPECT_EQ(fragment(0).payload, nullptr);
}

TEST_F(OperationTest, TargetsFollowTheFragments) {
  operation_.spec.target = 1 + 8;
  sum(3 * kPerFragment);
  for (uint32_t index = 0; index < 3; ++index)
    EXPECT_EQ(fragment(index).message.target, 9 + index * kSlotBytes / wire::kTargetUnitBytes);
}

TEST_F(OperationTest, ASourceSendsAndTheOthersMark) {
  move(Collective::kScatter, {{kPerFragment, 0, 0, kMine, kOthers},
                              {2 * kPerFragment, 0, 0, kOthers, kMine},
                              {kPerFragment, kPerFragment, 0, kMine, kOthers}});
  const Seq first = operation_.first_seq;
  EXPECT_FALSE(fragment(0).message.bare());
  EXPECT_TRUE(fragment(1).message.bare());
  EXPECT_EQ(fragment(1).payload_bytes, 0u);
  EXPECT_EQ(operation_.marks_from(first, kMe), 0u);
  EXPECT_EQ(operation_.marks_from(first + 1, kMe), 2u);
  EXPECT_EQ(operation_.marks_from(first + 2, kMe), 1u);
  EXPECT_EQ(fragment(3).payload, send_.data() + kSlotBytes);
  EXPECT_EQ(operation_.to_receive, 2u);
  EXPECT_TRUE(operation_.is_for_others(first, kMe));
  EXPECT_FALSE(operation_.is_for_others(first + 1, kMe));
  EXPECT_EQ(expected(0).to, nullptr);
  EXPECT_EQ(expected(2).to, recv_.data() + kSlotBytes);
  EXPECT_EQ(expected(2).signature.receiver, kMine);
}

TEST_F(OperationTest, TheLastFragmentCloses) {
  move(Collective::kReduce, {{2 * kPerFragment, 0, 0, 0, kOthers}});
  ASSERT_EQ(operation_.fragments, 3u);
  EXPECT_FALSE(operation_.is_closing(operation_.end() - 2));
  EXPECT_TRUE(operation_.is_closing(operation_.end() - 1));
  EXPECT_EQ(fragment(2).payload_bytes, 0u);
  EXPECT_FALSE(operation_.is_for_others(operation_.end() - 1, kMe)) << "all hear of it";
  EXPECT_EQ(operation_.to_receive, 0u);
}

TEST_F(OperationTest, AnotherTableIsAnotherSignature) {
  const std::vector<Block> blocks = {{kPerFragment, 0, 0, 0, kOthers}};
  move(Collective::kReduce, blocks);
  const wire::Signature one = operation_.signature();
  operation_.spec.blocks = std::make_shared<BlockTable>(blocks, kPerFragment, uint16_t{6});
  EXPECT_NE(operation_.signature(), one);
}

TEST_F(OperationTest, AHeldOperationIsCutAgain) {
  move(Collective::kReduce, {{2 * kPerFragment, 0, 0, 0, kMine}});
  EXPECT_TRUE(operation_.closes);
  operation_.spec.blocks = nullptr;
  operation_.spec.collective = Collective::kAllReduce;
  sum(1);
  EXPECT_FALSE(operation_.closes);
  EXPECT_EQ(operation_.fragments, 1u);
}

}  // namespace
}  // namespace ina::client
