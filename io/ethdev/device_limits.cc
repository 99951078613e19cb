#include "io/ethdev/device_limits.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "common/fd.h"

namespace ina::io {

std::optional<uint32_t> mtu_of_interface(const std::string& interface) {
  const Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  if (interface.empty() || interface.size() >= IFNAMSIZ) return std::nullopt;
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  if (!any || ::ioctl(any.get(), SIOCGIFMTU, &request) != 0) return std::nullopt;
  return static_cast<uint32_t>(request.ifr_mtu);
}

}  // namespace ina::io
