// A worker made by hand: the control connection and the shm transport, without engine or context,
// so that a test decides itself what is said and when.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "client/src/shm_transport.h"
#include "control/socket.h"

namespace ina::test {

class RawWorker {
 public:
  RawWorker(const std::string& socket, const std::string& job, int rank, int world,
            const std::string& ticket = "") {
    auto connection = control::Connection::open(socket, kTimeoutNs);
    EXPECT_TRUE(connection) << connection.error().text;
    if (!connection) return;
    control = std::move(*connection);
    control::Json join = {{"type", "join"},      {"version", control::kControlVersion},
                          {"job", job},          {"rank", rank},
                          {"world_size", world}, {"transport", "shm"}};
    if (!ticket.empty()) join["ticket"] = ticket;
    EXPECT_TRUE(control.send(join));
    auto answer = control.receive(kTimeoutNs);
    EXPECT_TRUE(answer && *answer);
    if (answer && *answer) attach(**answer);
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
  static constexpr Nanos kTimeoutNs = 5'000'000'000;

  void attach(control::Received& answer) {
    joined = answer.body;
    ASSERT_EQ(joined["type"], "joined") << joined;
    const control::Json& shm = joined["shm"];
    const io::shm::Geometry geometry{joined["lanes"],      shm["tx_depth"],    shm["rx_depth"],
                                     joined["slot_bytes"], shm["result_rows"], shm["side_rows"]};
    std::vector<Fd> events(std::make_move_iterator(answer.fds.begin() + 2),
                           std::make_move_iterator(answer.fds.end()));
    auto made = client::ShmTransport::create(geometry, answer.fds[0], answer.fds[1],
                                             std::move(events), copier);
    ASSERT_TRUE(made) << made.error().text;
    transport = std::move(*made);
    ASSERT_TRUE(control.send({{"type", "attach"}}, {transport->region_fd()}));
  }
};

}  // namespace ina::test
