// How packets reach the switch, as far as no switch is needed for it: tests of joins have the rest.
#include "membership/attachment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ina::membership {
namespace {

using testing::HasSubstr;

class AttachmentTest : public testing::Test {
 protected:
  client::BulkCopier copier_{1, 1};
  Attachment attachment_{copier_};
};

TEST_F(AttachmentTest, IsInSharedMemoryUnlessFramesAreOpened) {
  EXPECT_EQ(attachment_.frames(), nullptr);
  EXPECT_EQ(attachment_.reach(), control::request::Reach());
  EXPECT_TRUE(attachment_.reopen(0)) << "there is nothing to open";
  EXPECT_TRUE(Attachment::descriptors(nullptr).empty());
}

TEST_F(AttachmentTest, TakesNoPlaceThatSaysNothingOfSharedMemory) {
  control::Heard heard;
  const auto made = attachment_.take(control::answer::Place{}, heard);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().status, INA_ERR_INTERNAL);
  EXPECT_THAT(made.error().text, HasSubstr("incomplete answer"));
}

TEST_F(AttachmentTest, FramesThatCannotBeOpenedLeaveItAsItWas) {
  const auto opened = attachment_.open(*client::parse_url("udp:nowhere"), {}, 0);
  ASSERT_FALSE(opened);
  EXPECT_EQ(attachment_.frames(), nullptr);
}

TEST(CarriesFrames, AllSchemesButSharedMemorys) {
  for (const char* const url : {"udp:10.0.0.1", "dpdk:10.0.0.1", "memif:/m?ip=10.0.0.1"})
    EXPECT_TRUE(carries_frames(*client::parse_url(url))) << url;
  for (const char* const url : {"shm:/s", "rdma:10.0.0.1"})
    EXPECT_FALSE(carries_frames(*client::parse_url(url))) << url;
}

}  // namespace
}  // namespace ina::membership
