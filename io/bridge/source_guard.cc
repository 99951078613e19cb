#include "io/bridge/source_guard.h"

#include <algorithm>
#include <cstring>

#include "io/bridge/mac_table.h"
#include "io/bridge/vlan_tags.h"

namespace ina::bridge {
namespace {

constexpr uint16_t kEthertypeIpv4 = 0x0800;
constexpr uint16_t kEthertypeArp = 0x0806;

/// The address in whose name an IPv4 packet or an ARP message is sent; 0: none. Hosts take a frame
/// with a tag of VLAN 0 for one without, so tags do not hide it.
uint32_t source_ip(std::span<const std::byte> frame) {
  size_t at = behind_tags(frame, wire::kEthernetBytes - 2);
  const uint16_t ethertype = load16(frame, at);
  at += 2;
  if (ethertype == kEthertypeIpv4)
    at += 12;
  else if (ethertype == kEthertypeArp)
    at += 14;
  else
    return 0;
  if (frame.size() < at + 4) return 0;
  return uint32_t{load16(frame, at)} << 16 | load16(frame, at + 2);
}

}  // namespace

SourceGuard::SourceGuard(std::vector<uint32_t> switch_ips, std::vector<HostAddress> hosts)
    : switch_ips_(std::move(switch_ips)), hosts_(std::move(hosts)) {
  std::ranges::sort(hosts_);
}

bool SourceGuard::allows(std::span<const std::byte> frame) const {
  wire::MacAddress mac;
  std::memcpy(mac.data(), frame.data() + mac.size(), mac.size());
  const uint32_t ip = source_ip(frame);
  if (ip != 0 && std::ranges::find(switch_ips_, ip) != switch_ips_.end()) return false;
  if (hosts_.empty() || is_group(mac) || to_number(mac) == 0) return true;
  return ip == 0 ? known(mac) : known({mac, ip});
}

bool SourceGuard::allows(const HostAddress& host) const {
  return hosts_.empty() || known(host);
}

bool SourceGuard::known(const HostAddress& host) const {
  return std::ranges::binary_search(hosts_, host);
}

bool SourceGuard::known(const wire::MacAddress& mac) const {
  const auto first = std::ranges::lower_bound(hosts_, HostAddress{mac, 0});
  return first != hosts_.end() && first->mac == mac;
}

}  // namespace ina::bridge
