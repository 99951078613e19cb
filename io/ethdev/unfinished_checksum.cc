#include "io/ethdev/unfinished_checksum.h"

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include <cstdint>

#include "io/bridge/vlan_tags.h"

namespace ina::io {
namespace {

constexpr size_t kEthertypeAt = 12;

/// The checksum's field in a segment of so many bytes; nullptr: none that is known.
uint16_t* field_of(uint8_t protocol, void* segment, size_t bytes) {
  if (protocol == IPPROTO_TCP && bytes >= sizeof(rte_tcp_hdr))
    return &static_cast<rte_tcp_hdr*>(segment)->cksum;
  if (protocol == IPPROTO_UDP && bytes >= sizeof(rte_udp_hdr))
    return &static_cast<rte_udp_hdr*>(segment)->dgram_cksum;
  return nullptr;
}

void finish_ipv4(std::span<std::byte> packet) {
  if (packet.size() < sizeof(rte_ipv4_hdr)) return;
  auto* const ip = reinterpret_cast<rte_ipv4_hdr*>(packet.data());
  const size_t header = rte_ipv4_hdr_len(ip), total = rte_be_to_cpu_16(ip->total_length);
  if (header < sizeof(rte_ipv4_hdr) || total < header || total > packet.size()) return;
  uint16_t* const field = field_of(ip->next_proto_id, packet.data() + header, total - header);
  if (field == nullptr) return;
  *field = 0;
  *field = rte_ipv4_udptcp_cksum(ip, packet.data() + header);
}

void finish_ipv6(std::span<std::byte> packet) {
  if (packet.size() < sizeof(rte_ipv6_hdr)) return;
  auto* const ip = reinterpret_cast<rte_ipv6_hdr*>(packet.data());
  const size_t bytes = rte_be_to_cpu_16(ip->payload_len);
  if (bytes > packet.size() - sizeof(rte_ipv6_hdr)) return;
  uint16_t* const field = field_of(ip->proto, ip + 1, bytes);
  if (field == nullptr) return;
  *field = 0;
  *field = rte_ipv6_udptcp_cksum(ip, ip + 1);
}

}  // namespace

void finish_checksum(std::span<std::byte> frame) {
  const size_t at = bridge::behind_tags(frame, kEthertypeAt);
  if (frame.size() < at + 2) return;
  const uint16_t ethertype = bridge::load16(frame, at);
  if (ethertype == RTE_ETHER_TYPE_IPV4) finish_ipv4(frame.subspan(at + 2));
  if (ethertype == RTE_ETHER_TYPE_IPV6) finish_ipv6(frame.subspan(at + 2));
}

}  // namespace ina::io
