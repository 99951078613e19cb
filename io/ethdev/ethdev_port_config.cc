#include "io/ethdev/ethdev_port_config.h"

namespace ina::io {

Result<void> check(const EthdevPortConfig& config) {
  const auto invalid = [&](const std::string& what) {
    return fail(INA_ERR_INVALID, "Port " + config.name + ": " + what);
  };
  const uint32_t needed_mtu =
      static_cast<uint32_t>(wire::kFrameHeaderBytes - wire::kEthernetBytes) + config.slot_bytes;
  if (config.ip == 0) return invalid("it has no IP address.");
  if (config.udp_port == 0 || config.lanes == 0 || config.udp_port + config.lanes > 65536)
    return invalid("UDP ports " + std::to_string(config.udp_port) + " and the " +
                   std::to_string(config.lanes) + " lanes from there are not all within 1..65535.");
  if (config.mtu < needed_mtu)
    return invalid("slots of " + std::to_string(config.slot_bytes) + " bytes need an mtu of " +
                   std::to_string(needed_mtu) + ", it has " + std::to_string(config.mtu) + ".");
  if (config.vlan >= bridge::kVlans - 1)
    return invalid("VLAN " + std::to_string(config.vlan) + " is not within 1..4094.");
  if (config.max_endpoints == 0 || config.max_endpoints > 4096)
    return invalid("max_endpoints " + std::to_string(config.max_endpoints) +
                   " is not within 1..4096.");
  return {};
}

}  // namespace ina::io
