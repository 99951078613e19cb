// A peer at the other end of a switch's control connection that sends a test's messages.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "control/socket.h"

namespace ina::test {

/// The request of a worker behind the Ethernet port, on this host, of a job of two. `proof`: the
/// name of its credential, "token" or "ticket".
inline control::Json frame_join(const std::string& proof, const std::string& secret, int rank = 0,
                                const std::string& job = "job") {
  constexpr uint32_t kLoopback = 0x7f000001;
  control::Json message = {{"type", "join"},      {"version", control::kControlVersion},
                           {"job", job},          {"rank", rank},
                           {"world_size", 2},     {"window_bytes", 0},
                           {"transport", "frame"}};
  message["address"] = {{"mac", {2, 0, 0, 0, 0, rank + 1}}, {"ip", kLoopback}, {"udp_port", 9000}};
  if (!secret.empty()) message[proof] = secret;
  return message;
}

class Peer {
  static constexpr Nanos kPeerTimeoutNs = 10'000'000'000;

 public:
  explicit Peer(const std::string& address, const control::TlsClient& tls = {}) {
    auto opened = control::Connection::open(address, kPeerTimeoutNs, {tls});
    EXPECT_TRUE(opened) << opened.error().text;
    if (opened) connection_ = std::move(*opened);
  }
  /// The next message; null at the end of the connection.
  control::Json hear() const {
    auto received = connection_.receive(kPeerTimeoutNs);
    return received && *received ? (*received)->body : control::Json();
  }
  bool send(const control::Json& message) const { return connection_.send(message).has_value(); }
  control::Json ask(const control::Json& message) const {
    EXPECT_TRUE(send(message));
    return hear();
  }
  /// Asks an end that may have closed the connection already, after a last word.
  control::Json ask_if_open(const control::Json& message) const {
    auto answer = connection_.ask(message, kPeerTimeoutNs);
    return answer && *answer ? (*answer)->body : control::Json();
  }
  /// Asks what must be refused; the reason.
  std::string refusal(const control::Json& message) const {
    const control::Json answer = ask(message);
    EXPECT_EQ(answer.value("type", ""), "refused") << answer;
    return answer.value("text", "");
  }
  bool closed() const {
    const auto received = connection_.receive(kPeerTimeoutNs);
    return !received && received.error().status == INA_ERR_SWITCH_LOST;
  }
  int fd() const { return connection_.fd(); }

 private:
  control::Connection connection_;
};

}  // namespace ina::test
