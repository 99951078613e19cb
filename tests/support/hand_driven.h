// A worker that speaks the control protocol by hand, over the shm port.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "control/socket.h"
#include "io/shm/layout.h"
#include "io/shm/region.h"

namespace ina::test {

/// True if an entry of a state file's jobs is a group.
inline bool is_group(const control::Json& saved) {
  return saved.value("root", 0u) != 0;
}

/// What a worker says that comes back to a job or a group of a state file and has summed nothing.
inline control::Json rejoin_message(const control::Json& saved, uint32_t rank) {
  control::Json message = {{"type", "rejoin"},
                           {"job_id", saved["id"]},
                           {"job_key", saved["key"]},
                           {"rank", rank},
                           {"world_size", saved["workers"]},
                           {"transport", "shm"},
                           {"low", 0},
                           {"next", 0},
                           {"results_end", 0}};
  if (is_group(saved))
    message["channel"] = saved["id"];
  else
    message.update({{"version", control::kControlVersion}, {"job", saved["name"]}});
  return message;
}

/// It sends no packets.
class HandDriven {
 public:
  explicit HandDriven(const std::string& socket) {
    auto opened = control::Connection::open(socket, 10'000'000'000);
    EXPECT_TRUE(opened) << opened.error().text;
    if (opened) connection_ = std::move(*opened);
  }
  void send(const control::Json& message, const std::vector<int>& fds = {}) const {
    EXPECT_TRUE(connection_.send(message, fds));
  }
  /// The next message but `waiting`, null at the end of the connection.
  control::Json receive() const {
    for (;;) {
      auto received = connection_.receive(10'000'000'000);
      if (!received || !*received) return {};
      if ((*received)->body["type"] != "waiting") return (*received)->body;
    }
  }
  control::Json ask(const control::Json& message) const {
    send(message);
    return receive();
  }
  /// Asks an end that may have closed the connection already, after a last word.
  control::Json ask_if_open(const control::Json& message) const {
    auto answer = connection_.ask(message, 10'000'000'000);
    return answer && *answer ? (*answer)->body : control::Json();
  }
  /// Goes on from `joined`.
  void attach(const control::Json& joined) const {
    const control::Json& shm = joined.at("shm");
    const io::shm::Geometry geometry{joined["lanes"], shm["tx_depth"], shm["rx_depth"],
                                     joined["slot_bytes"], shm["result_rows"]};
    auto region = io::shm::make_region("hand", io::shm::WorkerLayout(geometry).bytes);
    ASSERT_TRUE(region);
    control::Json message = {{"type", "attach"}};
    if (joined.contains("channel")) message["channel"] = joined["channel"];
    send(message, {region->fd.get()});
  }

 private:
  control::Connection connection_;
};

}  // namespace ina::test
