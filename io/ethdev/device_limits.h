// Limits of DPDK's drivers, where the drivers report none, or wrong ones (DPDK 22.11). Without
// DPDK's headers.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "io/ethdev/device_arguments.h"

namespace ina::io {

inline constexpr uint32_t kMaxMtu = 16000;

/// The limit of AF_XDP: a frame and its headers fill a page, less 256 bytes that stay free.
inline constexpr uint32_t kMaxXdpMtu = 3498;
/// The driver of TAP sends nothing longer and cannot be told otherwise.
inline constexpr uint32_t kMaxTapMtu = 1500;

constexpr uint32_t max_mtu(std::string_view driver) {
  if (driver.starts_with("net_af_xdp")) return kMaxXdpMtu;
  if (driver.starts_with("net_tap")) return kMaxTapMtu;
  return kMaxMtu;
}

/// Buffers that a driver takes for each receive descriptor. net_vmxnet3 fills two rings with as
/// many each; where a pool has fewer it receives nothing, and does not say so.
constexpr uint32_t buffers_per_descriptor(std::string_view driver) {
  return driver == "net_vmxnet3" ? 2 : 1;
}

/// Receive and send queues at most, of those that a driver states. The older NICs of net_e1000_em
/// have one: of a second one nothing comes, and nothing leaves.
constexpr uint16_t max_queues(std::string_view driver, uint16_t stated) {
  return driver == "net_e1000_em" ? 1 : stated;
}

/// The argument that says how many queues a driver of the kernel's interfaces has; empty for
/// others.
constexpr std::string_view queues_argument(std::string_view driver) {
  if (driver.starts_with("net_af_xdp")) return "queue_count";
  return driver.starts_with("net_af_packet") ? "qpairs" : "";
}

/// MTU of an interface of the kernel; nothing if there is none of that name.
std::optional<uint32_t> mtu_of_interface(const std::string& interface);

/// There is an interface of the kernel with this name, and it is up.
bool is_interface_up(const std::string& interface);

/// A number among a device's arguments; `otherwise` if there is none.
inline uint32_t device_number(std::string_view device, std::string_view key, uint32_t otherwise) {
  const std::string_view text = device_argument(device, key);
  uint32_t number = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Receive queues of its interface that a device of AF_XDP takes, beginning with the first.
inline uint32_t xdp_queues(std::string_view device) {
  return device_number(device, "start_queue", 0) == 0 ? device_number(device, "queue_count", 1) : 0;
}
/// Why it must be `queues`, as many as the interface has. `may_have_several`: a port of a switch.
std::string xdp_queues_text(std::string_view device, const std::string& interface, uint32_t queues,
                            bool may_have_several);

/// Why a device may not have more queues of the argument `key` than the switch has packet loops.
std::string unpolled_queues_text(std::string_view key, uint32_t queues, uint32_t lanes);

/// The driver of AF_PACKET demands buffers for the largest frame of its ring (framesz=), even if
/// the mtu is smaller. 0: none is named.
inline uint32_t packet_ring_frame_bytes(std::string_view device) {
  constexpr uint32_t kMaxBytes = 1 << 15;  // buffers count their bytes in 16 bits
  const uint32_t bytes = device_number(device, "framesz", 0);
  return bytes < kMaxBytes ? bytes : kMaxBytes;
}

}  // namespace ina::io
