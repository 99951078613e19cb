#include "switchd/conductor_config.h"

#include <sstream>

namespace ina::switchd {

bool ConductorConfig::is_switch_below(const std::string& owner) const {
  std::istringstream names(control.switches_below);
  for (std::string name; std::getline(names, name, ',');) {
    const size_t first = name.find_first_not_of(' ');
    if (first != std::string::npos &&
        name.substr(first, name.find_last_not_of(' ') + 1 - first) == owner)
      return true;
  }
  return false;
}

std::vector<FramePortInfo> frame_ports_of(const config::Config& config) {
  std::vector<FramePortInfo> ports;
  for (const config::PortConfig& port : config.ports)
    if (port.type == config::PortType::kEthdev)
      ports.push_back({port.name,
                       {.mac = {}, .ip = port.ip, .udp_port = port.udp_port},
                       port.results == config::Results::kMulticast,
                       port.vlan});
  return ports;
}

ConductorConfig conductor_config(const config::Config& config,
                                 std::vector<FramePortInfo> frame_ports) {
  ConductorConfig c{.control = config.control,
                    .uplink = config.uplink,
                    .admin = {},
                    .switchd = config.switchd,
                    .aggregator = config.aggregator,
                    .static_pools = config.static_pools,
                    .rules = config.rules,
                    .straggler = config.straggler,
                    .jobs = config.jobs,
                    .security = config.security,
                    .tenants = config.tenants,
                    .has_shm = false,
                    .frame_ports = std::move(frame_ports)};
  for (const config::PortConfig& port : config.ports)
    if (port.type == config::PortType::kShm) {
      c.has_shm = true;
      c.shm_name = port.name;
    }
  if (!config.admin.enabled) return c;
  c.admin = config.admin;
  c.admin.socket = config.admin_socket_path();
  return c;
}

}  // namespace ina::switchd
