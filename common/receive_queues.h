// The number of receive queues of a network interface of the kernel.
#pragma once

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "common/fd.h"

namespace ina {

/// 1 for an interface that does not tell, or is not there.
inline uint32_t receive_queues_of(const std::string& interface) {
  const Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&channels);
  if (!any || ::ioctl(any.get(), SIOCETHTOOL, &request) != 0) return 1;
  return std::max(channels.rx_count + channels.combined_count, 1u);
}

}  // namespace ina
