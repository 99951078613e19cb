#include "transport/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "common/fd.h"
#include "common/system_text.h"

namespace ina::client {
namespace {

struct NamedAddress {
  std::string interface;
  uint32_t ip = 0;
};

Result<std::vector<NamedAddress>> addresses_of_host() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    return tl::unexpected(system_error("the interfaces cannot be listed"));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<NamedAddress> found;
  for (const ifaddrs* at = list; at; at = at->ifa_next) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET) continue;
    const std::string label = at->ifa_name;  // "eth0:1" is an address of eth0
    found.push_back({label.substr(0, label.find(':')),
                     ntohl(reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr.s_addr)});
  }
  return found;
}

}  // namespace

Result<Interface> interface_named(const std::string& name) {
  const Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!any) return tl::unexpected(system_error("cannot create a socket"));
  const auto ask = [&](unsigned long what, ifreq& request) {
    request = {};
    name.copy(request.ifr_name, sizeof request.ifr_name - 1);
    return ::ioctl(any.get(), what, &request) == 0;
  };
  Interface found;
  found.name = name;
  ifreq request{};
  if (name.empty() || name.size() >= IFNAMSIZ || !ask(SIOCGIFFLAGS, request))
    return fail(INA_ERR_INVALID, "there is no interface '" + name + "'");
  found.up = (request.ifr_flags & IFF_UP) != 0;
  if (!ask(SIOCGIFMTU, request))
    return tl::unexpected(system_error("interface " + name + " does not tell its MTU"));
  found.mtu = static_cast<uint32_t>(request.ifr_mtu);
  if (!ask(SIOCGIFHWADDR, request))
    return tl::unexpected(system_error("interface " + name + " does not tell its MAC address"));
  std::memcpy(found.mac.data(), request.ifr_hwaddr.sa_data, found.mac.size());
  const auto addresses = addresses_of_host();
  if (!addresses) return tl::unexpected(addresses.error());
  for (const NamedAddress& address : *addresses)
    if (address.interface == name) found.addresses.push_back(address.ip);
  return found;
}

Result<Interface> interface_with(uint32_t ip) {
  const auto addresses = addresses_of_host();
  if (!addresses) return tl::unexpected(addresses.error());
  const auto found = std::ranges::find(*addresses, ip, &NamedAddress::ip);
  if (found == addresses->end())
    return fail(INA_ERR_INVALID, "no interface has the address " + dotted(ip));
  return interface_named(found->interface);
}

Result<uint32_t> source_towards(uint32_t ip) {
  const Fd probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_in to = socket_address(ip, 9);  // nothing is sent
  sockaddr_in own{};
  socklen_t bytes = sizeof own;
  if (!probe) return tl::unexpected(system_error("cannot create a socket"));
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 ||
      ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0)
    return fail(INA_ERR_NO_SWITCH, "no way to " + dotted(ip) + ": " + system_text(errno));
  return ntohl(own.sin_addr.s_addr);
}

std::optional<uint32_t> mtu_towards(uint32_t ip) {
  const Fd probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_in to = socket_address(ip, 9);  // nothing is sent
  int mtu = 0;
  socklen_t bytes = sizeof mtu;
  if (!probe || ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 ||
      ::getsockopt(probe.get(), IPPROTO_IP, IP_MTU, &mtu, &bytes) != 0 || mtu <= 0)
    return std::nullopt;
  return static_cast<uint32_t>(mtu);
}

sockaddr_in socket_address(uint32_t ip, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(ip);
  address.sin_port = htons(port);
  return address;
}

std::string dotted(uint32_t ip) {
  const in_addr address{htonl(ip)};
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

}  // namespace ina::client
