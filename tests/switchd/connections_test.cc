// Connections, the conductor's time and its log: the share of one user or address, and that the
// others have the rest.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "tests/support/as_user.h"
#include "tests/support/captured_log.h"
#include "tests/support/control_peer.h"
#include "tests/support/deadline.h"
#include "tests/support/switch_fixture.h"

namespace ina::switchd {
namespace {

using control::Json;
using test::as_user;
using test::frame_join;
using test::Peer;
using test::TestSwitch;
using testing::HasSubstr;
using testing::Not;

constexpr Nanos kSecond = 1'000'000'000;
using test::kTimeoutNs;
constexpr uid_t kAlice = 12345, kBob = 12346;

// ---- a whole switch

class ConnectionsTest : public testing::Test {
 protected:
  void start(const std::function<void(ConductorConfig&)>& change) {
    ::chmod((folder_ / "").c_str(), 0755);
    TestSwitch::Options options;
    options.conductor = [change](ConductorConfig& config) {
      config.control.mode = 0666;
      config.control.listen = "127.0.0.1:0";
      config.control.allow_anonymous = true;
      config.farewell_ns = 3'600 * kSecond;  // on a busy machine a second is soon over
      config.frame_ports = {{"eth0", {{2, 0, 0, 0, 0, 9}, 0x0a000001, 7584}}};
      change(config);
    };
    sw_.emplace(options, folder_ / "");
  }
  Peer& connect_as(uid_t uid) {
    as_user(uid, [&] { peers_.emplace_back(sw_->socket_path()); });
    return peers_.back();
  }
  /// It has a place: the switch answers it.
  bool is_served(const Peer& peer) {
    return peer.ask_if_open({{"type", "explain"}}).value("type", "") == "explain";
  }
  /// Takes a place that nobody takes away again: in a job of its own. False: it got none.
  bool holds_a_place(const Peer& peer, const std::string& job) {
    return peer.ask_if_open(frame_join("", "", 0, job)).value("type", "") == "joined";
  }
  void save_job(uid_t uid, uint32_t workers, const std::string& ticket = "") {
    auto state = StateFile::open(folder_ / "switch.sock.state");
    ASSERT_TRUE(state) << state.error().text;
    ASSERT_TRUE(state->put({.name = "job",
                            .id = 5,
                            .key = 77,
                            .uid = uid,
                            .workers = workers,
                            .epoch = 4097,
                            .lanes = 1,
                            .slot_bytes = 1024,
                            .window = 32,
                            .first_slot = 0,
                            .slots_per_lane = 64,
                            .ticket = ticket}));
  }
  static Json rejoin(int rank, int world) {
    Json message = frame_join("", "", rank);
    message.update({{"type", "rejoin"},
                    {"job_id", 5},
                    {"job_key", 77},
                    {"low", 0},
                    {"next", 0},
                    {"results_end", 0},
                    {"world_size", world}});
    return message;
  }

  test::TempDir folder_;
  std::deque<Peer> peers_;
  std::optional<TestSwitch> sw_;
};

TEST_F(ConnectionsTest, OneUserHasHalfOfThePlacesAtMost) {
  if (::geteuid() != 0) GTEST_SKIP() << "being several users takes root";
  start([](ConductorConfig& config) { config.control.max_connections = 8; });
  for (int i = 0; i < 4; ++i)
    EXPECT_TRUE(holds_a_place(connect_as(kAlice), "a" + std::to_string(i)));
  const Json refusal = connect_as(kAlice).hear();
  EXPECT_EQ(refusal["type"], "refused");
  EXPECT_EQ(refusal["retry"], true);
  EXPECT_THAT(refusal["text"].get<std::string>(),
              HasSubstr("uid 12345 has 4 connections already (control.max_connections_per_user)"));
  EXPECT_TRUE(holds_a_place(connect_as(kBob), "b"));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(holds_a_place(connect_as(0), "r" + std::to_string(i)));
  EXPECT_THAT(connect_as(0).hear()["text"].get<std::string>(),
              HasSubstr("(control.max_connections)"));
}

TEST_F(ConnectionsTest, IdleConnectionsMakeRoomForThoseOfOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "being several users takes root";
  start([](ConductorConfig& config) {
    config.control.max_connections = 8;
    config.control.max_connections_per_user = 8;
  });
  std::deque<Peer*> idle;
  for (int i = 0; i < 8; ++i) idle.push_back(&connect_as(kAlice));
  EXPECT_TRUE(is_served(*idle.back()));
  EXPECT_TRUE(is_served(connect_as(kBob)));
  const Json told = idle.front()->hear();
  EXPECT_EQ(told["retry"], true);
  EXPECT_THAT(told["text"].get<std::string>(), HasSubstr("needs the place of this connection"));
  EXPECT_TRUE(idle.front()->closed());
  // The one who has most of them gets no more, and takes nothing from others.
  EXPECT_EQ(connect_as(kAlice).hear()["type"], "refused");
  EXPECT_TRUE(is_served(peers_[8]));
}

TEST_F(ConnectionsTest, PlacesAreKeptForWorkersThatComeBack) {
  if (::geteuid() != 0) GTEST_SKIP() << "being several users takes root";
  save_job(kAlice, 2);
  start([](ConductorConfig& config) {
    config.control.max_connections = 8;
    config.control.max_connections_per_user = 8;
  });
  int held = 0;
  while (held < 20 && holds_a_place(connect_as(kBob), "b" + std::to_string(held))) ++held;
  EXPECT_EQ(held, 6) << "two of eight are kept";
  // They are for nothing else, and for nobody else.
  EXPECT_EQ(connect_as(kBob).hear()["retry"], true);
  const Peer& curious = connect_as(kAlice);
  EXPECT_THAT(curious.refusal({{"type", "status"}}), HasSubstr("come back to their jobs"));
  EXPECT_TRUE(curious.closed());
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(connect_as(kAlice).ask(rejoin(rank, 2))["type"], "joined");
}

TEST_F(ConnectionsTest, AUserAtItsLimitComesBackNonetheless) {
  if (::geteuid() != 0) GTEST_SKIP() << "being several users takes root";
  save_job(kAlice, 1);
  start([](ConductorConfig& config) {
    config.control.max_connections = 64;
    config.control.max_connections_per_user = 2;
  });
  EXPECT_TRUE(holds_a_place(connect_as(kAlice), "a"));
  EXPECT_TRUE(holds_a_place(connect_as(kAlice), "b"));
  EXPECT_EQ(connect_as(kAlice).ask(rejoin(0, 1))["type"], "joined");
  EXPECT_EQ(connect_as(kAlice).hear()["type"], "refused");
}

TEST_F(ConnectionsTest, TheReasonIsReadWhateverHappensToTheRequest) {
  start([](ConductorConfig& config) {
    config.control.max_connections = 2;
    config.control.max_unjoined = 1;
  });
  const auto reason_at = [](const std::string& address, const char* setting) {
    auto connection = control::Connection::open(address, kTimeoutNs);
    ASSERT_TRUE(connection);
    pollfd end{connection->fd(), POLLRDHUP, 0};
    ASSERT_EQ(::poll(&end, 1, 10'000), 1);
    // Twice: the other end answers the first by a reset.
    (void)connection->send({{"type", "status"}});
    const auto answer = connection->ask({{"type", "status"}}, kTimeoutNs);
    ASSERT_TRUE(answer && *answer) << (answer ? "nothing" : answer.error().text);
    EXPECT_THAT((*answer)->body["text"].get<std::string>(), HasSubstr(setting));
    EXPECT_EQ((*answer)->body["retry"], true);
  };
  const Peer first(sw_->tcp_address());
  EXPECT_FALSE(first.ask({{"type", "status"}}).is_null());
  reason_at(sw_->tcp_address(), "control.max_unjoined");
  const Peer second(sw_->socket_path());
  ASSERT_TRUE(holds_a_place(first, "a"));
  ASSERT_TRUE(holds_a_place(second, "b"));
  reason_at(sw_->socket_path(), "control.max_connections");
  reason_at(sw_->tcp_address(), "control.max_connections");
  const auto status = control::query_status(sw_->socket_path(), kTimeoutNs, "", {}, 0);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().text, HasSubstr("(control.max_connections)"));
}

/// The other end is gone: sooner or later it answers what it is sent by a reset.
bool is_gone_within(const control::Connection& connection, Nanos timeout_ns) {
  const Nanos deadline = now_ns() + timeout_ns;
  do {
    (void)::send(connection.fd(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    pollfd end{connection.fd(), 0, 0};
    if (::poll(&end, 1, 1) == 1) return true;
  } while (now_ns() < deadline);
  return false;
}

TEST_F(ConnectionsTest, AHostHearsWhyItIsSentAwayWhateverElseItHasSaid) {
  start([](ConductorConfig&) {});
  auto connection = control::Connection::open(sw_->tcp_address(), kTimeoutNs);
  ASSERT_TRUE(connection);
  std::string said;
  for (int i = 0; i < 100; ++i) {
    constexpr std::string_view kMessage = R"({"type":"leave"})";
    said += {static_cast<char>(kMessage.size()), 0, 0, 0};
    said += kMessage;
  }
  // The first message is refused, and the others are not read any more.
  ASSERT_EQ(::send(connection->fd(), said.data(), said.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(said.size()));
  pollfd end{connection->fd(), POLLRDHUP, 0};
  ASSERT_EQ(::poll(&end, 1, 10'000), 1);
  EXPECT_EQ(end.revents & POLLHUP, 0) << "it was reset";
  EXPECT_FALSE(is_gone_within(*connection, 0));
  const auto answer = connection->receive(kTimeoutNs);
  ASSERT_TRUE(answer && *answer) << (answer ? "nothing" : answer.error().text);
  EXPECT_THAT((*answer)->body.value("text", ""), HasSubstr("'leave' before join"));
}

TEST_F(ConnectionsTest, OnlySoManyHostsAtATimeAreGivenTimeToHearWhy) {
  start([](ConductorConfig& config) { config.control.max_unjoined = 1; });
  const Peer only(sw_->tcp_address());
  EXPECT_EQ(only.ask({{"type", "status"}})["type"], "status");
  std::vector<control::Connection> refused;
  for (size_t i = 0; i < switchd::Farewells::kMost + 3; ++i) {
    auto connection = control::Connection::open(sw_->tcp_address(), kTimeoutNs);
    ASSERT_TRUE(connection);
    const auto answer = connection->receive(kTimeoutNs);
    ASSERT_TRUE(answer && *answer) << i;
    EXPECT_EQ((*answer)->body["retry"], true);
    refused.push_back(std::move(*connection));
  }
  for (size_t i = switchd::Farewells::kMost; i < refused.size(); ++i)
    EXPECT_TRUE(is_gone_within(refused[i], kTimeoutNs)) << i;
  for (size_t i = 0; i < switchd::Farewells::kMost; ++i)
    EXPECT_FALSE(is_gone_within(refused[i], 0)) << i;
}

TEST_F(ConnectionsTest, AHostHasOnlySoMuchTimeToHearWhy) {
  start([](ConductorConfig& config) { config.farewell_ns = 1; });
  const auto connection = control::Connection::open(sw_->tcp_address(), kTimeoutNs);
  ASSERT_TRUE(connection);
  ASSERT_TRUE(connection->send({{"type", "leave"}}));
  const auto answer = connection->receive(kTimeoutNs);
  ASSERT_TRUE(answer && *answer);
  EXPECT_EQ((*answer)->body["type"], "refused");
  EXPECT_TRUE(is_gone_within(*connection, kTimeoutNs)) << "it is kept open";
}

TEST_F(ConnectionsTest, ATenantHasAsManyAsAUser) {
  start([](ConductorConfig& config) { config.control.max_connections_per_user = 2; });
  const Peer first(sw_->tcp_address()), second(sw_->tcp_address()), third(sw_->tcp_address());
  EXPECT_TRUE(holds_a_place(first, "a"));
  EXPECT_TRUE(holds_a_place(second, "b"));
  const Json refusal = third.ask(frame_join("", "", 0, "c"));
  EXPECT_THAT(refusal["text"].get<std::string>(),
              HasSubstr("tenant 'anonymous' has 2 connections already"));
  EXPECT_EQ(refusal["retry"], true);
  EXPECT_TRUE(third.closed());
}

TEST_F(ConnectionsTest, WhoTakesTooMuchTimeIsServedLaterAndNothingIsLost) {
  if (::geteuid() != 0) GTEST_SKIP() << "being several users takes root";
  start([](ConductorConfig& config) { config.work = {.burst_ns = 1, .one_in = 2, .sources = 64}; });
  auto busy = std::make_unique<control::Connection>();
  as_user(kAlice,
          [&] { *busy = std::move(*control::Connection::open(sw_->socket_path(), kTimeoutNs)); });
  constexpr int kAsked = 30;
  int asked = 0, heard = 0;
  for (; asked < kAsked; ++asked)
    if (!busy->send({{"type", "explain"}})) break;
  for (; heard < asked; ++heard) {
    const auto answer = busy->receive(kTimeoutNs);
    ASSERT_TRUE(answer && *answer) << heard;
  }
  EXPECT_GT(asked, 10);
  // Gone while nobody listens to it.
  (void)busy->send({{"type", "explain"}});
  busy.reset();
  EXPECT_TRUE(is_served(connect_as(kBob)));
  const Peer remote(sw_->tcp_address());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(remote.ask({{"type", "status"}})["type"], "status");
}

// ---- the log

TEST_F(ConnectionsTest, AFloodOfRefusalsIsNoFloodOfLines) {
  const test::CapturedLog log;
  start([](ConductorConfig&) {});
  const Peer talker(sw_->socket_path());
  for (int i = 0; i < 2000; ++i) (void)talker.refusal({{"type", "nonsense"}});
  for (int i = 0; i < 200; ++i) {
    const Peer peer(sw_->tcp_address());
    (void)peer.refusal({{"type", "leave"}});
  }
  sw_->stop();
  EXPECT_LT(std::ranges::count(log.text(), '\n'), 300);
  EXPECT_THAT(log.text(), HasSubstr("warning refused peer=\"pid "));
}

TEST_F(ConnectionsTest, NobodyForgesALine) {
  const test::CapturedLog log;
  start([](ConductorConfig&) {});
  const std::string name = "x\" owner=\"root\"\ninfo job admitted job=\"forged\x1b[2J";
  {
    const Peer peer(sw_->socket_path());
    ASSERT_EQ(peer.ask(frame_join("", "", 0, name))["type"], "joined");
    EXPECT_EQ(peer.ask({{"type", name}})["type"], "refused");
    ASSERT_EQ(peer.ask({{"type", "abort"}, {"text", name}})["type"], "abort");
  }
  sw_->stop();
  EXPECT_THAT(log.text(), HasSubstr("job=\"x\\\" owner=\\\"root\\\"\\x0ainfo job admitted"));
  EXPECT_THAT(log.text(), Not(HasSubstr("\ninfo job admitted job=\"forged")));
  EXPECT_THAT(log.text(), Not(HasSubstr("\x1b")));
}

TEST_F(ConnectionsTest, AJobThatGathersAndEndsIsEndedInTheLog) {
  const test::CapturedLog log;
  start([](ConductorConfig&) {});
  {
    const Peer peer(sw_->socket_path());
    ASSERT_EQ(peer.ask(frame_join("", "", 0, "gatherer"))["type"], "joined");
  }
  while (!sw_->status()["jobs"].empty()) ::usleep(1000);
  sw_->stop();
  EXPECT_THAT(log.text(), HasSubstr("info job ended job=\"gatherer\""));
}

// Users may get the same answer. What one does with its descriptor is nobody else's business.
TEST_F(ConnectionsTest, NobodyCanChangeAnAnswerToOthers) {
  start([](ConductorConfig&) {});
  const auto ask = [](const control::Connection& one) {
    auto heard = one.ask({{"type", "status"}}, kTimeoutNs);
    EXPECT_TRUE(heard && *heard && (*heard)->fds.size() == 1);
    return heard && *heard && (*heard)->fds.size() == 1 ? std::move((*heard)->fds[0]) : Fd();
  };
  auto connection = control::Connection::open(sw_->socket_path(), kTimeoutNs);
  ASSERT_TRUE(connection);
  const Fd first = ask(*connection);
  EXPECT_EQ(::pwrite(first.get(), "x", 1, 0), -1);
  EXPECT_EQ(::ftruncate(first.get(), 0), -1);
  char letter = 0;
  EXPECT_EQ(::read(first.get(), &letter, 1), 1);
  EXPECT_EQ(letter, '{');
  const Fd again(::open(("/proc/self/fd/" + std::to_string(first.get())).c_str(), O_RDWR));
  if (again) {
    EXPECT_EQ(::pwrite(again.get(), "x", 1, 0), -1) << "opened once more to be written";
    EXPECT_EQ(::ftruncate(again.get(), 0), -1);
  }
}

TEST_F(ConnectionsTest, StatusesAreWrittenByName) {
  const test::CapturedLog log;
  start([](ConductorConfig&) {});
  const Peer first(sw_->socket_path()), second(sw_->socket_path());
  ASSERT_EQ(first.ask(frame_join("", "", 0))["type"], "joined");
  Json other = frame_join("", "", 1);
  other["world_size"] = 3;
  EXPECT_EQ(second.ask(other)["type"], "refused");
  sw_->stop();
  EXPECT_THAT(log.text(), HasSubstr("status=\"INA_ERR_MISMATCH\""));
}

}  // namespace
}  // namespace ina::switchd
