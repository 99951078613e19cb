// The kernel's knowledge of its network interfaces and of the route to a switch.
#pragma once

#include <netinet/in.h>

#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "wire/frame.h"

namespace ina::client {

struct Interface {
  std::string name;
  wire::MacAddress mac{};
  uint32_t mtu = 0;
  bool up = false;                  ///< by the administrator's will; it may have no link
  std::vector<uint32_t> addresses;  ///< IPv4
};

Result<Interface> interface_named(const std::string& name);
/// The interface that has this address.
Result<Interface> interface_with(uint32_t ip);
/// The own address from which the kernel would send to `ip`.
Result<uint32_t> source_towards(uint32_t ip);
/// MTU of the way to `ip`, as far as the kernel knows it; nothing if it does not.
std::optional<uint32_t> mtu_towards(uint32_t ip);

sockaddr_in socket_address(uint32_t ip, uint16_t port);
/// "10.0.0.2"
std::string dotted(uint32_t ip);

}  // namespace ina::client
