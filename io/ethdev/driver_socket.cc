#include "io/ethdev/driver_socket.h"

#include <linux/if_packet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>

namespace ina::io {
namespace {

/// 0 if it is no socket.
ino_t inode_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

}  // namespace

std::vector<DriverSocket> sockets_like(std::string_view device) {
  int family = AF_UNSPEC;
  if (device.starts_with("net_af_packet")) family = AF_PACKET;
  if (device.starts_with("net_af_xdp")) family = AF_XDP;
  std::vector<DriverSocket> found;
  if (family == AF_UNSPEC) return found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string number = entry.path().filename();
    DriverSocket socket;
    std::from_chars(number.data(), number.data() + number.size(), socket.fd);
    int domain = AF_UNSPEC;
    socklen_t bytes = sizeof domain;
    if (::getsockopt(socket.fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0 || domain != family)
      continue;
    socket.inode = inode_of(socket.fd);
    found.push_back(socket);
  }
  return found;
}

std::vector<DriverSocket> added_sockets(const std::vector<DriverSocket>& before,
                                        const std::vector<DriverSocket>& now, size_t expected) {
  std::vector<DriverSocket> added = now;
  std::erase_if(added, [&before](const DriverSocket& socket) {
    return std::ranges::find(before, socket.inode, &DriverSocket::inode) != before.end();
  });
  if (added.size() != expected) added.clear();
  return added;
}

bool is_bound_to(const DriverSocket& socket, unsigned interface_index) {
  sockaddr_ll address{};
  socklen_t bytes = sizeof address;
  if (::getsockname(socket.fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    // Sockets of AF_XDP have no name, but get an error.
    int error = 0;
    socklen_t error_bytes = sizeof error;
    return ::getsockopt(socket.fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) != 0 ||
           error != ENETDOWN;
  }
  return address.sll_ifindex == static_cast<int>(interface_index);
}

void close_left_open(const DriverSocket& socket) {
  if (socket.fd >= 0 && inode_of(socket.fd) == socket.inode) ::close(socket.fd);
}

}  // namespace ina::io
