// The multicast group to which a port sends the results of a job.
#pragma once

#include "wire/frame.h"

namespace ina::wire {

/// An IPv4 group of those that a network has for itself (239.192.0.0/14, RFC 2365), and its MAC
/// address (RFC 1112). Jobs whose numbers agree in 18 bits share one: a receiver looks at job and
/// job key.
inline Address group_of(JobId job, uint16_t udp_port) {
  const uint32_t ip = 0xefc00000 | (value(job) & 0x3ffff);
  return {.mac = {0x01, 0x00, 0x5e, static_cast<uint8_t>(ip >> 16 & 0x7f),
                  static_cast<uint8_t>(ip >> 8), static_cast<uint8_t>(ip)},
          .ip = ip,
          .udp_port = udp_port};
}

}  // namespace ina::wire
