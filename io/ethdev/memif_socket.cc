#include "io/ethdev/memif_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/devargs.h"
#include "common/fd.h"
#include "io/ethdev/device_arguments.h"

namespace ina::io {

void remove_stale_memif_socket(std::string_view devargs) {
  const std::string path(device_argument(devargs, "socket"));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (!devargs.starts_with("net_memif") || device_argument(devargs, "role") != "server" ||
      device_argument(devargs, "socket-abstract") != "no" || path.empty() ||
      path.size() >= sizeof(address.sun_path))
    return;
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  // The probe is of another type, which a listener refuses with EPROTOTYPE: a connection that comes
  // and goes at once makes DPDK 22.11 abort the process that listens, which may be this one.
  const Fd probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (probe &&
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
      errno == ECONNREFUSED)
    ::unlink(path.c_str());
}

}  // namespace ina::io
