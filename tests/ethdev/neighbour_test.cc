#include "io/ethdev/neighbour.h"

#include <gtest/gtest.h>

#include "tests/ethdev/frames.h"

namespace ina::io {
namespace {

TEST(Neighbour, AnswersArpRequestForOwnAddress) {
  Bytes frame = arp_request(kWorkers[0], kSwitch.ip);
  ASSERT_TRUE(answer_in_place(frame, kSwitch));
  EXPECT_EQ(frame, arp_reply(kSwitch, kWorkers[0]));
}

TEST(Neighbour, LeavesOtherArpAlone) {
  Bytes for_other = arp_request(kWorkers[0], kWorkers[1].ip);
  Bytes reply = arp_reply(kWorkers[0], kSwitch);
  Bytes cut = arp_request(kWorkers[0], kSwitch.ip);
  cut.resize(41);
  for (Bytes* frame : {&for_other, &reply, &cut}) {
    const Bytes before = *frame;
    EXPECT_FALSE(answer_in_place(*frame, kSwitch));
    EXPECT_EQ(*frame, before);
  }
}

TEST(Neighbour, AnswersEchoWithCorrectChecksums) {
  for (uint16_t id = 0; id < 2000; id = static_cast<uint16_t>(id + 37)) {
    Bytes frame = echo(kWorkers[0], kSwitch, 8, id);
    ASSERT_TRUE(answer_in_place(frame, kSwitch));
    // Both checksums must hold, whichever way zero is written.
    EXPECT_EQ(internet_checksum({frame.data() + 14, 20}), 0);
    EXPECT_EQ(internet_checksum({frame.data() + 34, frame.size() - 34}), 0);
    Bytes expected = echo(kSwitch, kWorkers[0], 0, id);
    expected[36] = frame[36];
    expected[37] = frame[37];
    EXPECT_EQ(frame, expected);
  }
}

TEST(Neighbour, LeavesOtherIcmpAlone) {
  Bytes for_other = echo(kWorkers[0], kWorkers[1], 8, 1);
  Bytes reply = echo(kWorkers[0], kSwitch, 0, 1);
  Bytes fragment = echo(kWorkers[0], kSwitch, 8, 1);
  fragment[20] = std::byte{0x20};
  wire::Address group = kWorkers[0];
  group.ip = 0xe0000001;
  Bytes from_group = echo(group, kSwitch, 8, 1);
  Bytes cut = echo(kWorkers[0], kSwitch, 8, 1);
  cut.resize(41);
  for (Bytes* frame : {&for_other, &reply, &fragment, &from_group, &cut}) {
    const Bytes before = *frame;
    EXPECT_FALSE(answer_in_place(*frame, kSwitch));
    EXPECT_EQ(*frame, before);
  }
}

TEST(Neighbour, SurvivesEveryLength) {
  constexpr size_t kHeadersBytes = 42;  // of either
  for (const Bytes& whole :
       {arp_request(kWorkers[0], kSwitch.ip), echo(kWorkers[0], kSwitch, 8, 1)}) {
    Bytes answer = whole;
    ASSERT_TRUE(answer_in_place(answer, kSwitch));
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes of " << whole.size());
      const auto beginning = [&](const Bytes& frame) {
        return Bytes(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(bytes));
      };
      // A block of its own of just that size, so that AddressSanitizer sees what is read behind it.
      Bytes frame = beginning(whole);
      const uint32_t meant = addressed_ip(frame);
      EXPECT_TRUE(meant == 0 || meant == kSwitch.ip);
      const bool answers = bytes >= kHeadersBytes;
      EXPECT_EQ(answer_in_place(frame, kSwitch), answers);
      EXPECT_EQ(frame, beginning(answers ? answer : whole));
    }
  }
}

TEST(Neighbour, KnowsWhoIsMeant) {
  EXPECT_EQ(addressed_ip(arp_request(kWorkers[0], 0x0a0000fe)), 0x0a0000feu);
  EXPECT_EQ(addressed_ip(echo(kWorkers[0], kWorkers[1], 8, 1)), kWorkers[1].ip);
  EXPECT_EQ(addressed_ip(arp_reply(kWorkers[0], kSwitch)), 0u) << "a reply is for a MAC address";
  Bytes other = echo(kWorkers[0], kSwitch, 8, 1);
  store(other, 12, 0x8100, 2);
  EXPECT_EQ(addressed_ip(other), 0u);
}

}  // namespace
}  // namespace ina::io
