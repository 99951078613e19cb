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

bool is_interface_up(const std::string& interface) {
  const Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  if (interface.empty() || interface.size() >= IFNAMSIZ) return false;
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  return any && ::ioctl(any.get(), SIOCGIFFLAGS, &request) == 0 &&
         (request.ifr_flags & IFF_UP) != 0;
}

std::string xdp_queues_text(std::string_view device, const std::string& interface, uint32_t queues,
                            bool may_have_several) {
  const std::string all = std::to_string(queues);
  std::string text = "interface " + interface + " has " + all +
                     " receive queues, and its device takes " + std::to_string(xdp_queues(device)) +
                     " of them from the first on: frames in others would be lost; let it have one "
                     "('ethtool -L " +
                     interface + " combined 1')";
  if (may_have_several)
    text += ", or its device take all (queue_count=" + all + ", and as many switch.lcores)";
  return text;
}

std::string unpolled_queues_text(std::string_view key, uint32_t queues, uint32_t lanes) {
  const std::string name(key);
  return "has " + name + "=" + std::to_string(queues) + ", but only " + std::to_string(lanes) +
         " packet loops would poll them: lower " + name + " or raise switch.lcores";
}

}  // namespace ina::io
