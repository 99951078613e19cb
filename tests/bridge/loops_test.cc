// The bridge between cables and foreign switches that make loops.
#include <gtest/gtest.h>

#include <bit>
#include <deque>
#include <vector>

#include "io/bridge/bridge.h"

namespace ina::bridge {
namespace {

constexpr Nanos kMs = 1'000'000;
constexpr Nanos kSecondNs = 1'000 * kMs;
constexpr wire::MacAddress kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

wire::MacAddress host(uint8_t number) {
  return {0x02, 0, 0, 0, 1, number};
}

/// A foreign switch without memory, or a cable: what comes in at one of its ends leaves at the
/// others.
struct Segment {
  std::vector<PortIndex> ends;
  bool hairpin = false;       ///< also at the same end
  bool passes_probes = true;  ///< and other frames of protocols that it does not know
  VlanId from = 0, to = 0;    ///< frames of the one VLAN leave in the other
};

class LoopsTest : public testing::Test {
 protected:
  static constexpr uint32_t kPorts = 5;

  LoopsTest() { plug_in(); }
  void plug_in() {
    for (PortIndex port = 0; port < kPorts; ++port) bridge_.set_link(port, true);
  }
  static std::vector<wire::MacAddress> own() {
    std::vector<wire::MacAddress> all;
    for (uint8_t port = 0; port < kPorts; ++port) all.push_back({0x02, 0, 0, 0, 0, port});
    return all;
  }
  static BridgeConfig config() {
    return {.mac_entries = 64, .hash_seed = 4711, .probe_key = {1, 2}};
  }

  /// Something on a wire, at an end of the switch.
  struct Arrival {
    PortIndex port = 0;
    Addresses frame;
    std::optional<LoopProbe> probe = std::nullopt;
  };

  void send(PortIndex port, const Addresses& sent, const std::optional<LoopProbe>& probe) {
    for (const Segment& segment : segments_) {
      Addresses frame = sent;
      if (std::ranges::find(segment.ends, port) == segment.ends.end()) continue;
      if (probe && !segment.passes_probes) continue;
      if (segment.to != 0 && frame.vlan != segment.from) continue;
      if (segment.to != 0) frame.vlan = segment.to;
      for (const PortIndex end : segment.ends)
        if (end != port || segment.hairpin) on_wire_.push_back({end, frame, probe});
    }
  }
  void receive(const Arrival& arrival) {
    if (arrival.probe) return bridge_.probe_returned(*arrival.probe, arrival.port, now_);
    const Decision decision = bridge_.decide(arrival.frame, arrival.port, now_);
    uint64_t to = 0;
    if (decision.to == Decision::To::kPort) to = uint64_t{1} << decision.port;
    if (decision.to == Decision::To::kAllOthers)
      to = bridge_.others_up(arrival.port, arrival.frame.vlan);
    for (; to != 0; to &= to - 1) {
      ++forwarded_;
      send(static_cast<PortIndex>(std::countr_zero(to)), arrival.frame, std::nullopt);
    }
  }
  /// In steps of a millisecond, in each of which a frame may go around a thousand times.
  void run(Nanos duration) {
    for (const Nanos end = now_ + duration; now_ < end; now_ += kMs) {
      bridge_.tick(now_);
      bridge_.send_probes(now_, [this](PortIndex port, const ProbeFrames::Frame& frame) {
        const auto probe = ProbeFrames(config().probe_key).read(frame.span());
        ASSERT_TRUE(probe);
        Addresses addresses = addresses_of(frame.span());
        send(port, addresses, probe);
      });
      for (int i = 0; i < 1000 && !on_wire_.empty(); ++i) {
        const Arrival arrival = on_wire_.front();
        on_wire_.pop_front();
        receive(arrival);
      }
    }
  }
  void say(PortIndex port, uint8_t from, const wire::MacAddress& to, VlanId vlan = 0) {
    receive({port, {.destination = to, .source = host(from), .vlan = vlan}});
  }
  void expect_quiet() {
    run(5 * kMs);
    const uint64_t before = forwarded_;
    run(20 * kMs);
    EXPECT_TRUE(on_wire_.empty());
    EXPECT_EQ(forwarded_, before) << "frames still circulate";
  }

  std::vector<Segment> segments_;
  Bridge bridge_{config(), own()};
  std::deque<Arrival> on_wire_;
  uint64_t forwarded_ = 0;
  Nanos now_ = kSecondNs;
};

TEST_F(LoopsTest, ACableBetweenTwoPortsIsFoundAtOnce) {
  segments_ = {{{1, 3}}};
  run(2 * kMs);
  EXPECT_EQ(bridge_.loops().blocked(), 0b1000u) << "the higher of both";
  EXPECT_EQ(bridge_.loops().block_of(3).sign, LoopSign::kProbe);
  EXPECT_EQ(bridge_.loops().block_of(3).other, 1);
  say(0, 1, kBroadcast);
  expect_quiet();
}

TEST_F(LoopsTest, ALoopThatComesLaterIsFoundWithinASecond) {
  run(700 * kMs);
  EXPECT_EQ(bridge_.loops().blocked(), 0u);
  segments_ = {{{1, 3}}};
  say(0, 1, kBroadcast);
  say(2, 2, host(1));
  run(kSecondNs);
  EXPECT_EQ(bridge_.loops().blocked(), 0b1000u);
  expect_quiet();
}

TEST_F(LoopsTest, OfThreePortsOneStaysOpen) {
  segments_ = {{{1, 2, 4}}};
  run(2 * kMs);
  EXPECT_EQ(bridge_.loops().blocked(), 0b10100u);
  say(0, 1, kBroadcast);
  expect_quiet();
}

TEST_F(LoopsTest, TwoLoopsLoseAPortEach) {
  segments_ = {{{0, 1}}, {{2, 3}}};
  run(2 * kMs);
  EXPECT_EQ(bridge_.loops().blocked(), 0b1010u);
  say(4, 1, kBroadcast);
  expect_quiet();
}

TEST_F(LoopsTest, APortThatHearsItselfIsBlocked) {
  segments_ = {{{2}, true}};
  run(2 * kMs);
  EXPECT_EQ(bridge_.loops().blocked(), 0b100u);
  EXPECT_EQ(bridge_.loops().block_of(2).other, 2);
  say(0, 1, kBroadcast);
  expect_quiet();
}

TEST_F(LoopsTest, AForeignSwitchThatJoinsVlansMakesALoop) {
  // Frames without a tag and those of other VLANs do not come back.
  segments_ = {{{1, 3}, false, true, 20, 10}, {{1, 3}, false, true, 10, 20}};
  run(kSecondNs);
  EXPECT_EQ(bridge_.loops().blocked(), 0u) << "a VLAN that nobody has used";
  say(0, 1, kBroadcast, 20);
  run(kSecondNs);
  EXPECT_EQ(bridge_.loops().blocked(), 0b1000u);
  expect_quiet();
}

TEST_F(LoopsTest, EachOfManyVlansGetsItsTurn) {
  segments_ = {{{1, 3}, false, true, 50, 50}};
  for (VlanId vlan = 1; vlan <= 60; ++vlan) {
    receive({2, {.destination = host(9), .source = host(1), .vlan = vlan}});
    on_wire_.clear();
  }
  run(kSecondNs);
  EXPECT_EQ(bridge_.loops().blocked(), 0b1000u);
}

TEST_F(LoopsTest, ThePortOpensWhenTheLoopIsGone) {
  segments_ = {{{1, 3}}};
  run(20 * kSecondNs);
  EXPECT_EQ(bridge_.loops().blocked(), 0b1000u) << "as long as it lasts";
  EXPECT_EQ(bridge_.loops().block_of(3).times, 1u) << "and never open in between";
  segments_.clear();
  run(2 * kSecondNs);
  EXPECT_EQ(bridge_.loops().blocked(), 0b1000u);
  run(2 * kSecondNs);
  EXPECT_EQ(bridge_.loops().blocked(), 0u);
  say(0, 1, kBroadcast);
  EXPECT_EQ(forwarded_, 4u);
}

TEST_F(LoopsTest, ALoopThatComesAndGoesIsBlockedEverLonger) {
  std::vector<Nanos> pauses;
  for (int i = 0; i < 4; ++i) {
    segments_ = {{{1, 3}}};
    run(500 * kMs);
    ASSERT_EQ(bridge_.loops().blocked(), 0b1000u);
    segments_.clear();
    const Nanos gone = now_;
    while (bridge_.loops().blocked() != 0 && now_ - gone < 100 * kSecondNs) run(100 * kMs);
    pauses.push_back(now_ - gone);
  }
  for (size_t i = 1; i < pauses.size(); ++i) EXPECT_GT(pauses[i], pauses[i - 1] * 3 / 2);
  // After a calm time it begins anew.
  run(LoopGuard::kCalmNs);
  segments_ = {{{1, 3}}};
  run(500 * kMs);
  segments_.clear();
  run(LoopGuard::kFirstHoldNs * 5 / 4);
  EXPECT_EQ(bridge_.loops().blocked(), 0u);
}

TEST_F(LoopsTest, WhereProbesDoNotPassAddressesShowTheLoop) {
  segments_ = {{{1, 3}, false, false}};
  say(0, 1, kBroadcast);
  run(kSecondNs);
  EXPECT_EQ(std::popcount(bridge_.loops().blocked()), 1) << bridge_.loops().blocked();
  EXPECT_NE(bridge_.loops().blocked() & 0b1010u, 0u);
  const auto blocked = static_cast<PortIndex>(std::countr_zero(bridge_.loops().blocked()));
  EXPECT_EQ(bridge_.loops().block_of(blocked).sign, LoopSign::kMoves);
  EXPECT_EQ(bridge_.loops().block_of(blocked).other, 0) << "where its host is";
  expect_quiet();
  // Each frame that is flooded shows that the loop is still there.
  for (int i = 0; i < 30; ++i) {
    say(0, 1, kBroadcast);
    run(kSecondNs);
  }
  EXPECT_EQ(bridge_.loops().block_of(blocked).times, 1u);
  segments_.clear();
  for (int i = 0; i < 4; ++i) {
    say(0, 1, kBroadcast);
    run(kSecondNs);
  }
  EXPECT_EQ(bridge_.loops().blocked(), 0u);
}

TEST_F(LoopsTest, AHostsOwnPortIsNotBlockedForAReflectionElsewhere) {
  segments_ = {{{2}, true, false}};
  for (int i = 0; i < 20; ++i) {
    say(4, 1, kBroadcast);
    run(10 * kMs);
  }
  EXPECT_EQ(bridge_.loops().blocked(), 0b100u);
}

TEST_F(LoopsTest, HostsThatMoveAreNoLoop) {
  // A foreign switch changes to its other uplink, and all its hosts with it.
  for (int round = 0; round < 2; ++round)
    for (uint8_t number = 0; number < 60; ++number)
      for (const PortIndex port : {0, 1}) say(port, number, host(200));
  // One host is carried to and fro.
  for (int i = 0; i < 20; ++i) {
    say(static_cast<PortIndex>(i % 2), 100, host(200));
    run(LoopGuard::kQuietNs);
  }
  EXPECT_EQ(bridge_.loops().blocked(), 0u);
}

TEST_F(LoopsTest, WhoTakesAnAddressGetsItsOwnPortBlocked) {
  say(0, 1, kBroadcast);
  say(4, 1, kBroadcast);  // the thief, while its victim is silent for long
  run(10 * kSecondNs);
  for (int i = 0; i < 20; ++i) {
    say(0, 1, kBroadcast);
    say(4, 1, kBroadcast);
  }
  EXPECT_EQ(bridge_.loops().blocked(), 0b10000u);
}

TEST_F(LoopsTest, RecordedProbesBlockNothing) {
  std::vector<LoopProbe> recorded;
  bridge_.send_probes(now_, [&](PortIndex, const ProbeFrames::Frame& frame) {
    recorded.push_back(*ProbeFrames(config().probe_key).read(frame.span()));
  });
  ASSERT_EQ(recorded.size(), kPorts);
  run(5 * kSecondNs);
  for (const LoopProbe& probe : recorded) bridge_.probe_returned(probe, 1, now_);
  bridge_.probe_returned({.port = 60, .number = ~uint64_t{0}}, 1, now_);
  EXPECT_EQ(bridge_.loops().blocked(), 0u);
}

TEST_F(LoopsTest, WithoutProtectionNothingIsSentOrBlocked) {
  BridgeConfig off = config();
  off.loop_protection = false;
  bridge_ = Bridge(off, own());
  plug_in();
  bridge_.send_probes(now_, [](PortIndex, const ProbeFrames::Frame&) { FAIL(); });
  bridge_.probe_returned({.port = 0, .number = 1}, 1, now_);
  for (int i = 0; i < 100; ++i) say(static_cast<PortIndex>(i % 2), 1, kBroadcast);
  EXPECT_EQ(bridge_.loops().blocked(), 0u);
}

TEST_F(LoopsTest, ABlockedPortTakesAndGetsNothing) {
  segments_ = {{{1, 3}}};
  say(3, 5, kBroadcast);
  run(2 * kMs);
  const Decision decision = bridge_.decide({.destination = kBroadcast, .source = host(6)}, 3, now_);
  EXPECT_EQ(decision.to, Decision::To::kNowhere);
  EXPECT_EQ(name(decision.reason), "blocked");
  bridge_.learn({.destination = own()[3], .source = host(6)}, 3, now_);
  EXPECT_EQ(bridge_.table().find(host(6), 0, now_), std::nullopt);
  EXPECT_EQ(bridge_.table().find(host(5), 0, now_), std::nullopt) << "forgotten";
  EXPECT_EQ(bridge_.others_up(0, 0), 0b10110u);
}

TEST_F(LoopsTest, PortsThatLeadNowhereAreNotProbed) {
  BridgeConfig files = config();
  files.unprobed = 0b10;
  bridge_ = Bridge(files, own());
  plug_in();
  bridge_.set_link(4, false);
  std::vector<PortIndex> sent;
  bridge_.send_probes(now_, [&](PortIndex port, const auto&) { sent.push_back(port); });
  EXPECT_EQ(sent, (std::vector<PortIndex>{0, 2, 3}));
}

}  // namespace
}  // namespace ina::bridge
