// The transports on which switch and worker agree, and the text of a refusal. No lane runs.
#include "switchd/jobs/transports.h"

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

class TransportsTest : public testing::Test {
 protected:
  TransportsTest() {
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
    const auto chosen = transports_.choose(peer, reach);
    return chosen ? Error{INA_OK, "none"} : chosen.error();
  }
  ConductorConfig config_;
  Lanes lanes_{std::vector<LaneLink*>{}};
  Transports transports_{config_, lanes_};
};

TEST_F(TransportsTest, SharedMemoryIsForThisHostsWorkers) {
  const auto chosen = transports_.choose(kLocal, {.frame = {}, .parks = true});
  ASSERT_TRUE(chosen) << chosen.error().text;
  EXPECT_TRUE(chosen->shm);
  EXPECT_TRUE(chosen->takes_buffers);
  EXPECT_TRUE(chosen->parks);
  EXPECT_FALSE(chosen->address);
  EXPECT_THAT(error(kRemote, {}).text, HasSubstr("no descriptors pass over TCP"));
  config_.has_shm = false;
  EXPECT_EQ(error(kLocal, {}).text, "this switch offers no 'shm' transport");
}

TEST_F(TransportsTest, AFrameWorkerIsAtTheOnlyPortOrAtTheOneThatItNames) {
  const auto chosen = transports_.choose(kRemote, frame_reach());
  ASSERT_TRUE(chosen) << chosen.error().text;
  EXPECT_FALSE(chosen->shm);
  EXPECT_EQ(chosen->frame_port, 0u);
  EXPECT_TRUE(chosen->multicast);
  config_.frame_ports.push_back({.name = "eth1", .address = {}});
  const auto named = transports_.choose(kRemote, frame_reach(kRemote.ip, "eth1"));
  ASSERT_TRUE(named) << named.error().text;
  EXPECT_EQ(named->frame_port, 1u);
  EXPECT_FALSE(named->multicast) << "this port sends to no groups";
  EXPECT_THAT(error(kRemote, frame_reach(kRemote.ip, "eth2")).text,
              HasSubstr("no Ethernet port named 'eth2'; it has: eth0, eth1"));
  EXPECT_THAT(error(kRemote, frame_reach()).text, HasSubstr("has not been seen lately"));
  config_.frame_ports.clear();
  EXPECT_EQ(error(kRemote, frame_reach()).text, "this switch has no Ethernet port");
  EXPECT_THAT(error(kRemote, frame_reach(kRemote.ip, "eth0")).text, HasSubstr("it has: none"));
}

TEST_F(TransportsTest, AWorkerOnAnotherHostGivesItsOwnAddress) {
  EXPECT_EQ(error(kRemote, frame_reach(0x0a000003)).status, INA_ERR_REFUSED);
  EXPECT_THAT(error(kRemote, frame_reach(0x0a000003)).text,
              HasSubstr("address.ip 10.0.0.3 is not the address 10.0.0.2"));
  EXPECT_TRUE(transports_.choose(kLocal, frame_reach(0x0a000003)));
}

TEST_F(TransportsTest, ASwitchThatTagsTakesWhoeverCanTag) {
  config_.security.tag = config::Tag::kSiphash;
  EXPECT_EQ(error(kRemote, frame_reach()).status, INA_ERR_VERSION);
  Reach reach = frame_reach();
  reach.frame->tags = {control::kTagSiphash};
  const auto chosen = transports_.choose(kRemote, reach);
  ASSERT_TRUE(chosen) << chosen.error().text;
  EXPECT_FALSE(chosen->multicast) << "a tag proves a frame to one worker";
}

}  // namespace
}  // namespace ina::switchd
