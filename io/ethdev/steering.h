// The lane of a port for which a frame is, and the flow rules that tell the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ina::io {

/// Workers send to lane n by UDP port udp_port + n; all other frames are for lane 0.
struct Steering {
  uint32_t ip = 0;  ///< of the port, host byte order
  uint16_t udp_port = 0;
  uint16_t lanes = 1;
  uint16_t vlan = 0;  ///< of the tag; 0: there is none
};

/// `frame` without its tag. Looks at addresses alone: whether the frame is a good one is found out
/// by the lane that gets it.
uint16_t lane_of(std::span<const std::byte> frame, const Steering& steering);

/// Asks a started device to put what is for lane n into queue n mod `queues`, and all the rest into
/// queue 0. False: it cannot do that, and nothing has changed.
bool steer_by_rules(uint16_t port_id, uint16_t queues, const Steering& steering);

}  // namespace ina::io
