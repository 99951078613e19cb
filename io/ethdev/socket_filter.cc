#include "io/ethdev/socket_filter.h"

#include <linux/filter.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <span>

namespace ina::io {
namespace {

bool attach(int socket, std::span<sock_filter> program) {
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0;
}

}  // namespace

bool pass_datagrams_only(int socket, uint32_t ip, uint16_t udp_port) {
  constexpr uint32_t kIp = ETH_HLEN;
  constexpr uint32_t kFragmentMask = 0x3fff;  // "more fragments" and the offset
  constexpr uint32_t kWhole = 0xffff;
  sock_filter program[] = {
      // The kernel has taken a VLAN tag off.
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
               static_cast<uint32_t>(SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 12),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 10),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kIp + 9),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 8),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kIp + 16),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ip, 0, 6),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kIp + 6),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kFragmentMask, 4, 0),
      BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, kIp),  // length of the IP header
      BPF_STMT(BPF_LD | BPF_H | BPF_IND, kIp + 2),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, udp_port, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, kWhole),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  return attach(socket, program);
}

bool pass_nothing(int socket) {
  sock_filter program[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  return attach(socket, program);
}

}  // namespace ina::io
