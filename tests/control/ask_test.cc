// The peer's last message before it closes the connection is heard, also if the question did not
// reach the peer.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <vector>

#include "control/client.h"
#include "control/socket.h"
#include "tests/support/deadline.h"
#include "tests/support/temp_dir.h"

namespace {
std::vector<unsigned char> given_to_the_kernel;  ///< the ancillary data of the last message
}

/// In place of the C library's.
extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const auto* data = static_cast<const unsigned char*>(message->msg_control);
  given_to_the_kernel.assign(data, data + (data ? message->msg_controllen : 0));
  return ::syscall(SYS_sendmsg, fd, message, flags);
}

namespace ina::control {
namespace {

using test::kTimeoutNs;

class Ask : public testing::Test {
 protected:
  void connect(const std::string& address, const Listener& listener) {
    auto opened = Connection::open(address, kTimeoutNs);
    ASSERT_TRUE(opened) << opened.error().text;
    client_ = std::move(*opened);
    pollfd waiting{listener.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&waiting, 1, 10'000), 1);
    auto accepted = listener.accept();
    ASSERT_TRUE(accepted && *accepted);
    server_ = std::move(**accepted);
  }
  /// The server refuses, and closes with something of the client's unread, or nothing.
  void refuse() {
    ASSERT_TRUE(server_.send_text(to_text(answer::Refused{.text = "no room", .retry = true})));
    server_.close();
  }
  void expect_reason() {
    const auto answer = client_.ask({{"type", "status"}}, kTimeoutNs);
    ASSERT_TRUE(answer) << answer.error().text;
    ASSERT_TRUE(*answer);
    EXPECT_EQ((*answer)->body["text"], "no room");
    EXPECT_EQ((*answer)->body["retry"], true);
  }

  test::TempDir folder_;
  Connection client_;
  Connection server_;
};

TEST_F(Ask, HearsTheReasonOnAUnixSocketThatIsClosed) {
  const auto listener = Listener::open(folder_ / "socket", 0600);
  ASSERT_TRUE(listener);
  connect(folder_ / "socket", *listener);
  refuse();
  expect_reason();
}

TEST_F(Ask, HearsTheReasonAfterAReset) {
  const auto listener = Listener::open(folder_ / "socket", 0600);
  ASSERT_TRUE(listener);
  connect(folder_ / "socket", *listener);
  ASSERT_TRUE(client_.send({{"type", "unread"}}));
  refuse();
  const auto heard = client_.receive(kTimeoutNs);
  ASSERT_TRUE(heard) << heard.error().text;
  ASSERT_TRUE(*heard);
  EXPECT_EQ((*heard)->body["text"], "no room");
}

TEST_F(Ask, HearsTheReasonOverTcp) {
  const auto listener = Listener::open_tcp("127.0.0.1:0", kTimeoutNs);
  ASSERT_TRUE(listener);
  connect("tcp:127.0.0.1:" + std::to_string(listener->port()), *listener);
  refuse();
  expect_reason();
}

TEST(QueryStatus, AsksAgainWhereThereIsNoRoomJustNow) {
  const auto listener = Listener::open_tcp("127.0.0.1:0", kTimeoutNs);
  ASSERT_TRUE(listener);
  const std::string address = "tcp:127.0.0.1:" + std::to_string(listener->port());
  const std::jthread server([&] {
    const std::array<answer::Message, 2> answers = {
        answer::Refused{.status = INA_ERR_REFUSED, .text = "no room", .retry = true},
        answer::Status{.status = {{"jobs", Json::array()}}}};
    for (const answer::Message& message : answers) {
      pollfd waiting{listener->fd(), POLLIN, 0};
      ASSERT_EQ(::poll(&waiting, 1, 10'000), 1);
      auto accepted = listener->accept();
      ASSERT_TRUE(accepted && *accepted);
      ASSERT_TRUE((*accepted)->send_text(to_text(message)));
    }
  });
  const auto status = query_status(address, kTimeoutNs);
  ASSERT_TRUE(status) << status.error().text;
  EXPECT_TRUE((*status)["jobs"].is_array());
}

/// Leaves a pattern where the next function has its variables.
[[gnu::noinline]] void soil_the_stack() {
  volatile char space[16 << 10];
  for (volatile char& byte : space) byte = 0x5a;
}

// Bytes that nobody has set would tell another process what was on the stack, and valgrind
// complains.
TEST_F(Ask, AllBytesBesideAMessageAreSet) {
  const auto listener = Listener::open(folder_ / "socket", 0600);
  ASSERT_TRUE(listener);
  connect(folder_ / "socket", *listener);
  for (const std::vector<int>& descriptors : {std::vector{0}, std::vector{0, 1, 2}}) {
    soil_the_stack();
    ASSERT_TRUE(client_.send({{"type", "attach"}}, descriptors));
    std::vector<unsigned char> wanted(CMSG_SPACE(descriptors.size() * sizeof(int)));
    const cmsghdr head{CMSG_LEN(descriptors.size() * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    std::memcpy(wanted.data(), &head, sizeof head);
    std::memcpy(wanted.data() + CMSG_LEN(0), descriptors.data(), descriptors.size() * sizeof(int));
    EXPECT_EQ(given_to_the_kernel, wanted);
  }
}

}  // namespace
}  // namespace ina::control
