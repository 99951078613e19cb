// The configuration of an Ethernet port, and the check of it. Without DPDK's headers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "io/bridge/source_guard.h"
#include "io/ethdev/switch_addresses.h"
#include "wire/frame.h"
#include "wire/siphash.h"

namespace ina::io {

struct EthdevPortConfig {
  std::string name;    ///< for people
  std::string device;  ///< see DeviceConfig
  uint32_t ip = 0;     ///< own address, host byte order
  uint16_t vlan = 0;   ///< of what is for the switch and comes from it, 1..4094; 0: has no tag
  uint16_t udp_port = wire::kDefaultUdpPort;
  uint16_t lanes = 1;  ///< frames to udp_port + n are lane n's
  /// With one lane: frames to so many UDP ports from udp_port on are taken. A relay does not look
  /// for whose lane a frame is.
  uint16_t relayed_lanes = 1;
  uint32_t mtu = 1500;
  uint16_t rx_descriptors = 1024;
  uint16_t tx_descriptors = 1024;
  uint32_t slot_bytes = 1024;
  bool ecn = true;  ///< mark results while frames come in faster than they are handled
  uint16_t max_endpoints = 256;
  bool bridged = false;  ///< frames not for the switch go to transit() instead of being dropped
  wire::SipKey probe_key = {};  ///< bridged: bridge::BridgeConfig::probe_key
  /// bridged: addresses of the other ports, which are answered here too
  std::vector<SwitchAddress> switch_addresses{};
  uint32_t lent_buffers = 0;                 ///< bridged: what the other ports' queues may hold
  std::vector<bridge::HostAddress> hosts{};  ///< the hosts that may send here; empty: any
};

/// Checks that a port can be as `config` says, as far as can be told without its device. The error
/// names the port.
Result<void> check(const EthdevPortConfig& config);

}  // namespace ina::io
