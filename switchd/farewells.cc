#include "switchd/farewells.h"

#include <sys/socket.h>

#include <utility>

namespace ina::switchd {

void Farewells::add(control::Connection connection, Nanos now) {
  const int fd = connection.fd();
  if (open_.size() >= kMost || !epoll_.watch(fd)) return;
  open_[fd] = {std::move(connection), now + patience_ns_};
  serve(fd);
}

void Farewells::serve(int fd) {
  control::Connection& connection = open_.at(fd).connection;
  bool open = true;
  if (connection.pending()) open = connection.receive(0).has_value();
  if (!connection.pending()) ::shutdown(fd, SHUT_WR);
  char unread[4096];
  for (int i = 0; open && !connection.pending() && i < 4; ++i) {
    const ssize_t got = ::recv(fd, unread, sizeof(unread), MSG_DONTWAIT);
    if (got < 0) break;
    open = got > 0;
  }
  if (open) return;
  epoll_.forget(fd);
  open_.erase(fd);
}

void Farewells::end_overdue(Nanos now) {
  std::erase_if(open_, [now](const auto& entry) { return entry.second.until <= now; });
}

}  // namespace ina::switchd
