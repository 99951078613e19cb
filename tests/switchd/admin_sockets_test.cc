// The sockets of administrators, before a switch without DPDK: access, answers, and that no slow,
// stuck or vanished client holds the switch up. control::administer() is what inactl asks with.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "switchd/admin_sockets.h"
#include "tests/support/captured_log.h"
#include "tests/support/certificates.h"
#include "tests/support/control_peer.h"
#include "tests/support/deadline.h"
#include "tests/support/switch_fixture.h"

namespace ina::switchd {
namespace {

namespace request = control::request;
using control::Json;
using test::Peer;
using test::TestSwitch;
using testing::AnyOf;
using testing::HasSubstr;

using test::kTimeoutNs;
constexpr Nanos kSecondNs = 1'000'000'000;

class AdminSocketsTest : public testing::Test {
 protected:
  using Change = std::function<void(ConductorConfig&)>;

  AdminSocketsTest() : authority_(folder_, "ca") {}

  std::string path() const { return folder_ / "admin"; }
  /// Over TCP, too.
  config::AdminConfig both() {
    const auto own = authority_.issue("the switch", "IP:127.0.0.1,DNS:switch.example");
    config::AdminConfig admin;
    admin.socket = path();
    admin.listen = "127.0.0.1:0";
    admin.tls = {own.certificate, own.key, authority_.file()};
    return admin;
  }
  /// While it lives, the conductor does nothing.
  class Hold {
   public:
    explicit Hold(AdminSocketsTest& test) : test_(test) {
      test_.hold_ = true;
      while (!test_.held_) ::usleep(100);
    }
    ~Hold() {
      test_.hold_ = false;
      while (test_.held_) ::usleep(100);
    }

   private:
    AdminSocketsTest& test_;
  };

  void start(const config::AdminConfig& admin, const Change& change = {}) {
    TestSwitch::Options options;
    options.conductor = [this, admin, change](ConductorConfig& config) {
      config.admin = admin;
      config.heartbeat_ns = 1'000'000;
      config.heartbeat = [this] {
        held_ = hold_.load();
        while (hold_) ::usleep(100);
        held_ = false;
      };
      config.tenants = {{.name = "red", .jobs_max = 3}};
      if (change) change(config);
    };
    sw_.emplace(options);
  }
  void start(const Change& change = {}) {
    config::AdminConfig admin;
    admin.socket = path();
    start(admin, change);
  }
  static std::string open_error(const config::AdminConfig& admin) {
    const auto opened = AdminSockets(admin, nullptr).open();
    return opened ? "no error" : opened.error().text;
  }
  std::string remote() const {
    return "tls:127.0.0.1:" + std::to_string(sw_->conductor().admin_port());
  }
  control::TlsClient as(const test::CertificateFiles& files, const std::string& name = "") const {
    return {{files.certificate, files.key, authority_.file()}, name};
  }

  Result<Json> ask(const request::Message& message, Nanos timeout_ns = kTimeoutNs) const {
    return control::administer(path(), message, timeout_ns, {});
  }
  Result<Json> ask_as(const control::TlsClient& tls, const request::Message& message) const {
    return control::administer(remote(), message, kTimeoutNs, {tls});
  }
  /// Somebody at admin.listen, from an address of this host.
  Fd connect(const char* from) const {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, from, &address.sin_addr);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(sw_->conductor().admin_port());
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static std::string text_of(const Result<Json>& answer) {
    return answer ? "no error" : answer.error().text;
  }
  static request::CreateJob job(const std::string& name = "job") {
    return {.name = name, .workers = 2, .tenant = "red"};
  }
  static Json join_with(const Json& made) {
    Json message = test::frame_join("ticket", made.at("ticket"));
    message["transport"] = "shm";
    return message;
  }

  test::TempDir folder_;
  test::CertificateAuthority authority_;
  std::atomic<bool> hold_ = false, held_ = false;
  std::optional<TestSwitch> sw_;
};

// ---- requests

TEST_F(AdminSocketsTest, EveryRequestReachesTheSwitch) {
  start();
  const auto made = ask(job());
  ASSERT_TRUE(made) << made.error().text;
  EXPECT_EQ(made->at("ticket").get<std::string>().size(), 32u);
  EXPECT_EQ(made->at("slots_floor"), 64);
  EXPECT_EQ(made->at("expires_in_s"), 3600);

  const auto status = ask(request::Status());
  ASSERT_TRUE(status) << status.error().text;
  EXPECT_EQ(status->at("jobs"), sw_->status()["jobs"]);
  EXPECT_EQ(status->at("tenants")[0]["name"], "red");
  EXPECT_TRUE(ask(request::GetSlots())->contains("used"));
  EXPECT_FALSE(ask(request::GetDrain())->at("draining").get<bool>());
  EXPECT_EQ(text_of(ask(request::Reload{.check = true})),
            "this switch has no configuration file (--config)");
  for (const request::Message& message :
       {request::Message(request::GetPolicy()), request::Message(request::SetPolicy{"esa"})})
    EXPECT_THAT(text_of(ask(message)),
                HasSubstr("this switch has no configuration that could be changed"));
  const auto traced = ask(request::Trace{.job = "job", .packets = 1, .timeout_ms = 1});
  ASSERT_TRUE(traced) << traced.error().text;
  EXPECT_FALSE(traced->at("complete").get<bool>());

  const Peer worker(sw_->socket_path());
  ASSERT_EQ(worker.ask(join_with(*made))["type"], "joined");
  ASSERT_TRUE(ask(request::KickWorker{"job", 0, "why not"}));
  EXPECT_THAT(worker.hear()["text"].get<std::string>(),
              HasSubstr("an administrator (uid:" + std::to_string(::geteuid()) + ", pid " +
                        std::to_string(::getpid()) + ") sent rank 0"));
  ASSERT_TRUE(ask(request::AbortJob{"job"}));
  EXPECT_TRUE(sw_->status()["jobs"].empty());
}

TEST_F(AdminSocketsTest, RefusalsAreTheSwitchsSentences) {
  start();
  ASSERT_TRUE(ask(job()));
  const auto again = ask(job());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().status, INA_ERR_REFUSED);
  EXPECT_EQ(again.error().text, "there is a job 'job' of red already");
  auto large = job("large");
  large.slots_floor = 4096;
  large.window_bytes = 4 << 20;
  EXPECT_THAT(text_of(ask(large)), HasSubstr("needs 4096 slots in one piece, 448 of 512 are free"));
  for (const Nanos ttl_ns : {INT64_MIN, Nanos{0}, INT64_MAX}) {
    auto wrong = job("wrong");
    wrong.ttl_ns = ttl_ns;
    EXPECT_THAT(text_of(ask(wrong)), HasSubstr("the ttl is not in 1 s..7 days"));
  }
  EXPECT_THAT(text_of(ask(request::AbortJob{""})), HasSubstr("there is no job ''"));
}

TEST_F(AdminSocketsTest, NothingElseIsSaidThere) {
  start();
  const Peer peer(path());
  EXPECT_THAT(peer.refusal(test::frame_join("token", "")),
              HasSubstr("'join' is no request of an administrator"));
  EXPECT_THAT(peer.refusal({{"type", "serve"}, {"version", control::kControlVersion}}),
              HasSubstr("'serve' is no request of an administrator"));
  EXPECT_THAT(peer.refusal({{"type", "create_job"}, {"name", "a"}}),
              HasSubstr("in 'create_job' 'workers' is missing"));
  EXPECT_THAT(
      peer.refusal({{"type", "create_job"}, {"name", "a"}, {"workers", 1}, {"priority_max", 256}}),
      HasSubstr("'priority_max' is not a number in 0..255"));
  EXPECT_EQ(peer.ask({{"type", "get_drain"}})["type"], "done") << "it may go on";
  // Nor are administrators' requests heard at the workers' door, not even root's.
  const Peer worker(sw_->socket_path());
  for (const char* type : {"drain", "get_slots", "reload"})
    EXPECT_THAT(worker.refusal({{"type", type}}),
                HasSubstr(std::string("unknown control message type '") + type));
  EXPECT_FALSE(ask(request::GetDrain())->at("draining").get<bool>());
}

TEST_F(AdminSocketsTest, DrainTellsWhatIsLeft) {
  start();
  ASSERT_TRUE(ask(job()));
  ASSERT_TRUE(ask(job("other")));
  const auto left = ask(request::Drain());
  ASSERT_TRUE(left);
  EXPECT_TRUE(left->at("draining").get<bool>());
  ASSERT_EQ(left->at("jobs").size(), 2u);
  EXPECT_EQ(left->at("jobs")[1], (Json{{"name", "other"}, {"owner", "red"}}));
  EXPECT_EQ(text_of(ask(job("late"))), "the switch is drained: it takes no new job");
  for (const char* name : {"job", "other"}) ASSERT_TRUE(ask(request::AbortJob{name}));
  EXPECT_EQ(*ask(request::GetDrain()), (Json{{"draining", true}, {"jobs", Json::array()}}));
  EXPECT_FALSE(ask(request::Undrain())->at("draining").get<bool>());
  EXPECT_TRUE(ask(job("late")));
}

TEST_F(AdminSocketsTest, WhatItsAskerHasGivenUpIsNotDone) {
  start();
  {
    const Hold hold(*this);
    const Peer hasty(path());
    ASSERT_TRUE(hasty.send(Json::parse(control::to_text(job()))));
  }
  // This connection comes after that one.
  const auto status = ask(request::Status());
  ASSERT_TRUE(status);
  EXPECT_TRUE(status->at("jobs").empty());
}

TEST_F(AdminSocketsTest, AReasonThatIsLongerThanAMessageIsCut) {
  const std::string file = folder_ / "switchd.yaml";
  std::ofstream lines(file);
  for (int i = 0; i < 1000; ++i) lines << "wrong" << i << ": 1\n";
  lines.close();
  start([&](ConductorConfig& config) {
    config.configuration = std::make_shared<Configuration>(file, "");
  });
  const std::string text = text_of(ask(request::Reload{.check = true}));
  EXPECT_THAT(text, HasSubstr("wrong0"));
  EXPECT_GT(text.size(), control::kMaxMessageBytes / 4);
  EXPECT_LT(text.size(), control::kMaxMessageBytes);
}

TEST_F(AdminSocketsTest, LongAnswersComeOverBothWays) {
  start(both(), [](ConductorConfig& config) {
    config.tenants.clear();
    config.switchd.max_jobs = 200;
    config.aggregator.slots = 16384;
  });
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(ask(job(std::string(100, 'x') + std::to_string(i))));
  for (const auto& status :
       {ask(request::Status()), ask_as(as(authority_.issue("operator")), request::Status())}) {
    ASSERT_TRUE(status) << status.error().text;
    EXPECT_EQ(status->at("jobs").size(), 100u);
    EXPECT_GT(status->dump().size(), control::kMaxMessageBytes);
  }
}

// ---- nobody holds the switch up

TEST_F(AdminSocketsTest, ConnectionsThatSayNothingOrNonsenseHoldNobodyUp) {
  start();
  std::vector<Peer> silent;
  for (int i = 0; i < 50; ++i) {
    silent.emplace_back(path());
    const std::string nonsense(1000, static_cast<char>(i));
    if (i % 2) EXPECT_EQ(::send(silent.back().fd(), nonsense.data(), 1000, MSG_NOSIGNAL), 1000);
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(ask(request::Status()));
  EXPECT_TRUE(sw_->status().contains("jobs")) << "the switch goes on";
}

TEST_F(AdminSocketsTest, ThereIsOnlySoMuchRoom) {
  start();
  std::vector<Peer> here;
  while (here.size() < AdminSockets::kMostLocal) {
    here.emplace_back(path());
    ASSERT_EQ(here.back().ask({{"type", "get_drain"}})["type"], "done");
  }
  const auto one_too_many = ask(request::GetDrain(), kSecondNs);
  EXPECT_THAT(text_of(one_too_many),
              HasSubstr("there are as many connections of administrators as there may be"));
  EXPECT_EQ(one_too_many.error().status, INA_ERR_NO_SWITCH);
  EXPECT_TRUE(sw_->status().contains("jobs")) << "workers have places of their own";
  here.pop_back();
  EXPECT_TRUE(ask(request::GetDrain()));
}

TEST_F(AdminSocketsTest, TheSilentLeaveRoomForOthers) {
  start([](ConductorConfig& config) { config.admin_silence_ns = kSecondNs; });
  const Peer silent(path());
  EXPECT_TRUE(silent.closed());
  EXPECT_TRUE(ask(request::GetDrain()));
}

TEST_F(AdminSocketsTest, ManyAtOnceAreAllAnswered) {
  start();
  std::atomic<int> answered = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 24; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 20; ++j) {
        const auto status = ask(request::Status());
        EXPECT_TRUE(status) << status.error().text;
        answered += status.has_value();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(answered, 24 * 20);
}

TEST_F(AdminSocketsTest, ALongAnswerThatIsNotReadIsTheLast) {
  start();
  const Peer peer(path());
  {
    const Hold hold(*this);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(peer.send({{"type", "status"}}));
  }
  // Another connection's turn comes when these were dealt with.
  ASSERT_TRUE(ask(request::GetDrain()));
  EXPECT_EQ(peer.hear().value("type", ""), "status");
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(peer.hear().value("text", ""), HasSubstr("was not read yet"));
  EXPECT_EQ(peer.ask({{"type", "status"}}).value("type", ""), "status");
}

TEST_F(AdminSocketsTest, StrangersOverTcpTakeOnlySoMuchTime) {
  const test::CapturedLog log;
  start(both(), [](ConductorConfig& config) { config.work = {.burst_ns = 1, .one_in = 2}; });
  std::vector<Fd> strangers;
  {
    const Hold hold(*this);
    for (int i = 0; i < 8; ++i) strangers.push_back(connect("127.0.0.1"));
  }
  EXPECT_TRUE(ask(request::GetDrain())) << "whoever knocks elsewhere";
  sw_->stop();
  EXPECT_THAT(log.text(), HasSubstr("keeps the switch busier than it may"));
}

TEST_F(AdminSocketsTest, DescriptorsEndTheConnection) {
  start();
  auto connection = control::Connection::open(path(), kTimeoutNs);
  ASSERT_TRUE(connection);
  const Fd pipe(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(connection->send({{"type", "drain"}}, {pipe.get()}));
  const auto end = connection->receive(kTimeoutNs);
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().status, INA_ERR_SWITCH_LOST);
  EXPECT_FALSE(ask(request::GetDrain())->at("draining").get<bool>());
}

TEST_F(AdminSocketsTest, AStrangerOverTcpTakesNoPlaceOfAnybodyElse) {
  start(both());
  const auto own = as(authority_.issue("operator"));
  // These never say anything.
  std::vector<Fd> strangers;
  for (uint32_t i = 0; i < AdminSockets::kMostOneAddress; ++i)
    strangers.push_back(connect("127.0.0.1"));
  EXPECT_EQ(control::administer(remote(), request::GetDrain(), kSecondNs, {own}).error().status,
            INA_ERR_NO_SWITCH)
      << "all places of this address are taken";
  EXPECT_TRUE(ask(request::GetDrain())) << "the unix socket has places of its own";
  strangers.resize(AdminSockets::kMostOneAddress / 2);
  EXPECT_TRUE(ask_as(own, request::GetDrain()));
  // Twice as many as there are places: some of those that were given up may not be free yet.
  for (int i = 2; strangers.size() < 2 * AdminSockets::kMostRemote; ++i)
    strangers.push_back(connect(("127.0.0." + std::to_string(i)).c_str()));
  EXPECT_FALSE(control::administer(remote(), request::GetDrain(), kSecondNs, {own}));
  strangers.clear();
  EXPECT_TRUE(ask_as(own, request::GetDrain())) << "places are free again";
}

TEST_F(AdminSocketsTest, TheEndOfTheSwitchIsTheEndOfItsSockets) {
  start();
  sw_->stop();
  const auto late = ask(request::Status(), kSecondNs);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().status, INA_ERR_NO_SWITCH);
  EXPECT_THAT(late.error().text, HasSubstr("is this its admin.socket?"));
  EXPECT_NE(::access(path().c_str(), F_OK), 0) << "its path is gone";
}

// ---- the unix socket

TEST_F(AdminSocketsTest, TheSocketIsItsUsersAlone) {
  start();
  struct stat status {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  config::AdminConfig other;
  other.socket = path();
  EXPECT_THAT(open_error(other), HasSubstr("another switch already listens on"));
  // As a switch of an older version does.
  other.socket = folder_ / "stream";
  const Fd stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = control::unix_address(other.socket);
  ASSERT_TRUE(address);
  ASSERT_EQ(::bind(stream.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address), 0);
  ASSERT_EQ(::listen(stream.get(), 1), 0);
  EXPECT_THAT(open_error(other), HasSubstr("already listens on"));
  std::ofstream(folder_ / "file") << "no socket";
  other.socket = folder_ / "file";
  EXPECT_THAT(open_error(other),
              HasSubstr("is not a socket; remove it, or set another admin.socket"));
  other.socket = std::string(200, 'x');
  EXPECT_THAT(open_error(other), HasSubstr("admin.socket: "));
  other.socket = folder_ / "a";
  other.group = "no-such-group";
  EXPECT_THAT(open_error(other),
              HasSubstr("admin.group: this machine has no group 'no-such-group'"));
}

/// A process of another user that asks the switch something once it is told to. It is forked before
/// the switch has threads: one might hold a lock, which the child would never get.
class OtherUser {
 public:
  OtherUser(const std::string& socket, uid_t uid, gid_t gid, const std::vector<gid_t>& groups) {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0);
    child_ = ::fork();
    if (child_ != 0) return;
    char go = 0;
    if (::syscall(SYS_setgroups, groups.size(), groups.data()) != 0 ||
        ::syscall(SYS_setresgid, gid, gid, gid) != 0 ||
        ::syscall(SYS_setresuid, uid, uid, uid) != 0 || ::read(ends_[1], &go, 1) != 1)
      ::_exit(2);
    const auto answer =
        control::administer(socket, request::GetDrain(), kTimeoutNs, {.user = uid_t{0}});
    const std::string text = answer ? "done" : answer.error().text;
    const bool told =
        ::write(ends_[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(told ? 0 : 3);
  }
  OtherUser(const OtherUser&) = delete;
  ~OtherUser() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }

  std::string hears() {
    EXPECT_EQ(::write(ends_[0], "", 1), 1);
    int status = 0;
    ::waitpid(child_, &status, 0);
    EXPECT_EQ(status, 0);
    std::string text(4096, '\0');
    const ssize_t got = status == 0 ? ::read(ends_[0], text.data(), text.size()) : 0;
    text.resize(static_cast<size_t>(got));
    return text;
  }

 private:
  int ends_[2] = {-1, -1};
  pid_t child_ = -1;
};

TEST_F(AdminSocketsTest, OthersAreTurnedAwayByTheKernelsWord) {
  if (::geteuid() != 0) GTEST_SKIP() << "being several users takes root";
  constexpr gid_t kGroup = 23456;
  OtherUser stranger(path(), 12345, 12345, {}), of_other_groups(path(), 12345, 12345, {1, 2, 3}),
      of_the_group(path(), 12345, kGroup, {}), also_in_it(path(), 12345, 12345, {1, kGroup, 3}),
      root(path(), 0, 0, {});
  config::AdminConfig admin;
  admin.socket = path();
  admin.group = std::to_string(kGroup);
  start(admin);
  ::chmod((folder_ / "").c_str(), 0755);
  // As if the path's mode did not keep them out.
  ::chmod(path().c_str(), 0666);
  const auto turned_away = HasSubstr("administrators are root, the switch's own user");
  EXPECT_THAT(stranger.hears(), turned_away);
  EXPECT_THAT(of_other_groups.hears(), turned_away);
  EXPECT_EQ(of_the_group.hears(), "done");
  EXPECT_EQ(also_in_it.hears(), "done");
  EXPECT_EQ(root.hears(), "done");
}

// ---- TLS

TEST_F(AdminSocketsTest, OverTcpACertificateOfTheAuthorityOpensIt) {
  start(both());
  const auto own = authority_.issue("operator");
  EXPECT_TRUE(ask_as(as(own), request::Status()));
  EXPECT_TRUE(ask_as(as(own, "switch.example"), request::Status()));
  // All jobs are the administrator's business, and tracing them, too.
  const auto made = ask_as(as(own), job());
  ASSERT_TRUE(made) << made.error().text;
  const auto status = ask_as(as(own), request::Status());
  ASSERT_TRUE(status);
  EXPECT_EQ(status->at("jobs").size(), 1u);
  EXPECT_EQ(status->at("tenants").size(), 1u);
  EXPECT_TRUE(ask_as(as(own), request::Trace{.job = "job", .packets = 1, .timeout_ms = 1}));
  // Whose certificate it was is told to those concerned.
  const Peer worker(sw_->socket_path());
  ASSERT_EQ(worker.ask(join_with(*made))["type"], "joined");
  ASSERT_TRUE(ask_as(as(own), request::AbortJob{"job"}));
  EXPECT_THAT(worker.hear()["text"].get<std::string>(),
              HasSubstr("an administrator (certificate 'operator', 127.0.0.1:"));
}

TEST_F(AdminSocketsTest, OverTcpNobodyElseGetsIn) {
  start(both());
  test::CertificateAuthority stranger(folder_, "stranger");
  const auto own = authority_.issue("operator");
  const auto refused = [&](const control::TlsClient& tls) {
    const auto status = ask_as(tls, request::Status());
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().status, INA_ERR_NO_SWITCH) << status.error().text;
  };
  refused(as({}));
  refused(as(stranger.issue("operator")));
  refused(as(authority_.issue("operator", "", -60)));
  // Nor is a false switch believed.
  refused({{own.certificate, own.key, stranger.file()}, ""});
  refused(as(own, "other.example"));
  // Plain text.
  const auto plain =
      control::administer("tcp:" + remote().substr(4), request::Status(), kTimeoutNs, {});
  ASSERT_FALSE(plain);
  EXPECT_THAT(plain.error().text,
              AnyOf(HasSubstr("nothing else is spoken here"), HasSubstr("closed")));
  EXPECT_TRUE(ask_as(as(own), request::Status()));
}

TEST_F(AdminSocketsTest, WhatIsWrongWithTheFilesIsSaidAtTheStart) {
  config::AdminConfig good = both();
  good.socket.clear();
  using control::TlsFiles;
  const auto with = [&](std::string TlsFiles::*field, const std::string& value) {
    config::AdminConfig admin = good;
    admin.tls.*field = value;
    return open_error(admin);
  };
  EXPECT_EQ(open_error(good), "no error");
  for (const auto field : {&TlsFiles::certificate, &TlsFiles::key, &TlsFiles::ca}) {
    EXPECT_THAT(with(field, ""), HasSubstr("admin.listen needs admin.certificate, admin.key"));
    EXPECT_THAT(with(field, "/no/such/file"), HasSubstr("cannot open /no/such/file (admin."));
  }
  EXPECT_THAT(with(&TlsFiles::certificate, good.tls.key), HasSubstr("is not a PEM certificate"));
  EXPECT_THAT(with(&TlsFiles::ca, good.tls.key), HasSubstr("has no PEM certificate"));
  const auto other = authority_.issue("other");
  EXPECT_THAT(with(&TlsFiles::key, other.key),
              HasSubstr(other.key + " (admin.key) is not the key of " + good.tls.certificate));
  ::chmod(other.key.c_str(), 0644);
  EXPECT_THAT(with(&TlsFiles::key, other.key),
              HasSubstr("has mode 0644: others may read or write it; chmod 0600 " + other.key));
  const auto listening_at = [&](const std::string& address) {
    config::AdminConfig admin = good;
    admin.listen = address;
    return open_error(admin);
  };
  EXPECT_THAT(listening_at("192.0.2.1:1"),
              HasSubstr("cannot listen on 192.0.2.1:1 (admin.listen)"));
  start(good);
  EXPECT_THAT(listening_at("127.0.0.1:" + std::to_string(sw_->conductor().admin_port())),
              HasSubstr("(admin.listen)"))
      << "two switches on one port";
}

}  // namespace
}  // namespace ina::switchd
