// Filters for the frames that the kernel puts into a socket, as classic BPF programs.
#pragma once

#include <cstdint>

namespace ina::io {

/// A packet socket gets UDP datagrams over IPv4, in whole, to this address and port. False: errno.
bool pass_datagrams_only(int socket, uint32_t ip, uint16_t udp_port);
/// A socket gets nothing any more. False: errno.
bool pass_nothing(int socket);

}  // namespace ina::io
