#include "io/ethdev/neighbour.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ina::io {
namespace {

constexpr size_t kMacBytes = 6;
constexpr uint16_t kEthertypeArp = 0x0806;
constexpr uint16_t kEthertypeIpv4 = 0x0800;

uint16_t load16(const std::byte* at) {
  return static_cast<uint16_t>(std::to_integer<uint16_t>(at[0]) << 8 |
                               std::to_integer<uint16_t>(at[1]));
}
uint32_t load32(const std::byte* at) {
  return uint32_t{load16(at)} << 16 | load16(at + 2);
}
void store16(std::byte* at, uint16_t value) {
  at[0] = static_cast<std::byte>(value >> 8);
  at[1] = static_cast<std::byte>(value & 0xff);
}
void store32(std::byte* at, uint32_t value) {
  store16(at, static_cast<uint16_t>(value >> 16));
  store16(at + 2, static_cast<uint16_t>(value & 0xffff));
}

void return_to_sender(std::byte* ethernet, const wire::MacAddress& own) {
  std::memcpy(ethernet, ethernet + kMacBytes, kMacBytes);
  std::memcpy(ethernet + kMacBytes, own.data(), kMacBytes);
}

bool answer_arp(std::span<std::byte> frame, const wire::Address& own) {
  constexpr size_t kArpBytes = 28;
  if (frame.size() < wire::kEthernetBytes + kArpBytes) return false;
  std::byte* const arp = frame.data() + wire::kEthernetBytes;
  const bool is_request = load16(arp) == 1 && load16(arp + 2) == kEthertypeIpv4 &&
                          load16(arp + 4) == (kMacBytes << 8 | 4) && load16(arp + 6) == 1;
  std::byte* const sender = arp + 8;
  std::byte* const target = arp + 18;
  if (!is_request || load32(target + kMacBytes) != own.ip) return false;
  store16(arp + 6, 2);
  std::memcpy(target, sender, kMacBytes + 4);
  std::memcpy(sender, own.mac.data(), kMacBytes);
  store32(sender + kMacBytes, own.ip);
  return_to_sender(frame.data(), own.mac);
  return true;
}

bool answer_echo(std::span<std::byte> frame, const wire::Address& own) {
  constexpr size_t kIcmpBytes = 8;
  if (frame.size() < wire::kEthernetBytes + wire::kIpv4Bytes + kIcmpBytes) return false;
  std::byte* const ip = frame.data() + wire::kEthernetBytes;
  std::byte* const icmp = ip + wire::kIpv4Bytes;
  constexpr uint16_t kFragmentMask = 0x3fff;
  // Headers with options are left alone: nobody pings with them.
  const bool is_request = ip[0] == std::byte{0x45} && ip[9] == std::byte{1} &&
                          (load16(ip + 6) & kFragmentMask) == 0 && load16(icmp) == 0x0800;
  // The reply goes to the sender's claimed address, but never to a group or to everyone.
  const bool from_host = (frame[kMacBytes] & std::byte{1}) == std::byte{0} &&
                         load32(ip + 12) >> 28 < 0xe && load32(ip + 12) != 0;
  if (!is_request || !from_host || load32(ip + 16) != own.ip) return false;
  const uint32_t sender = load32(ip + 12);
  store32(ip + 12, own.ip);  // the header's checksum does not depend on the order
  store32(ip + 16, sender);
  store16(icmp, 0);
  uint32_t sum = uint32_t{load16(icmp + 2)} + 0x0800;  // type 8 becomes 0 (RFC 1624)
  sum = (sum & 0xffff) + (sum >> 16);
  store16(icmp + 2, static_cast<uint16_t>(sum));
  return_to_sender(frame.data(), own.mac);
  return true;
}

}  // namespace

uint32_t addressed_ip(std::span<const std::byte> frame) {
  constexpr size_t kArpTargetAt = wire::kEthernetBytes + 24;
  constexpr size_t kIpv4DestinationAt = wire::kEthernetBytes + 16;
  if (frame.size() < wire::kEthernetBytes + wire::kIpv4Bytes) return 0;
  const uint16_t ethertype = load16(frame.data() + 2 * kMacBytes);
  if (ethertype == kEthertypeIpv4) return load32(frame.data() + kIpv4DestinationAt);
  if (ethertype != kEthertypeArp || frame.size() < kArpTargetAt + 4) return 0;
  const bool is_request = load16(frame.data() + wire::kEthernetBytes + 6) == 1;
  return is_request ? load32(frame.data() + kArpTargetAt) : 0;
}

bool answer_in_place(std::span<std::byte> frame, const wire::Address& own) {
  if (frame.size() < wire::kEthernetBytes) return false;
  switch (load16(frame.data() + 2 * kMacBytes)) {
    case kEthertypeArp:
      return answer_arp(frame, own);
    case kEthertypeIpv4:
      return answer_echo(frame, own);
    default:
      return false;
  }
}

}  // namespace ina::io
