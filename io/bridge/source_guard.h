// The rules for source addresses of frames. No host may use an address of the switch. Where a port
// has a list of hosts, only these may send there, each from its own addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/frame.h"

namespace ina::bridge {

/// A host as its operator knows it. `ip` in host byte order; 0: it has none.
struct HostAddress {
  wire::MacAddress mac{};
  uint32_t ip = 0;
  friend auto operator<=>(const HostAddress&, const HostAddress&) = default;
};

/// The guard of one port. Used by one thread; allocates in the constructor only.
class SourceGuard {
 public:
  /// `switch_ips`: addresses of the switch. `hosts`: those behind the port, a host with several
  /// addresses several times; empty: anybody.
  SourceGuard(std::vector<uint32_t> switch_ips, std::vector<HostAddress> hosts);

  /// Looks at the source MAC address and, in IPv4 and ARP, tagged or not, at the source IP address.
  /// Sources that are no host's (a group, zero) are the bridge's to drop. `frame` has at least an
  /// Ethernet header.
  bool allows(std::span<const std::byte> frame) const;

  /// True if a worker may say that it is at this address.
  bool allows(const HostAddress& host) const;

 private:
  bool known(const HostAddress& host) const;
  bool known(const wire::MacAddress& mac) const;

  std::vector<uint32_t> switch_ips_;
  std::vector<HostAddress> hosts_;  ///< sorted
};

}  // namespace ina::bridge
