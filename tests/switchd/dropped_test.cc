// Messages to a worker on an Ethernet port about its dropped frames, by a conductor whose lane
// reports a test's numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <thread>

#include "control/client.h"
#include "switchd/conductor.h"
#include "switchd/lanes/lane.h"
#include "switchd/reports/look_schedule.h"
#include "tests/support/control_peer.h"
#include "tests/support/temp_dir.h"

namespace ina {
namespace {

using control::Json;
using io::DroppedFrames;
using switchd::Conductor;
using switchd::Lane;
using switchd::LaneLink;
using switchd::LookSchedule;
using test::Peer;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

constexpr uint32_t kSlotBytes = 1024;
const wire::Address kJoined{{2, 0, 0, 0, 0, 1}, 0x7f000001, 9000};
const wire::Address kPort{{2, 0, 0, 0, 0, 9}, 0x0a000001, 7584};

/// Has dropped what a test has put there before the switch began.
struct FakePort : switchd::NoFramePort {
  Result<io::EndpointIndex> bind(const wire::Address&, JobId, uint64_t, io::JobIndex, Rank rank,
                                 const std::optional<wire::TagKeys>&, JobId) {
    return static_cast<io::EndpointIndex>(value(rank));
  }
  std::span<const DroppedFrames> dropped(JobId) const { return frames; }
  bool heard(io::EndpointIndex endpoint) const { return endpoint != silent; }
  std::vector<DroppedFrames> frames;
  std::optional<io::EndpointIndex> silent;
};

DroppedFrames dropped(DropReason reason, const wire::Address& source, uint32_t rank = 0,
                      uint64_t count = 3) {
  return {reason, Rank{static_cast<uint8_t>(rank)}, source, kPort, count};
}

class DroppedTest : public testing::Test {
 protected:
  ~DroppedTest() override { stop(); }

  /// A job whose two workers, and fallback server, joined for the first of the two ports.
  void start(Home home = Home::kWorkers) {
    switchd::ConductorConfig config;
    config.control.socket = folder_ / "switch.sock";
    config.aggregator.slots = 64;
    config.aggregator.slot_bytes = kSlotBytes;
    config.static_pools.slots_per_job = 32;
    config.control.listen = "127.0.0.1:0";
    config.control.allow_anonymous = true;
    // On a busy machine the conductor's time passes without anybody's doing.
    config.work.burst_ns = 3'600'000'000'000;
    config.rules.home = home;
    config.frame_ports = {{port_name_, kPort}, {"eth1", {{2, 0, 0, 0, 0, 8}, 0x0a000002, 7584}}};
    auto state = switchd::StateFile::open(folder_ / "state");
    ASSERT_TRUE(state);
    switchd::LaneConfig lane;
    lane.shape.slots = 64;
    lane.shape.slot_bytes = kSlotBytes;
    lane.shape.max_jobs = config.switchd.max_jobs;
    lane.shape.lanes = 1;
    rows_.resize(aggregator::Aggregator::row_memory_bytes(lane.shape) / sizeof(Line));
    lane_ = std::make_unique<Lane<FakePort>>(lane, std::as_writable_bytes(std::span(rows_)), link_,
                                             std::vector<FakePort*>{&ports_[0], &ports_[1]});
    conductor_ = std::make_unique<Conductor>(config, std::move(*state), std::vector{&link_});
    const auto opened = conductor_->open();
    ASSERT_TRUE(opened) << opened.error().text;
    threads_.emplace_back([this] { lane_->run(); });
    threads_.emplace_back([this] { conductor_->run(); });
    for (int rank = 0; rank < 2; ++rank) {
      workers_.emplace_back("tcp:127.0.0.1:" + std::to_string(conductor_->tcp_port()));
      Json join = test::frame_join("", "", rank);
      join["port"] = port_name_;
      const Json joined = workers_.back().ask(join);
      ASSERT_EQ(joined["type"], "joined") << joined;
    }
    if (home == Home::kDedicated) {
      ASSERT_NO_FATAL_FAILURE(start_server(config.control.socket));
    }
    Json heard[2];
    for (int rank = 0; rank < 2; ++rank) heard[rank] = workers_[rank].ask({{"type", "attach"}});
    for (int rank = 0; rank < 2; ++rank) {
      while (heard[rank]["type"] == "waiting") heard[rank] = workers_[rank].hear();
      ASSERT_EQ(heard[rank]["type"], "ready") << heard[rank];
    }
  }
  void start_server(const std::string& socket) {
    Peer server(socket);
    ASSERT_EQ(server.ask({{"type", "serve"}, {"version", control::kControlVersion}})["type"],
              "serving");
    Json join = {{"type", "join_fallback"},
                 {"job_id", server.ask({{"type", "next_job"}})["job_id"]},
                 {"transport", "frame"},
                 {"port", port_name_}};
    join["address"] = {{"mac", {2, 0, 0, 0, 0, 64}}, {"ip", kJoined.ip}, {"udp_port", 9064}};
    server_.emplace(socket);
    ASSERT_EQ(server_->ask(join)["type"], "joined");
    ASSERT_TRUE(server_->send({{"type", "attach"}}));
  }
  void stop() {
    if (!conductor_) return;
    conductor_->stop();
    threads_[1].join();
    switchd::Posted<switchd::command::Stop> stop;
    link_.post(&stop);
    threads_[0].join();
    conductor_.reset();
  }
  /// The text that the workers' time-outs would have.
  std::string explained() {
    Json answer = workers_[1].ask({{"type", "explain"}});
    while (answer.value("type", "explain") != "explain") answer = workers_[1].hear();
    return answer.value("text", "");
  }

  struct alignas(64) Line {
    std::byte bytes[64];
  };
  test::TempDir folder_;
  std::string port_name_ = "eth0";  ///< of the first
  std::vector<Line> rows_;
  FakePort ports_[2];
  LaneLink link_;
  std::unique_ptr<Lane<FakePort>> lane_;
  std::unique_ptr<Conductor> conductor_;
  std::vector<std::thread> threads_;
  std::deque<Peer> workers_;
  std::optional<Peer> server_;
};

struct Case {
  DropReason reason;
  uint32_t port;
  wire::Address source;
  const char* cause;
};

class DroppedFor : public DroppedTest, public testing::WithParamInterface<Case> {};

TEST_P(DroppedFor, IsSaidToWhoeverWaits) {
  ports_[GetParam().port].frames = {dropped(GetParam().reason, GetParam().source)};
  ASSERT_NO_FATAL_FAILURE(start());
  const std::string text = explained();
  EXPECT_THAT(text, HasSubstr("the switch dropped 3 frames of rank 0 on port eth" +
                              std::to_string(GetParam().port) + ": " +
                              std::string(name(GetParam().reason)) + ": " + GetParam().cause));
  EXPECT_THAT(text, Not(HasSubstr("rank 1")));
}

INSTANTIATE_TEST_SUITE_P(
    Causes, DroppedFor,
    testing::Values(
        Case{DropReason::kUnknownSource, 1, kJoined,
             "they come in by port eth1, but it joined for port eth0: say port=eth1 in its URL"},
        Case{DropReason::kUnknownSource,
             0,
             {kJoined.mac, 0x0a000007, 9000},
             "they come from 10.0.0.7:9000, but it joined as 127.0.0.1:9000: say ip= in its URL"},
        Case{DropReason::kUnknownSource,
             0,
             {kJoined.mac, kJoined.ip, 9001},
             "they come from 127.0.0.1:9001, but it joined as 127.0.0.1:9000: UDP ports must not"},
        Case{DropReason::kUnknownSource,
             0,
             {{2, 0, 0, 0, 0, 7}, kJoined.ip, 9000},
             "they come from MAC address 02:00:00:00:00:07, but it joined with 02:00:00:00:00:01"},
        Case{DropReason::kBadTag, 0, kJoined,
             "something between it and the switch changes frames or addresses"},
        Case{DropReason::kNotIna, 1, kJoined,
             "they are sent to 10.0.0.1:7584, and this port takes them at 10.0.0.2:7584"},
        Case{DropReason::kStaleEpoch, 0, kJoined, describe(DropReason::kStaleEpoch).data()}));

TEST_F(DroppedTest, TheMostFrequentCauseIsNamedAndAllAreCounted) {
  ports_[0].frames = {dropped(DropReason::kBadTag, kJoined, 0, 5),
                      dropped(DropReason::kStaleEpoch, kJoined, 0, 1),
                      dropped(DropReason::kBadTag, kJoined, 40, 9)};  // the job has no rank 40
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_THAT(explained(), HasSubstr("dropped 6 frames of rank 0 on port eth0: bad_tag: "));
  EXPECT_THAT(explained(), Not(HasSubstr("rank 40")));
}

TEST_F(DroppedTest, AWorkerOfWhomNothingCameInIsNamed) {
  ports_[0].silent = io::EndpointIndex{1};
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_THAT(explained(), HasSubstr("no frame of rank 1 has come in by port eth0: if it has sent "
                                     "some, a firewall may drop UDP datagrams to 10.0.0.1:7584"));
  EXPECT_THAT(explained(), Not(HasSubstr("no frame of rank 0")));
}

TEST_F(DroppedTest, TheStatusHasThemWithRankAndReason) {
  ports_[0].frames = {dropped(DropReason::kBadTag, kJoined, 0, 5)};
  ports_[0].silent = io::EndpointIndex{1};
  ASSERT_NO_FATAL_FAILURE(start());
  const auto status = control::query_status(folder_ / "switch.sock", 20'000'000'000);
  ASSERT_TRUE(status) << status.error().text;
  const Json& unheard = status->at("jobs").at(0).at("unheard");
  ASSERT_EQ(unheard.size(), 2u) << unheard;
  EXPECT_EQ(unheard[0].at("rank"), 0);
  EXPECT_EQ(unheard[0].at("reason"), "bad_tag");
  EXPECT_EQ(unheard[0].at("dropped"), 5);
  EXPECT_EQ(unheard[1].at("rank"), 1);
  EXPECT_FALSE(unheard[1].contains("reason"));
  EXPECT_THAT(unheard[1].at("text"), HasSubstr("no frame of rank 1 has come in by port eth0"));
}

TEST_F(DroppedTest, ATextOfManyWorkersStaysShort) {
  port_name_ = std::string(1500, 'p');
  ports_[0].frames = {dropped(DropReason::kBadTag, kJoined, 0),
                      dropped(DropReason::kBadTag, kJoined, 1)};
  ASSERT_NO_FATAL_FAILURE(start());
  const std::string text = explained();
  EXPECT_THAT(text, HasSubstr("dropped 3 frames of rank 0 on port " + port_name_));
  EXPECT_THAT(text, EndsWith(" ..."));
  EXPECT_LT(text.size(), 2'200u);
}

TEST(LookSchedule, PausesDoubleUpToAMinute) {
  constexpr Nanos kTick = 100'000'000;
  LookSchedule looks;
  std::vector<Nanos> pauses_s;
  constexpr Nanos kBegin = 5'000'000'000;
  for (Nanos now = kBegin, last = kBegin; pauses_s.size() < 9; now += kTick)
    if (looks.due(now)) {
      pauses_s.push_back((now - last) / 1'000'000'000);
      last = now;
    }
  EXPECT_THAT(pauses_s, ElementsAre(1, 2, 4, 8, 16, 32, 60, 60, 60));
}

TEST_F(DroppedTest, TheWorkerItselfIsTold) {
  ports_[1].frames = {dropped(DropReason::kUnknownSource, kJoined)};
  ASSERT_NO_FATAL_FAILURE(start());
  const Json told = workers_[0].hear();
  EXPECT_EQ(told["type"], "dropped") << told;
  EXPECT_EQ(told["reason"], "unknown_source");
  EXPECT_EQ(told["count"], 3);
  EXPECT_EQ(told["port"], "eth1");
  EXPECT_THAT(told.value("text", ""), HasSubstr("say port=eth1"));
  // The other is not, nor anybody twice.
  for (const Peer& worker : workers_)
    EXPECT_EQ(worker.ask({{"type", "explain"}})["type"], "explain");
}

TEST_F(DroppedTest, TheFallbackServerIsToldAndTheWorkersThatWaitForIt) {
  ports_[1].frames = {dropped(DropReason::kUnknownSource, kJoined, value(kFallbackRank))};
  ASSERT_NO_FATAL_FAILURE(start(Home::kDedicated));
  const char* text =
      "dropped 3 frames of the fallback server (ina-psd) on port eth1: unknown_source";
  EXPECT_THAT(explained(), HasSubstr(text));
  const Json told = server_->hear();
  EXPECT_EQ(told["type"], "dropped") << told;
  EXPECT_THAT(told.value("text", ""), HasSubstr(text));
}

}  // namespace
}  // namespace ina
