// Connections over TCP that are closed as soon as their peers have read why: one that is closed
// while something of its peer is unread is reset, and takes the reason with it. So its peer gets
// some time to read that, as long as not too many do.
#pragma once

#include <map>

#include "control/socket.h"
#include "switchd/epoll.h"

namespace ina::switchd {

class Farewells {
 public:
  /// How many hosts at a time are given time.
  static constexpr size_t kMost = 64;

  /// `epoll`: waits for their messages; must outlive it. `patience_ns`: for each.
  Farewells(const Epoll& epoll, Nanos patience_ns) : epoll_(epoll), patience_ns_(patience_ns) {}

  void add(control::Connection connection, Nanos now);
  bool contains(int fd) const { return open_.contains(fd); }
  /// Something has come on one of them, or can be sent.
  void serve(int fd);
  void end_overdue(Nanos now);
  void clear() { open_.clear(); }

 private:
  struct Farewell {
    control::Connection connection;
    Nanos until = 0;
  };
  const Epoll& epoll_;
  const Nanos patience_ns_;
  std::map<int, Farewell> open_;
};

}  // namespace ina::switchd
