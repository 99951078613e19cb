// Workers of other hosts over TLS, before a whole switch: the certificate names their tenant, and
// strangers, slow and nonsensical peers hold up nobody. tests/control/tls_test.cc has the
// connection alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/certificates.h"
#include "tests/support/control_peer.h"
#include "tests/support/deadline.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

namespace request = control::request;
using control::Json;
using test::CertificateFiles;
using test::frame_join;
using test::Peer;
using test::TestSwitch;
using testing::HasSubstr;

using test::kTimeoutNs;
const std::string kRed = "red-token-0123456789";

class RemoteTlsTest : public testing::Test {
 protected:
  using Change = std::function<void(switchd::ConductorConfig&)>;

  RemoteTlsTest()
      : authority_(folder_, "ca"), own_(authority_.issue("the switch", "IP:127.0.0.1")) {
    std::ofstream(folder_ / "tokens") << "red " << kRed << "\n";
    ::chmod((folder_ / "tokens").c_str(), 0600);
  }
  TestSwitch::Options options(const Change& change = {}) const {
    TestSwitch::Options options;
    options.administered = true;
    options.conductor = [this, change](switchd::ConductorConfig& config) {
      config.control.listen = "127.0.0.1:0";
      config.control.tls = {own_.certificate, own_.key, authority_.file()};
      config.frame_ports = {{"eth0", {{2, 0, 0, 0, 0, 9}, 0x0a000001, 7584}}};
      if (change) change(config);
    };
    return options;
  }
  /// Certificates are for those who have one.
  Change optional_certificates() const {
    return [this](switchd::ConductorConfig& config) {
      config.control.require_client_certificate = false;
      config.control.token_file = folder_ / "tokens";
    };
  }
  control::TlsClient as(const CertificateFiles& files) const {
    return {{files.certificate, files.key, authority_.file()}, ""};
  }
  Peer worker_of(const TestSwitch& sw, const std::string& common_name) {
    return Peer(sw.tls_address(), as(authority_.issue(common_name)));
  }
  static Json join(int rank = 0, const std::string& job = "job") {
    return frame_join("", "", rank, job);
  }
  /// Why there is no connection, or none that lasts.
  static std::string told(const TestSwitch& sw, const control::TlsClient& client) {
    auto opened = control::Connection::open(sw.tls_address(), kTimeoutNs, {client});
    if (!opened) return opened.error().text;
    if (auto sent = opened->send(join()); !sent) return sent.error().text;
    const auto answer = opened->receive(kTimeoutNs);
    return answer ? (*answer ? (*answer)->body.dump() : "nothing") : answer.error().text;
  }

  test::TempDir folder_;
  test::CertificateAuthority authority_;
  CertificateFiles own_;
};

TEST_F(RemoteTlsTest, TheCertificatesNameIsTheTenant) {
  TestSwitch sw(options());
  const Peer first = worker_of(sw, "vision");
  const Peer second = worker_of(sw, "vision");
  const Peer other = worker_of(sw, "speech");
  const Json joined = first.ask(join(0));
  ASSERT_EQ(joined["type"], "joined") << joined;
  EXPECT_EQ(sw.status()["jobs"][0]["tenant"], "vision");
  EXPECT_EQ(second.ask(join(1))["type"], "joined");
  const auto seen =
      control::query_status(sw.tls_address(), kTimeoutNs, "", {as(authority_.issue("speech"))});
  ASSERT_TRUE(seen) << seen.error().text;
  EXPECT_TRUE((*seen)["jobs"].empty());
  EXPECT_EQ(other.ask(join(1))["type"], "joined") << "a job of its own, of the same name";
  EXPECT_EQ(sw.status()["jobs"][1]["tenant"], "speech");
}

TEST_F(RemoteTlsTest, ANameThatIsNoTenantsIsRefused) {
  TestSwitch sw(options());
  for (const char* name : {"a b", "uid:0", "anonymous", "", "../../etc",
                           "a-name-of-32-characters-0123456"
                           "7"}) {
    const Peer peer = worker_of(sw, name);
    EXPECT_THAT(peer.refusal(join()), HasSubstr("the certificate's common name is no tenant"))
        << name;
    EXPECT_TRUE(peer.closed());
  }
  EXPECT_TRUE(sw.status()["jobs"].empty());
}

TEST_F(RemoteTlsTest, WithoutACertificateTokensWorkWhereItIsOptional) {
  TestSwitch sw(options(optional_certificates()));
  const control::TlsClient nobody{{"", "", authority_.file()}, ""};
  const Peer red(sw.tls_address(), nobody);
  EXPECT_EQ(red.ask(frame_join("token", kRed))["type"], "joined");
  EXPECT_EQ(sw.status()["jobs"][0]["tenant"], "red");
  EXPECT_THAT(Peer(sw.tls_address(), nobody).refusal(join()), HasSubstr("the token is missing"));
  // A certificate counts more than a token.
  const Peer vision = worker_of(sw, "vision");
  EXPECT_EQ(vision.ask(frame_join("token", kRed, 0, "other"))["type"], "joined");
  EXPECT_EQ(sw.status()["jobs"][1]["tenant"], "vision");
}

TEST_F(RemoteTlsTest, ATicketOpensItsJobToAnyCertificate) {
  TestSwitch sw(options());
  request::CreateJob request;
  request.name = "job";
  request.workers = 2;
  request.tenant = "vision";
  request.ttl_ns = 60'000'000'000;
  const auto made = sw.administer(request);
  ASSERT_TRUE(made);
  const std::string ticket = made->at("ticket");
  EXPECT_EQ(worker_of(sw, "host-7").ask(frame_join("ticket", ticket, 0))["type"], "joined");
  EXPECT_EQ(worker_of(sw, "vision").ask(join(1))["type"], "joined");
  EXPECT_EQ(sw.status()["jobs"].size(), 1u);
}

TEST_F(RemoteTlsTest, StrangersAreToldAndTheSwitchGoesOn) {
  test::CertificateAuthority stranger(folder_, "stranger");
  TestSwitch sw(options());
  EXPECT_THAT(told(sw, {{"", "", authority_.file()}, ""}), HasSubstr("set INA_TLS_CERT"));
  EXPECT_THAT(told(sw, as(stranger.issue("vision"))),
              HasSubstr("the switch does not accept the certificate of INA_TLS_CERT"));
  EXPECT_THAT(told(sw, as(authority_.issue("vision", "", -60))), HasSubstr("certificate expired"));
  EXPECT_THAT(told(sw, {{"", "", stranger.file()}, ""}),
              HasSubstr("the switch's certificate is not accepted"));
  // A peer that does not speak TLS.
  const Peer plain(sw.tcp_address());
  EXPECT_THAT(plain.refusal(join()), HasSubstr("use tls:HOST:PORT"));
  EXPECT_TRUE(plain.closed());
  EXPECT_EQ(worker_of(sw, "vision").ask(join())["type"], "joined");
}

TEST_F(RemoteTlsTest, WhereThereIsNoTlsAWorkerThatWantsItIsTold) {
  TestSwitch sw(options([this](switchd::ConductorConfig& config) {
    config.control.tls = {};
    config.control.token_file = folder_ / "tokens";
  }));
  EXPECT_THAT(told(sw, as(authority_.issue("vision"))),
              HasSubstr("there is no TLS: is it tcp: instead of tls:?"));
  EXPECT_EQ(Peer(sw.tcp_address()).ask(frame_join("token", kRed))["type"], "joined");
}

TEST_F(RemoteTlsTest, HandshakesThatDoNotEndAreEnded) {
  TestSwitch sw(options([](switchd::ConductorConfig& config) {
    config.control.join_timeout_ns = 300'000'000;
    config.control.max_unjoined = 10;
  }));
  std::vector<Peer> strangers;
  for (int i = 0; i < 10; ++i) {
    strangers.emplace_back(sw.tcp_address());
    // The beginning of a handshake that never ends, and nothing at all.
    if (i % 2) {
      EXPECT_EQ(::send(strangers.back().fd(), "\x16\x03\x01\x02\0\x01\0\x01", 8, MSG_NOSIGNAL), 8);
    }
  }
  EXPECT_TRUE(sw.status().contains("jobs")) << "the unix socket has nothing to do with it";
  for (const Peer& stranger : strangers) EXPECT_TRUE(stranger.closed());
  EXPECT_EQ(worker_of(sw, "vision").ask(join())["type"], "joined");
}

TEST_F(RemoteTlsTest, AllMessagesOfARecordAreRead) {
  TestSwitch sw(options());
  std::string why;
  auto fd = control::connect_tcp(*control::tcp_address(sw.tcp_address()), kTimeoutNs, why);
  ASSERT_TRUE(fd && *fd) << why;
  auto client = as(authority_.issue("vision"));
  client.name = "127.0.0.1";
  auto session = control::open_tls_client(client);
  ASSERT_TRUE(session);
  while ((*session)->handshake(fd->get()) != control::TlsSession::Outcome::kDone) ::usleep(100);
  // Many more than the switch takes at a turn, and then silence.
  constexpr int kQuestions = 100;
  const std::string text = R"({"type":"status"})";
  std::string all;
  for (int i = 0; i < kQuestions; ++i) {
    all += static_cast<char>(text.size());
    all += std::string(3, '\0') + text;
  }
  ASSERT_EQ((*session)->write(fd->get(), all.data(), all.size()).bytes, all.size());
  const control::Connection connection(std::move(*fd), {16 << 20, 16 << 10}, std::move(*session));
  for (int i = 0; i < kQuestions; ++i) {
    const auto answer = connection.receive(kTimeoutNs);
    ASSERT_TRUE(answer && *answer) << i;
    EXPECT_EQ((*answer)->body["type"], "status");
  }
}

TEST_F(RemoteTlsTest, CertificatesAreReadAgain) {
  TestSwitch sw(options());
  const auto reload = [&] { return sw.administer(request::Reload{}); };
  const Peer before = worker_of(sw, "vision");
  ASSERT_EQ(before.ask(join(0))["type"], "joined");
  test::CertificateAuthority next(folder_, "next");
  const auto own = next.issue("the switch", "IP:127.0.0.1");
  const auto copy = [](const std::string& from, const std::string& to) {
    std::ofstream(to) << std::ifstream(from).rdbuf();
  };
  copy(own.certificate, own_.certificate);
  const auto half = reload();
  ASSERT_FALSE(half);
  EXPECT_THAT(half.error().text, HasSubstr("(control.tls_key) is not the key of"));
  EXPECT_THAT(half.error().text, HasSubstr("all stays as it is"));
  EXPECT_EQ(worker_of(sw, "vision").ask(join(1))["type"], "joined");
  copy(own.key, own_.key);
  ASSERT_TRUE(reload());
  EXPECT_THAT(told(sw, as(authority_.issue("vision"))), HasSubstr("is not accepted"));
  EXPECT_EQ(before.ask({{"type", "explain"}})["type"], "explain") << "who is in stays in";
}

TEST_F(RemoteTlsTest, WhatIsWrongEndsTheStart) {
  const auto start_error = [&](const Change& change) {
    const test::TempDir folder;
    auto state = switchd::StateFile::open(folder / "state");
    switchd::ConductorConfig config;
    config.control.socket = folder / "switch.sock";
    config.aggregator.slots = 64;
    config.aggregator.slot_bytes = 1024;
    config.control.listen = "127.0.0.1:0";
    config.control.tls = {own_.certificate, own_.key, authority_.file()};
    change(config);
    switchd::LaneLink lane;  // nobody runs it: the switch does not get so far
    switchd::Conductor conductor(config, std::move(*state), {&lane});
    const auto opened = conductor.open();
    return opened ? std::string("no error") : opened.error().text;
  };
  EXPECT_EQ(start_error([](auto&) {}), "no error") << "certificates are enough";
  EXPECT_THAT(start_error([](auto& config) { config.control.tls.ca = ""; }),
              HasSubstr("needs control.tls_client_ca"));
  EXPECT_THAT(start_error([](auto& config) { config.control.require_client_certificate = false; }),
              HasSubstr("set control.token_file, or control.allow_anonymous: true"));
  EXPECT_THAT(start_error([](auto& config) { config.control.tls.key = config.control.tls.ca; }),
              HasSubstr("(control.tls_key)"));
}

}  // namespace
}  // namespace ina
