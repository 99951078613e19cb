// A connection to a switch, played by the test, that many may send on.
#include "membership/switch_connection.h"

#include <gtest/gtest.h>

#include "tests/support/deadline.h"
#include "tests/support/temp_dir.h"

namespace ina::membership {
namespace {

class SwitchConnectionTest : public testing::Test {
 protected:
  SwitchConnectionTest() {
    auto listener = control::Listener::open(path_, 0600);
    EXPECT_TRUE(listener) << listener.error().text;
    if (listener) listener_.emplace(std::move(*listener));
    EXPECT_TRUE(connection_.resolve(*client::parse_url("shm:" + path_), settings_));
  }
  /// The switch's end of a connection that open() makes.
  control::Connection open() {
    const auto opened = connection_.open(test::kTimeoutNs, test::kTimeoutNs);
    EXPECT_TRUE(opened) << opened.error().text;
    auto accepted = listener_->accept();
    EXPECT_TRUE(accepted && *accepted);
    return std::move(**accepted);
  }
  static control::Json hear(const control::Connection& at_switch) {
    auto received = at_switch.receive(0);
    return received && *received ? (*received)->body : control::Json();
  }

  const test::TempDir folder_;
  const std::string path_ = folder_ / "switch.sock";
  const Settings settings_;
  std::optional<control::Listener> listener_;
  SwitchConnection connection_{[] {}};
};

TEST_F(SwitchConnectionTest, MessagesNameTheirGroupAndThoseOfTheJobNone) {
  const control::Connection at_switch = open();
  EXPECT_TRUE(connection_.send(0, request::Explain{}));
  EXPECT_TRUE(connection_.send(7, request::Explain{}));
  EXPECT_FALSE(hear(at_switch).contains("channel"));
  EXPECT_EQ(hear(at_switch)["channel"], 7);
}

TEST_F(SwitchConnectionTest, AGoodbyeIsSaidOnceToEachSwitch) {
  {
    const control::Connection at_switch = open();
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(connection_.send_leave(7, request::Leave{3}));
    EXPECT_EQ(hear(at_switch)["type"], "leave");
    EXPECT_TRUE(hear(at_switch).is_null());
    EXPECT_TRUE(connection_.send_leave(0, request::Leave{3})) << "of another channel";
    EXPECT_EQ(hear(at_switch)["type"], "leave");
  }
  const control::Connection at_next_switch = open();
  EXPECT_TRUE(connection_.send_leave(7, request::Leave{3}));
  EXPECT_EQ(hear(at_next_switch)["type"], "leave");
}

TEST_F(SwitchConnectionTest, AGoodbyeThatReachedNobodyIsSaidAgain) {
  EXPECT_FALSE(connection_.send_leave(0, request::Leave{3}));
  EXPECT_FALSE(connection_.send_leave(0, request::Leave{3}));
}

TEST_F(SwitchConnectionTest, NothingIsSentOnAClosedConnection) {
  const control::Connection at_switch = open();
  connection_.close();
  EXPECT_FALSE(connection_.send(0, request::Explain{}));
  EXPECT_EQ(at_switch.receive(test::kTimeoutNs).error().status, INA_ERR_SWITCH_LOST);
}

TEST(SwitchConnection, FramesNameTheSocketInTheirUrl) {
  SwitchConnection connection([] {});
  ASSERT_TRUE(connection.resolve(*client::parse_url("udp:10.0.0.1?control=/s"), {}));
  EXPECT_EQ(connection.path(), "/s");
  ASSERT_TRUE(connection.resolve(*client::parse_url("udp:10.0.0.1"), {}));
  EXPECT_EQ(connection.path(), control::kDefaultSocket);
}

}  // namespace
}  // namespace ina::membership
