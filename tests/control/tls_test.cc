// TLS on the control connection: trust, the text that either side gets when it is not trusted, and
// that no slow, silent or nonsensical peer holds up the other end.
#include "control/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <random>
#include <thread>

#include "common/clock.h"
#include "control/socket.h"
#include "control/tls_server.h"
#include "tests/support/certificates.h"
#include "tests/support/deadline.h"

namespace ina::control {
namespace {

using test::CertificateAuthority;
using test::CertificateFiles;
using testing::HasSubstr;

using test::kTimeoutNs;

std::string framed(const std::string& text) {
  const size_t n = text.size();
  return std::string{static_cast<char>(n), static_cast<char>(n >> 8), static_cast<char>(n >> 16),
                     static_cast<char>(n >> 24)} +
         text;
}

class TlsTest : public testing::Test {
 protected:
  TlsTest()
      : authority_(folder_, "ca"),
        own_(authority_.issue("the switch", "IP:127.0.0.1,DNS:localhost")),
        worker_files_(authority_.issue("vision")) {
    auto opened = Listener::open_tcp("127.0.0.1:0", kTimeoutNs);
    EXPECT_TRUE(opened) << opened.error().text;
    listener_.emplace(std::move(*opened));
    use(own_);
  }
  void use(const CertificateFiles& own, bool require_certificate = true) {
    auto tls =
        load_tls_acceptor({own.certificate, own.key, authority_.file()}, require_certificate);
    ASSERT_TRUE(tls) << tls.error().text;
    listener_->set_tls(*tls);
  }
  std::string address(const std::string& scheme = "tls") const {
    return scheme + ":127.0.0.1:" + std::to_string(listener_->port());
  }
  TlsClient as(const CertificateFiles& files, const std::string& name = "") const {
    return {{files.certificate, files.key, authority_.file()}, name};
  }
  Connection accept() const {
    for (;;) {
      auto accepted = listener_->accept();
      EXPECT_TRUE(accepted);
      if (!accepted || *accepted) return accepted ? std::move(**accepted) : Connection();
      pollfd waiter{listener_->fd(), POLLIN, 0};
      ::poll(&waiter, 1, 1000);
    }
  }

  /// Both ends of a connection attempt: the worker's, and the switch's.
  struct Ends {
    Result<Connection> worker = tl::unexpected(Error{INA_ERR_INTERNAL, "not tried"});
    Connection sw;
    Result<std::optional<Received>> heard;
  };
  /// The switch receives until the worker is done, and a little longer if it has failed.
  Ends connect(const TlsClient& client, const std::string& scheme = "tls") {
    auto worker = std::async(std::launch::async,
                             [&] { return Connection::open(address(scheme), 0, {client}); });
    Ends ends;
    ends.sw = accept();
    const auto done = [&] {
      return worker.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    };
    do {
      ends.heard = ends.sw.receive(1'000'000);
    } while (ends.heard && !*ends.heard && !done());
    ends.worker = worker.get();
    if (ends.heard && !ends.worker) ends.heard = ends.sw.receive(kTimeoutNs);
    return ends;
  }
  static Json body(const Result<std::optional<Received>>& received) {
    EXPECT_TRUE(received) << received.error().text;
    return received && *received ? (*received)->body : Json();
  }
  /// The switch's error of a refused connection.
  static std::string refusal(Ends& ends) {
    for (const Nanos deadline = now_ns() + kTimeoutNs;
         ends.heard && !*ends.heard && now_ns() < deadline;)
      ends.heard = ends.sw.receive(1'000'000);
    EXPECT_FALSE(ends.heard);
    if (ends.heard) return "nothing";
    EXPECT_EQ(ends.heard.error().status, INA_ERR_REFUSED);
    return ends.heard.error().text;
  }
  /// The error of a worker that the switch refuses after the worker's own part of the handshake.
  static std::string told(const Ends& ends) {
    if (!ends.worker) return ends.worker.error().text;
    if (const auto sent = ends.worker->send({{"type", "join"}}); !sent) return sent.error().text;
    const auto answer = ends.worker->receive(kTimeoutNs);
    EXPECT_FALSE(answer);
    return answer ? "nothing" : answer.error().text;
  }

  test::TempDir folder_;
  CertificateAuthority authority_;
  CertificateFiles own_, worker_files_;
  std::optional<Listener> listener_;
};

// ---- who agrees

TEST_F(TlsTest, MessagesGoBothWaysAndTheCertificateHasAName) {
  const Ends ends = connect(as(worker_files_));
  ASSERT_TRUE(ends.worker) << ends.worker.error().text;
  ASSERT_TRUE(ends.worker->send({{"type", "join"}}));
  ASSERT_TRUE(ends.worker->send({{"type", "attach"}}));
  EXPECT_EQ(body(ends.sw.receive(kTimeoutNs))["type"], "join");
  EXPECT_EQ(body(ends.sw.receive(kTimeoutNs))["type"], "attach");
  EXPECT_EQ(ends.sw.peer_name(), "vision");
  EXPECT_TRUE(ends.sw.peer().remote);
  ASSERT_TRUE(ends.sw.send({{"type", "ready"}}));
  EXPECT_EQ(body(ends.worker->receive(kTimeoutNs))["type"], "ready");
  EXPECT_TRUE(body(ends.worker->receive(0)).is_null());
}

TEST_F(TlsTest, TheSwitchIsKnownByNameToo) {
  EXPECT_TRUE(connect(as(worker_files_, "localhost")).worker);
  EXPECT_TRUE(connect(as(worker_files_, "127.0.0.1")).worker);
}

TEST_F(TlsTest, WhereNoneIsRequiredAWorkerMayHaveNoCertificate) {
  use(own_, false);
  const Ends without = connect({{"", "", authority_.file()}, ""});
  ASSERT_TRUE(without.worker) << without.worker.error().text;
  ASSERT_TRUE(without.worker->send({{"type", "join"}}));
  EXPECT_EQ(body(without.sw.receive(kTimeoutNs))["type"], "join");
  EXPECT_EQ(without.sw.peer_name(), std::nullopt);
  const Ends with = connect(as(worker_files_));
  ASSERT_TRUE(with.worker && with.worker->send({{"type", "join"}}));
  EXPECT_EQ(body(with.sw.receive(kTimeoutNs))["type"], "join");
  EXPECT_EQ(with.sw.peer_name(), "vision");
  // One that is shown must be good.
  CertificateAuthority stranger(folder_, "stranger");
  Ends bad = connect(as(stranger.issue("vision")));
  EXPECT_THAT(refusal(bad), HasSubstr("its certificate is not accepted"));
}

TEST_F(TlsTest, ACommonNameIsTakenWhole) {
  const Ends ends = connect(as(authority_.issue("a/b c")));
  ASSERT_TRUE(ends.worker && ends.worker->send({{"type", "join"}}));
  EXPECT_EQ(body(ends.sw.receive(kTimeoutNs))["type"], "join");
  EXPECT_EQ(ends.sw.peer_name(), "a/b c");
}

// ---- who does not

TEST_F(TlsTest, WorkersWithoutAGoodCertificateAreToldWhy) {
  CertificateAuthority stranger(folder_, "stranger");
  struct Case {
    CertificateFiles files;
    const char* sw;
    const char* worker;
  };
  const Case cases[] = {
      {{}, "it has shown no certificate", "set INA_TLS_CERT and INA_TLS_KEY"},
      {stranger.issue("vision"), "its certificate is not accepted: ",
       "the switch does not accept the certificate of INA_TLS_CERT: "},
      {authority_.issue("vision", "", -60), "certificate has expired", "certificate expired"},
  };
  for (const Case& c : cases) {
    Ends ends = connect(as(c.files));
    const std::string refused = refusal(ends);
    EXPECT_THAT(refused, HasSubstr(c.sw));
    ends.sw.close();
    EXPECT_THAT(told(ends), HasSubstr(c.worker)) << refused;
  }
}

TEST_F(TlsTest, AFalseSwitchIsNotBelieved) {
  CertificateAuthority stranger(folder_, "stranger");
  struct Case {
    CertificateFiles own;
    std::string name;
    const char* worker;
  };
  const Case cases[] = {
      {stranger.issue("the switch", "IP:127.0.0.1"), "", "is INA_TLS_CA the authority"},
      {authority_.issue("the switch", "IP:127.0.0.1", -60), "", "certificate has expired"},
      {authority_.issue("127.0.0.1"), "", "it must be for 127.0.0.1"},
      {authority_.issue("the switch", "IP:127.0.0.2"), "", "it must be for 127.0.0.1"},
      {own_, "switch.example", "it must be for switch.example"},
      {authority_.issue("switch.example"), "switch.example", "it must be for switch.example"},
      {authority_.issue("x", "DNS:*.example"), "a.b.example", "it must be for a.b.example"},
  };
  for (const Case& c : cases) {
    use(c.own);
    Ends ends = connect(as(worker_files_, c.name));
    ASSERT_FALSE(ends.worker) << c.worker;
    EXPECT_EQ(ends.worker.error().status, INA_ERR_REFUSED);
    EXPECT_THAT(ends.worker.error().text, HasSubstr("no TLS with the switch at " + address()));
    EXPECT_THAT(ends.worker.error().text, HasSubstr("the switch's certificate is not accepted: "));
    EXPECT_THAT(ends.worker.error().text, HasSubstr(c.worker));
    EXPECT_THAT(refusal(ends), HasSubstr("it does not accept this switch's certificate"));
  }
}

TEST_F(TlsTest, OlderVersionsAreNotSpoken) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION);
  std::string why;
  auto fd = connect_tcp(*tcp_address(address("tcp")), kTimeoutNs, why);
  ASSERT_TRUE(fd && *fd) << why;
  Ends ends;
  ends.sw = accept();
  const std::unique_ptr<SSL, decltype(&SSL_free)> old(SSL_new(context.get()), &SSL_free);
  SSL_set_fd(old.get(), fd->get());
  EXPECT_NE(SSL_connect(old.get()), 1);
  ends.heard = ends.sw.receive(kTimeoutNs);
  EXPECT_THAT(refusal(ends), HasSubstr("unsupported protocol"));
}

TEST_F(TlsTest, APlainWorkerIsToldInPlainWords) {
  const Ends ends = connect({}, "tcp");
  ASSERT_TRUE(ends.worker);
  ASSERT_TRUE(ends.worker->send({{"type", "join"}}));
  const auto heard = ends.sw.receive(kTimeoutNs);
  ASSERT_FALSE(heard);
  EXPECT_EQ(heard.error().status, INA_ERR_INVALID);
  EXPECT_THAT(heard.error().text, HasSubstr("TLS: nothing else is spoken here; use tls:HOST:PORT"));
  ASSERT_TRUE(ends.sw.send({{"type", "refused"}, {"text", heard.error().text}}));
  EXPECT_EQ(body(ends.worker->receive(kTimeoutNs))["type"], "refused");
  // Later messages of the worker are not read.
  ASSERT_TRUE(ends.worker->send({{"type", "join"}}));
  EXPECT_FALSE(ends.sw.receive(kTimeoutNs));
}

TEST_F(TlsTest, AWorkerThatWantsTlsWhereThereIsNoneIsToldSo) {
  listener_->set_tls(nullptr);
  auto worker = std::async(std::launch::async,
                           [&] { return Connection::open(address(), 0, {as(worker_files_)}); });
  const Connection sw = accept();
  const auto heard = sw.receive(kTimeoutNs);
  ASSERT_FALSE(heard);
  EXPECT_EQ(heard.error().status, INA_ERR_INVALID);
  EXPECT_THAT(heard.error().text, HasSubstr("TLS is not spoken here; use tcp:HOST:PORT"));
  ASSERT_TRUE(sw.send({{"type", "refused"}, {"text", heard.error().text}}));
  const auto opened = worker.get();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().status, INA_ERR_REFUSED);
  EXPECT_THAT(opened.error().text, HasSubstr("there is no TLS: is it tcp: instead of tls:?"));
}

TEST_F(TlsTest, WithoutAnAuthorityNobodyIsBelieved) {
  const auto opened = Connection::open(address(), 0, {});
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().text, HasSubstr("Set INA_TLS_CA"));
  const auto missing = Connection::open(address(), 0, {.tls = {{"", "", "/no/such/ca"}, ""}});
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().text, HasSubstr("cannot open /no/such/ca (INA_TLS_CA)"));
  const auto half =
      Connection::open(address(), 0, {.tls = {{worker_files_.certificate, "", own_.key}, ""}});
  ASSERT_FALSE(half);
  EXPECT_THAT(half.error().text, HasSubstr("INA_TLS_CERT and INA_TLS_KEY go together"));
}

TEST_F(TlsTest, AServerThatOnlyListensIsGivenUp) {
  const Nanos before = now_ns();
  const auto opened = Connection::open(address(), 0, {as(worker_files_)});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().status, INA_ERR_NO_SWITCH);
  EXPECT_THAT(opened.error().text, HasSubstr("did not finish the TLS handshake"));
  EXPECT_LT(now_ns() - before, kTimeoutNs);
  auto hung_up = std::async(std::launch::async,
                            [&] { return Connection::open(address(), 0, {as(worker_files_)}); });
  (void)accept();  // the one from before
  accept().close();
  EXPECT_THAT(hung_up.get().error().text,
              HasSubstr("closed the connection during the TLS handshake"));
}

// ---- nobody is held up

/// The switch's end of a connection whose other end says what it likes.
class RawTlsTest : public TlsTest {
 protected:
  RawTlsTest() {
    std::string why;
    auto fd = connect_tcp(*tcp_address(address("tcp")), kTimeoutNs, why);
    EXPECT_TRUE(fd && *fd) << why;
    raw_ = std::move(*fd);
    sw_ = accept();
  }
  void say(const std::string& bytes) const {
    (void)::send(raw_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  /// The first bytes of a worker that speaks TLS.
  std::string client_hello() const {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    const Fd one(pair[0]), other(pair[1]);
    auto session = open_tls_client(as(worker_files_, "127.0.0.1"));
    EXPECT_TRUE(session);
    EXPECT_EQ((*session)->handshake(one.get()), TlsSession::Outcome::kWantsRead);
    std::string bytes(65536, '\0');
    bytes.resize(static_cast<size_t>(::read(other.get(), bytes.data(), bytes.size())));
    return bytes;
  }
  Fd raw_;
  Connection sw_;
};

TEST_F(RawTlsTest, WhoIsSilentOrSlowIsWaitedForByNobody) {
  EXPECT_TRUE(body(sw_.receive(0)).is_null());
  const std::string hello = client_hello();
  for (const char byte : hello.substr(0, hello.size() - 1)) {
    say(std::string(1, byte));
    EXPECT_TRUE(body(sw_.receive(0)).is_null());
    // All bytes that came were taken: an event loop does not spin.
    pollfd waiter{sw_.fd(), POLLIN, 0};
    for (int i = 0; i < 100 && ::poll(&waiter, 1, 0) != 0; ++i) (void)sw_.receive(0);
    EXPECT_EQ(::poll(&waiter, 1, 0), 0);
    EXPECT_EQ(sw_.events(), POLLIN);
  }
  raw_.reset();
  const auto ended = sw_.receive(kTimeoutNs);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().status, INA_ERR_SWITCH_LOST);
}

TEST_F(RawTlsTest, NonsenseIsAnErrorAndNothingMore) {
  std::mt19937 random(11);
  const std::string hello = client_hello();
  for (int round = 0; round < 200; ++round) {
    std::string bytes = hello;
    if (round % 2) {  // damaged
      for (int i = 0; i < 1 + round / 10; ++i)
        bytes[random() % bytes.size()] = static_cast<char>(random());
    } else {  // anything, behind the first bytes of TLS
      for (size_t i = 3; i < bytes.size(); ++i) bytes[i] = static_cast<char>(random());
    }
    std::string why;
    auto fd = connect_tcp(*tcp_address(address("tcp")), kTimeoutNs, why);
    ASSERT_TRUE(fd && *fd) << why;
    raw_ = std::move(*fd);
    sw_ = accept();
    say(bytes);
    ::shutdown(raw_.get(), SHUT_WR);
    const auto heard = sw_.receive(kTimeoutNs);
    ASSERT_FALSE(heard) << round;
    EXPECT_THAT(heard.error().status,
                testing::AnyOf(INA_ERR_REFUSED, INA_ERR_SWITCH_LOST, INA_ERR_INVALID));
    EXPECT_FALSE(sw_.receive(0)) << "it is over";
  }
}

TEST_F(TlsTest, AByteAtATimeIsAConnectionInTheEnd) {
  // Somebody between the two who passes single bytes on.
  auto outer = Listener::open_tcp("127.0.0.1:0", kTimeoutNs);
  ASSERT_TRUE(outer);
  std::jthread relay([&](const std::stop_token& stop) {
    pollfd waiter{outer->fd(), POLLIN, 0};
    ::poll(&waiter, 1, 10'000);
    const Fd in(::accept4(outer->fd(), nullptr, nullptr, SOCK_CLOEXEC));
    std::string why;
    const auto out = connect_tcp(*tcp_address(address("tcp")), kTimeoutNs, why);
    while (!stop.stop_requested()) {
      pollfd both[2] = {{in.get(), POLLIN, 0}, {out->get(), POLLIN, 0}};
      ::poll(both, 2, 10);
      char byte;
      for (int i = 0; i < 2; ++i)
        if (both[i].revents & POLLIN && ::recv(both[i].fd, &byte, 1, MSG_DONTWAIT) == 1)
          ::send(both[1 - i].fd, &byte, 1, MSG_NOSIGNAL);
    }
  });
  auto opening = std::async(std::launch::async, [&] {
    return Connection::open("tls:127.0.0.1:" + std::to_string(outer->port()), kTimeoutNs,
                            {as(worker_files_)});
  });
  const Connection sw = accept();
  while (opening.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    EXPECT_TRUE(body(sw.receive(1'000'000)).is_null());
  const auto worker = opening.get();
  ASSERT_TRUE(worker) << worker.error().text;
  ASSERT_TRUE(worker->send({{"type", "join"}, {"text", std::string(2000, 'x')}}));
  EXPECT_EQ(body(sw.receive(kTimeoutNs))["text"], std::string(2000, 'x'));
  EXPECT_EQ(sw.peer_name(), "vision");
}

TEST_F(TlsTest, ManyMessagesInOneRecordAreNotForgotten) {
  std::string why;
  auto fd = connect_tcp(*tcp_address(address("tcp")), kTimeoutNs, why);
  ASSERT_TRUE(fd && *fd) << why;
  const Connection sw = accept();
  auto session = open_tls_client(as(worker_files_, "127.0.0.1"));
  ASSERT_TRUE(session);
  while ((*session)->handshake(fd->get()) != TlsSession::Outcome::kDone)
    (void)sw.receive(1'000'000);
  constexpr int kMessages = 50;
  std::string all;
  for (int i = 0; i < kMessages; ++i) all += framed("{\"n\":" + std::to_string(i) + "}");
  ASSERT_EQ((*session)->write(fd->get(), all.data(), all.size()).bytes, all.size());
  EXPECT_EQ(body(sw.receive(kTimeoutNs))["n"], 0);
  pollfd waiter{sw.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiter, 1, 0), 0) << "no poll tells of the rest";
  for (int i = 1; i < kMessages; ++i) {
    EXPECT_TRUE(sw.buffered());
    EXPECT_EQ(body(sw.receive(0))["n"], i);
  }
  EXPECT_FALSE(sw.buffered());
}

TEST_F(TlsTest, AWorkerThatDoesNotReadCostsABoundAndLosesNothingWhenItDoes) {
  const Ends ends = connect(as(worker_files_));
  ASSERT_TRUE(ends.worker) << ends.worker.error().text;
  ASSERT_TRUE(ends.worker->send({{"type", "status"}}));
  EXPECT_EQ(body(ends.sw.receive(kTimeoutNs))["type"], "status");
  const Json large = {{"type", "status"}, {"text", std::string(100'000, 'x')}};
  int sent = 0;
  Result<void> last;
  while (sent < 100'000 && (last = ends.sw.send(large))) ++sent;
  ASSERT_FALSE(last);
  EXPECT_THAT(last.error().text, HasSubstr("does not read"));
  EXPECT_TRUE(ends.sw.pending());
  EXPECT_EQ(ends.sw.events(), POLLIN | POLLOUT);
  for (int i = 0; i < sent; ++i) {
    auto received = ends.worker->receive(0);
    for (const Nanos deadline = now_ns() + kTimeoutNs;
         received && !*received && now_ns() < deadline;) {
      (void)ends.sw.receive(0);  // sends the rest
      received = ends.worker->receive(1'000'000);
    }
    ASSERT_EQ(body(received), large) << i;
  }
  EXPECT_FALSE(ends.sw.pending());
  EXPECT_EQ(ends.sw.events(), POLLIN);
}

TEST_F(TlsTest, OneThreadMaySendWhileAnotherReceives) {
  const Ends ends = connect(as(worker_files_));
  ASSERT_TRUE(ends.worker) << ends.worker.error().text;
  constexpr int kMessages = 500;
  std::thread sw([&] {
    for (int i = 0; i < kMessages; ++i) {
      const Json heard = body(ends.sw.receive(kTimeoutNs));
      ASSERT_EQ(heard["n"], i);
      ASSERT_TRUE(ends.sw.send({{"type", "wake"}, {"n", i}}));
    }
  });
  std::thread receiver([&] {
    for (int i = 0; i < kMessages; ++i) ASSERT_EQ(body(ends.worker->receive(kTimeoutNs))["n"], i);
  });
  for (int i = 0; i < kMessages; ++i) {
    Result<void> sent = ends.worker->send({{"n", i}});
    ASSERT_TRUE(sent) << sent.error().text;
  }
  sw.join();
  receiver.join();
}

// ---- files

TEST_F(TlsTest, WhatIsWrongWithTheSwitchsFilesIsSaid) {
  const auto error = [](const TlsFiles& files, bool require = true) {
    const auto loaded = load_tls_acceptor(files, require);
    return loaded ? std::string("no error") : loaded.error().text;
  };
  const TlsFiles good = {own_.certificate, own_.key, authority_.file()};
  EXPECT_EQ(error(good), "no error");
  EXPECT_EQ(error({own_.certificate, own_.key, ""}, false), "no error");
  EXPECT_THAT(error({own_.certificate, own_.key, ""}), HasSubstr("needs control.tls_client_ca"));
  EXPECT_THAT(error({own_.certificate, "", authority_.file()}), HasSubstr("control.tls_key"));
  EXPECT_THAT(error({own_.certificate, worker_files_.key, authority_.file()}),
              HasSubstr(worker_files_.key + " (control.tls_key) is not the key of " +
                        own_.certificate + " (control.tls_certificate)"));
  EXPECT_THAT(error({own_.certificate, own_.key, "/no/such/file"}),
              HasSubstr("cannot open /no/such/file (control.tls_client_ca)"));
  ::chmod(own_.key.c_str(), 0604);
  EXPECT_THAT(error(good), HasSubstr("has mode 0604: others may read or write it"));
}

}  // namespace
}  // namespace ina::control
