#include "membership/listener.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/clock.h"
#include "common/fd.h"

namespace ina::membership {

namespace {

/// 0, or the error that says that nobody listens. The probe is of another type, which a listener
/// refuses: a connection that comes and goes at once makes DPDK 22.11 abort the process that
/// listens.
int probe(const sockaddr_un& address) {
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    return 0;
  return errno == ENOENT || errno == ECONNREFUSED || errno == ENOTDIR ? errno : 0;
}

}  // namespace

Result<void> await_listener(const std::string& path, Nanos most) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (most == INT64_MAX || path.size() >= sizeof(address.sun_path)) return {};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const Nanos deadline = now_ns() + most;
  for (;;) {
    const int error = probe(address);
    if (error == 0) return {};
    if (now_ns() >= deadline)
      return fail(INA_ERR_NO_SWITCH,
                  "nobody serves the memif socket " + path + ": " + std::strerror(error) +
                      "; ina-memif or a memif port of the switch does (docs/memif.md). Start it "
                      "first, or set INA_TIMEOUT_US to wait for it");
    ::usleep(2000);
  }
}

}  // namespace ina::membership
