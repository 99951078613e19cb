// The control connection over TCP: messages survive being cut into pieces, and no slow, large or
// dead peer holds up the other end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <thread>

#include "common/clock.h"
#include "control/socket.h"
#include "tests/support/deadline.h"

namespace ina::control {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr Nanos kSecond = 1'000'000'000;
using test::kTimeoutNs;

std::string frame(const std::string& text) {
  const size_t n = text.size();
  return {static_cast<char>(n), static_cast<char>(n >> 8), static_cast<char>(n >> 16),
          static_cast<char>(n >> 24)};
}
std::string framed(const std::string& text) {
  return frame(text) + text;
}

/// The switch's end and a worker's end of a TCP connection on this host.
class TcpTest : public testing::Test {
 protected:
  explicit TcpTest(Nanos dead_peer_ns = kTimeoutNs) {
    auto opened = Listener::open_tcp("127.0.0.1:0", dead_peer_ns);
    EXPECT_TRUE(opened) << opened.error().text;
    listener_.emplace(std::move(*opened));
    auto worker = Connection::open(address(), kTimeoutNs);
    EXPECT_TRUE(worker) << worker.error().text;
    worker_ = std::move(*worker);
    sw_ = accept();
  }
  std::string address() const { return "tcp:127.0.0.1:" + std::to_string(listener_->port()); }
  Connection accept() const {
    for (;;) {
      auto accepted = listener_->accept();
      EXPECT_TRUE(accepted);
      if (!accepted || *accepted) return accepted ? std::move(**accepted) : Connection();
      pollfd waiter{listener_->fd(), POLLIN, 0};
      ::poll(&waiter, 1, 1000);
    }
  }
  void write(const std::string& bytes) const {
    ASSERT_EQ(::send(worker_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  static Json body(const Result<std::optional<Received>>& received) {
    EXPECT_TRUE(received) << received.error().text;
    return received && *received ? (*received)->body : Json();
  }
  /// The switch's messages fill the sockets and the buffer behind them; returns their number.
  int fill(const Json& message) const {
    for (int i = 0; i < 100'000; ++i)
      if (auto sent = sw_.send(message); !sent) {
        EXPECT_EQ(sent.error().status, INA_ERR_SWITCH_LOST);
        // On a busy machine the kernel may give up before the buffers are full.
        EXPECT_THAT(sent.error().text, AnyOf(HasSubstr("does not read"), HasSubstr("timed out")));
        return i;
      }
    ADD_FAILURE() << "a peer that does not read takes everything";
    return 0;
  }

  std::optional<Listener> listener_;
  Connection worker_;
  Connection sw_;
};

TEST_F(TcpTest, MessagesGoBothWays) {
  ASSERT_TRUE(worker_.send({{"type", "join"}}));
  ASSERT_TRUE(worker_.send({{"type", "attach"}}));
  EXPECT_EQ(body(sw_.receive(kTimeoutNs))["type"], "join");
  EXPECT_EQ(body(sw_.receive(kTimeoutNs))["type"], "attach");
  ASSERT_TRUE(sw_.send({{"type", "ready"}}));
  EXPECT_EQ(body(worker_.receive(kTimeoutNs))["type"], "ready");
  EXPECT_TRUE(body(worker_.receive(0)).is_null());
}

TEST_F(TcpTest, ThePeerIsAnAddressAndNobodysUser) {
  const PeerCredentials peer = sw_.peer();
  EXPECT_TRUE(peer.remote);
  EXPECT_EQ(peer.ip, 0x7f000001u);
  EXPECT_NE(peer.uid, 0u);
  EXPECT_EQ(peer.uid, static_cast<uid_t>(-1));
  EXPECT_EQ(peer.text(), "127.0.0.1:" + std::to_string(peer.port));
}

TEST_F(TcpTest, ABytePerReadIsAMessageInTheEnd) {
  const std::string bytes = framed(R"({"type":"join"})");
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    write(bytes.substr(i, 1));
    pollfd waiter{sw_.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&waiter, 1, 5000), 1);
    EXPECT_TRUE(body(sw_.receive(0)).is_null()) << i;
  }
  write(bytes.substr(bytes.size() - 1));
  EXPECT_EQ(body(sw_.receive(kTimeoutNs))["type"], "join");
}

TEST_F(TcpTest, MessagesInOnePieceStayApartAndKeepTheSocketReadable) {
  write(framed(R"({"n":1})") + framed(R"({"n":2})") + framed(R"({"n":3})").substr(0, 6));
  EXPECT_EQ(body(sw_.receive(kTimeoutNs))["n"], 1);
  pollfd waiter{sw_.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiter, 1, 0), 1) << "an event loop would never hear of the second";
  EXPECT_EQ(body(sw_.receive(kTimeoutNs))["n"], 2);
  EXPECT_TRUE(body(sw_.receive(0)).is_null());
  write(framed(R"({"n":3})").substr(6));
  EXPECT_EQ(body(sw_.receive(kTimeoutNs))["n"], 3);
}

TEST_F(TcpTest, TheLargestMessagePassesAndALargerOneDoesNot) {
  const auto message = [](size_t bytes) {
    const Json empty = {{"x", ""}};
    return Json{{"x", std::string(bytes - empty.dump().size(), 'y')}};
  };
  ASSERT_TRUE(worker_.send(message(kMaxMessageBytes)));
  EXPECT_EQ(body(sw_.receive(kTimeoutNs)).dump().size(), kMaxMessageBytes);
  EXPECT_FALSE(worker_.send(message(kMaxMessageBytes + 1)));
  // The length alone is enough: no memory is kept for bytes that have not come.
  write(frame(std::string(kMaxMessageBytes + 1, 'x')));
  const auto refused = sw_.receive(kTimeoutNs);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, INA_ERR_INVALID);
  EXPECT_THAT(refused.error().text, HasSubstr("16385 bytes; 1 to 16384 are allowed"));
}

TEST_F(TcpTest, AnEmptyMessageOrOneThatIsNoObjectIsInvalid) {
  write(framed("[1]"));
  EXPECT_EQ(sw_.receive(kTimeoutNs).error().status, INA_ERR_INVALID);
  write(framed("{\"a\":"));
  EXPECT_EQ(sw_.receive(kTimeoutNs).error().status, INA_ERR_INVALID);
  write(framed(""));
  EXPECT_EQ(sw_.receive(kTimeoutNs).error().status, INA_ERR_INVALID);
}

TEST_F(TcpTest, AStatusLargerThanAnySocketArrivesWhole) {
  const Json status = {{"type", "status"}, {"x", std::string(8 << 20, 's')}};
  ASSERT_TRUE(sw_.send(status)) << "kept, not waited for";
  EXPECT_TRUE(sw_.pending());
  EXPECT_EQ(sw_.events(), POLLIN | POLLOUT);
  std::thread rest([&] {
    for (const Nanos deadline = now_ns() + kTimeoutNs; sw_.pending() && now_ns() < deadline;) {
      pollfd waiter{sw_.fd(), sw_.events(), 0};
      ::poll(&waiter, 1, 1000);
      EXPECT_TRUE(sw_.receive(0));
    }
  });
  EXPECT_EQ(body(worker_.receive(kTimeoutNs)), status);
  rest.join();
  EXPECT_FALSE(sw_.pending());
  EXPECT_EQ(sw_.events(), POLLIN);
}

TEST_F(TcpTest, APeerThatDoesNotReadIsGivenUpAndNeverWaitedFor) {
  const Json message = {{"type", "status"}, {"x", std::string(1000, 'x')}};
  EXPECT_GT(fill(message), 100);
  // Accepted messages still come, in order and whole.
  std::thread rest([&] {
    while (sw_.pending() && sw_.receive(1'000'000)) {
    }
  });
  for (int i = 0; i < 100; ++i) ASSERT_EQ(body(worker_.receive(kTimeoutNs)), message);
  worker_.close();
  rest.join();
}

TEST_F(TcpTest, AProcessThatEndsIsNoticedAtOnceAndWhatItSaidIsHeard) {
  ASSERT_TRUE(worker_.send({{"type", "leave"}}));
  worker_.close();
  EXPECT_EQ(body(sw_.receive(kTimeoutNs))["type"], "leave");
  const auto end = sw_.receive(kTimeoutNs);
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().status, INA_ERR_SWITCH_LOST);
}

TEST_F(TcpTest, DescriptorsDoNotPass) {
  const auto sent = sw_.send({{"type", "joined"}}, {0});
  ASSERT_FALSE(sent);
  EXPECT_THAT(sent.error().text, HasSubstr("descriptors cannot be sent over TCP"));
}

/// The worker's kernel answers nothing any more, as if its host had lost power.
void unplug(const Connection& connection) {
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &drop};
  ASSERT_EQ(::setsockopt(connection.fd(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program),
            0);
}

class DeadPeerTest : public TcpTest {
 protected:
  DeadPeerTest() : TcpTest(kSecond) {}
  void expect_lost(Nanos within_ns) {
    const Nanos start = now_ns();
    const auto end = sw_.receive(within_ns);
    ASSERT_FALSE(end) << "nothing after " << now_ns() - start << " ns";
    EXPECT_EQ(end.error().status, INA_ERR_SWITCH_LOST);
  }
};

TEST_F(DeadPeerTest, AHostThatAnswersNothingIsLostWithinTheStatedTime) {
  unplug(worker_);
  expect_lost(8 * kSecond);
}

TEST_F(DeadPeerTest, ItIsAlsoLostWhileSomethingIsUnderWayToIt) {
  unplug(worker_);
  ASSERT_TRUE(sw_.send({{"type", "ready"}}));
  expect_lost(8 * kSecond);
}

TEST_F(DeadPeerTest, SoIsOneThatNeverReads) {
  fill({{"x", std::string(1000, 'x')}});
  expect_lost(8 * kSecond);
}

TEST_F(DeadPeerTest, ASilentHostThatLivesIsNotLost) {
  EXPECT_TRUE(body(sw_.receive(4 * kSecond)).is_null());
  ASSERT_TRUE(worker_.send({{"type", "leave"}}));
  EXPECT_EQ(body(sw_.receive(kTimeoutNs))["type"], "leave");
}

// ---- addresses

std::string open_error(const std::string& address) {
  const auto connection = Connection::open(address, 0);
  return connection ? "no error" : connection.error().text;
}

TEST(TcpAddress, OneThatIsNoneIsNamed) {
  for (const char* address : {"tcp:", "tcp:host", "tcp::7584", "tcp:host:", "tcp:host:0",
                              "tcp:host:65536", "tcp:host:1x", "tcp:::1:7584"})
    EXPECT_THAT(open_error(address),
                HasSubstr(std::string("'") + address + "' is not of the form tcp:HOST:PORT"));
}

TEST(TcpAddress, ANameIsResolved) {
  const auto address = resolve("tcp:localhost:7584");
  ASSERT_TRUE(address) << address.error().text;
  EXPECT_EQ(*address, "tcp:127.0.0.1:7584");
  EXPECT_EQ(*resolve("/run/ina/switch.sock"), "/run/ina/switch.sock");
}

TEST(TcpAddress, NobodyThereIsAnErrorThatSaysWhatToDo) {
  uint16_t port = 0;
  {
    auto listener = Listener::open_tcp("127.0.0.1:0", kTimeoutNs);
    ASSERT_TRUE(listener);
    port = listener->port();
  }
  const std::string address = "tcp:127.0.0.1:" + std::to_string(port);
  EXPECT_THAT(open_error(address), HasSubstr("no switch at " + address));
  EXPECT_THAT(open_error(address), HasSubstr("control.listen"));
}

TEST(TcpAddress, APortIsListenedOnOnceAndAnAddressMustBeOne) {
  auto listener = Listener::open_tcp("127.0.0.1:0", kTimeoutNs);
  ASSERT_TRUE(listener);
  const std::string taken = "127.0.0.1:" + std::to_string(listener->port());
  const auto second = Listener::open_tcp(taken, kTimeoutNs);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().text, HasSubstr("cannot listen on " + taken));
  for (const char* listen : {"127.0.0.1", "localhost:7584", ":7584", "127.0.0.1:x", "[::1]:7584"})
    EXPECT_FALSE(Listener::open_tcp(listen, kTimeoutNs)) << listen;
}

}  // namespace
}  // namespace ina::control
