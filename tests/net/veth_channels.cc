// Preloaded into ina-switchd. DPDK's driver of AF_XDP (22.11) takes as many queues as an interface
// has combined channels, and a veth pair names its queues one way at a time: the driver would take
// one. Here such queues count as combined.
#include <dlfcn.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>

#include <cstdarg>

extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request,
                                                            ...) noexcept {
  using Ioctl = int (*)(int, unsigned long, ...);
  static const auto kernel = reinterpret_cast<Ioctl>(::dlsym(RTLD_NEXT, "ioctl"));
  va_list values;
  va_start(values, request);
  void* const argument = va_arg(values, void*);
  va_end(values);
  const int result = kernel(fd, request, argument);
  if (result != 0 || request != SIOCETHTOOL) return result;
  auto& channels = *reinterpret_cast<ethtool_channels*>(static_cast<ifreq*>(argument)->ifr_data);
  if (channels.cmd != ETHTOOL_GCHANNELS || channels.max_combined != 0) return result;
  channels.max_combined = channels.combined_count = channels.rx_count;
  channels.rx_count = channels.tx_count = 0;
  return result;
}
