// The sockets by which DPDK's drivers for interfaces of the kernel (AF_PACKET, AF_XDP) receive. The
// drivers (22.11) do not expose them, and the AF_XDP driver never closes its own.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string_view>
#include <vector>

namespace ina::io {

struct DriverSocket {
  int fd = -1;
  ino_t inode = 0;  ///< tells it from another that has its number later
};

/// The sockets of this process that a device with these arguments would add to; empty for devices
/// that have none. Of two calls the difference is the device's own, unless another thread of the
/// process makes such sockets at the same time.
std::vector<DriverSocket> sockets_like(std::string_view device);
/// Those of `now` that are not among `before`; none if they are not `expected` in number.
std::vector<DriverSocket> added_sockets(const std::vector<DriverSocket>& before,
                                        const std::vector<DriverSocket>& now, size_t expected);
/// The socket gets the frames of this interface. One whose interface was removed, or has left the
/// network namespace, never gets any again. Of AF_XDP only the first call after that says so.
bool is_bound_to(const DriverSocket& socket, unsigned interface_index);
/// Closes it if it is still open.
void close_left_open(const DriverSocket& socket);

}  // namespace ina::io
