#include "io/bridge/loop_probe.h"

#include <gtest/gtest.h>

#include <vector>

namespace ina::bridge {
namespace {

constexpr wire::SipKey kKey{1, 2};
constexpr wire::MacAddress kOwn = {0x02, 0, 0, 0, 0, 7};

std::vector<std::byte> frame(VlanId vlan = 0) {
  const auto made = ProbeFrames(kKey).make({.port = 5, .number = 99}, kOwn, vlan);
  return {made.span().begin(), made.span().end()};
}

void expect_own(const std::vector<std::byte>& bytes) {
  const auto probe = ProbeFrames(kKey).read(bytes);
  ASSERT_TRUE(probe);
  EXPECT_EQ(probe->port, 5);
  EXPECT_EQ(probe->number, 99u);
}

TEST(LoopProbe, ComesBackAsItWasSent) {
  EXPECT_EQ(frame().size(), 60u) << "the shortest frame";
  EXPECT_EQ(frame(7).size(), 64u);
  expect_own(frame());
  expect_own(frame(7));
}

TEST(LoopProbe, GoesToAGroupThatSwitchesPassOn) {
  EXPECT_TRUE(is_group(kProbeGroup));
  EXPECT_NE(to_number(kProbeGroup) >> 24, 0x0180c2u);
  EXPECT_EQ(kProbeGroup[0] & 2, 2) << "administered locally";
}

TEST(LoopProbe, OtherSwitchesMayAddAndRemoveTags) {
  for (const auto& tags : std::vector<std::vector<int>>{
           {0x81, 0, 0, 9}, {0x88, 0xa8, 0, 9, 0x81, 0, 0, 8}, {0x91, 0, 0, 1}, {0x92, 0, 0, 1}}) {
    auto tagged = frame();
    std::vector<std::byte> bytes;
    for (const int byte : tags) bytes.push_back(std::byte(byte));
    tagged.insert(tagged.begin() + 12, bytes.begin(), bytes.end());
    expect_own(tagged);
  }
}

TEST(LoopProbe, OtherSwitchesProbesAreFramesLikeAny) {
  EXPECT_FALSE(ProbeFrames({1, 3}).read(frame()));
}

TEST(LoopProbe, ForgedAndDamagedOnesAreNone) {
  const ProbeFrames frames(kKey);
  for (size_t i = 14; i < 46; ++i) {
    auto damaged = frame();
    damaged[i] ^= std::byte{1};
    EXPECT_FALSE(frames.read(damaged)) << i;
  }
  for (size_t size = 0; size < 60; ++size) {
    auto cut = frame();
    cut.resize(size);
    EXPECT_FALSE(frames.read(cut)) << size;
  }
  auto elsewhere = frame();
  elsewhere[0] = std::byte{0xff};
  EXPECT_FALSE(frames.read(elsewhere));
}

}  // namespace
}  // namespace ina::bridge
