#include "transport/udp_filter.h"

#include <linux/filter.h>
#include <sys/socket.h>

#include <vector>

namespace ina::client {

void filter_strangers(int socket, const FrameBinding& binding) {
  // Offsets from the UDP header, where the program begins, and one from the IPv4 header. Loads are
  // big-endian, which the INA header (docs/protocol.md) is not; one beyond the end drops.
  const struct {
    uint16_t size;
    uint32_t at;
    uint32_t value;
  } expected[] = {
      {BPF_W, static_cast<uint32_t>(SKF_NET_OFF) + 12, binding.switch_address.ip},
      {BPF_H, 8, __builtin_bswap16(wire::kMagic)},
      {BPF_W, 12, __builtin_bswap32(value(binding.job))},
      {BPF_W, 16, __builtin_bswap32(static_cast<uint32_t>(binding.job_key))},
      {BPF_W, 20, __builtin_bswap32(static_cast<uint32_t>(binding.job_key >> 32))},
  };
  std::vector<sock_filter> program;
  for (const auto& [size, at, value] : expected) {
    program.push_back(BPF_STMT(static_cast<uint16_t>(BPF_LD | BPF_ABS | size), at));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
  }
  // From a port of one of the lanes.
  program.push_back(BPF_STMT(BPF_LD | BPF_ABS | BPF_H, 0));
  program.push_back(BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, binding.switch_address.udp_port));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, binding.lanes, 0, 1));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, UINT32_MAX));  // all of it
  const sock_fprog filter{static_cast<uint16_t>(program.size()), program.data()};
  ::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

}  // namespace ina::client
