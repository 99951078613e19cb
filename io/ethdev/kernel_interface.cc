#include "io/ethdev/kernel_interface.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace ina::io {

bool KernelInterface::find(unsigned index) {
  char name[IF_NAMESIZE] = {};
  socket_ = Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket_ || ::if_indextoname(index, name) == nullptr) return false;
  name_ = name;
  index_ = index;
  return true;
}

bool KernelInterface::is_up() const {
  ifreq request{};
  request.ifr_ifindex = static_cast<int>(index_);
  return ::ioctl(socket_.get(), SIOCGIFNAME, &request) == 0 &&
         ::ioctl(socket_.get(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) != 0 &&
         (request.ifr_flags & IFF_RUNNING) != 0;
}

bool KernelInterface::is_attached(std::span<const DriverSocket> sockets) const {
  if (index_ == 0) return true;
  char name[IF_NAMESIZE] = {};
  if (::if_indextoname(index_, name) == nullptr) return false;
  // Under another name it is the same interface, until the name has a new one.
  const unsigned named = ::if_nametoindex(name_.c_str());
  if (named != 0 && named != index_) return false;
  // One that has left the namespace and come back may have its number again.
  for (const DriverSocket& socket : sockets)
    if (!is_bound_to(socket, index_)) return false;
  return true;
}

}  // namespace ina::io
