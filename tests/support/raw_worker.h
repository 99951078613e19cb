// A worker made by hand: the control connection and the shm transport, without engine or context,
// so that a test decides itself which messages are sent and when.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "membership/shm_join.h"
#include "tests/support/deadline.h"

namespace ina::test {

class RawWorker {
 public:
  /// `more`: further fields of the `join`.
  RawWorker(const std::string& socket, const std::string& job, int rank, int world,
            const control::Json& more = control::Json::object()) {
    auto connection = control::Connection::open(socket, kTimeoutNs);
    EXPECT_TRUE(connection) << connection.error().text;
    if (!connection) return;
    control = std::move(*connection);
    control::Json join = {{"type", "join"},      {"version", control::kControlVersion},
                          {"job", job},          {"rank", rank},
                          {"world_size", world}, {"transport", "shm"}};
    join.update(more);
    EXPECT_TRUE(control.send(join));
    auto answer = control.receive(kTimeoutNs);
    EXPECT_TRUE(answer && *answer);
    if (answer && *answer) attach(std::move(**answer));
  }

  /// The next message on the control connection, or null.
  control::Json hear(Nanos timeout_ns = kTimeoutNs) {
    auto message = control.receive(timeout_ns);
    return message && *message ? (*message)->body : control::Json();
  }
  /// Hears up to and including a message of `type`; false: none came.
  bool hear_until(const std::string& type) {
    for (;;) {
      const control::Json message = hear();
      if (message.is_null()) return false;
      if (message["type"] == type) return true;
    }
  }

  control::Json joined;
  control::Connection control;
  client::BulkCopier copier{1, 1};
  std::unique_ptr<client::ShmTransport> transport;

 private:
  void attach(control::Received answer) {
    joined = answer.body;
    ASSERT_EQ(joined["type"], "joined") << joined;
    auto heard = control::heard(std::move(answer));
    ASSERT_TRUE(heard) << heard.error().text;
    auto made = membership::join_shm(std::get<control::answer::Joined>(heard->message).place,
                                     *heard, copier);
    ASSERT_TRUE(made) << made.error().text;
    transport = std::move(*made);
    ASSERT_TRUE(control::say(control, control::request::Attach{}, {transport->region_fd()}));
  }
};

}  // namespace ina::test
