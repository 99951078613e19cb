// The ways to the switch that workers may have, and the text of a refusal. No lane runs.
#include "switchd/ports/ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ina::switchd {
namespace {

using control::PeerCredentials;
using control::request::FrameEnd;
using control::request::Reach;
using testing::HasSubstr;

const PeerCredentials kLocal{.pid = 1, .uid = 1000};
const PeerCredentials kRemote{.remote = true, .ip = 0x0a000002};

class PortsTest : public testing::Test {
 protected:
  PortsTest() {
    config_.frame_ports = {{.name = "eth0", .address = {}, .multicast = true}};
    lanes_.set_running();
  }
  static Reach frame_reach(uint32_t ip = kRemote.ip, const std::string& port = "") {
    Reach reach;
    reach.transport = "frame";
    reach.frame = FrameEnd{.address = {{2, 0, 0, 0, 0, 1}, ip, 9000},
                           .port = port,
                           .interface = 0,
                           .tags = {},
                           .multicast = true};
    return reach;
  }
  Error error(const PeerCredentials& peer, const Reach& reach) {
    const auto chosen = ports_.choose(peer, reach);
    return chosen ? Error{INA_OK, "none"} : chosen.error();
  }
  ConductorConfig config_;
  Lanes lanes_{std::vector<LaneLink*>{}};
  JobRules rules_{config_, 1};
  Resources resources_{config_, rules_};
  Ports ports_{config_, lanes_, resources_};
};

TEST_F(PortsTest, SharedMemoryIsForThisHostsWorkers) {
  const auto chosen = ports_.choose(kLocal, {.frame = {}, .parks = true});
  ASSERT_TRUE(chosen) << chosen.error().text;
  ASSERT_TRUE(chosen->shm());
  EXPECT_TRUE(chosen->shm()->takes_buffers);
  EXPECT_TRUE(chosen->parks);
  EXPECT_FALSE(chosen->frames());
  EXPECT_THAT(error(kRemote, {}).text, HasSubstr("no descriptors pass over TCP"));
  config_.has_shm = false;
  EXPECT_EQ(error(kLocal, {}).text, "this switch offers no 'shm' transport");
}

TEST_F(PortsTest, AFrameWorkerIsAtTheOnlyPortOrAtTheOneThatItNames) {
  const auto chosen = ports_.choose(kRemote, frame_reach());
  ASSERT_TRUE(chosen) << chosen.error().text;
  ASSERT_TRUE(chosen->frames());
  EXPECT_EQ(chosen->frames()->port, 0u);
  EXPECT_TRUE(chosen->frames()->multicast);
  config_.frame_ports.push_back({.name = "eth1", .address = {}});
  const auto named = ports_.choose(kRemote, frame_reach(kRemote.ip, "eth1"));
  ASSERT_TRUE(named) << named.error().text;
  EXPECT_EQ(named->frames()->port, 1u);
  EXPECT_FALSE(named->frames()->multicast) << "this port sends to no groups";
  EXPECT_THAT(error(kRemote, frame_reach(kRemote.ip, "eth2")).text,
              HasSubstr("no Ethernet port named 'eth2'; it has: eth0, eth1"));
  EXPECT_THAT(error(kRemote, frame_reach()).text, HasSubstr("has not been seen lately"));
  config_.frame_ports.clear();
  EXPECT_EQ(error(kRemote, frame_reach()).text, "this switch has no Ethernet port");
  EXPECT_THAT(error(kRemote, frame_reach(kRemote.ip, "eth0")).text, HasSubstr("it has: none"));
}

TEST_F(PortsTest, AWorkerOnAnotherHostGivesItsOwnAddress) {
  EXPECT_EQ(error(kRemote, frame_reach(0x0a000003)).status, INA_ERR_REFUSED);
  EXPECT_THAT(error(kRemote, frame_reach(0x0a000003)).text,
              HasSubstr("address.ip 10.0.0.3 is not the address 10.0.0.2"));
  EXPECT_TRUE(ports_.choose(kLocal, frame_reach(0x0a000003)));
}

TEST_F(PortsTest, ASwitchThatTagsTakesWhoeverCanTag) {
  config_.security.tag = config::Tag::kSiphash;
  EXPECT_EQ(error(kRemote, frame_reach()).status, INA_ERR_VERSION);
  Reach reach = frame_reach();
  reach.frame->tags = {control::kTagSiphash};
  const auto chosen = ports_.choose(kRemote, reach);
  ASSERT_TRUE(chosen) << chosen.error().text;
  EXPECT_FALSE(chosen->frames()->multicast) << "a tag proves a frame to one worker";
}

}  // namespace
}  // namespace ina::switchd
