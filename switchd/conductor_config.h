// The settings of the control plane, given at its construction.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "control/work_budget.h"
#include "io/bridge/mac_table.h"
#include "io/ethdev/port_device.h"
#include "switchd/config/config.h"
#include "switchd/configuration.h"
#include "wire/frame.h"

namespace ina::switchd {

struct FramePortInfo {
  std::string name;
  wire::Address address;
  bool multicast = false;            ///< results are sent to groups
  bridge::VlanId vlan = 0;           ///< of the switch itself behind this port
  std::string interface = {};        ///< of the kernel; empty: it has none
  io::PortDevice* device = nullptr;  ///< nullptr: it is not looked after
};

struct ConductorConfig {
  // Sections of the configuration, as they were read.
  config::ControlConfig control;
  config::UplinkConfig uplink;
  config::AdminConfig admin;  ///< `socket`: the path itself; empty, as `listen`: none
  config::SwitchConfig switchd;
  config::AggregatorConfig aggregator;
  config::StaticConfig static_pools;
  scheduler::Rules rules;
  config::StragglerConfig straggler;
  config::JobsConfig jobs;
  config::SecurityConfig security;
  std::vector<scheduler::TenantQuota> tenants;

  // The ports that were opened.
  bool has_shm = true;
  std::string shm_name = "shm0";
  std::vector<FramePortInfo> frame_ports;

  // Settings that no file has.
  /// How long a connection of an administrator may say nothing, before it is closed.
  Nanos admin_silence_ns = 10'000'000'000;
  /// How long a host may take to hear why its connection over TCP is closed.
  Nanos farewell_ns = 1'000'000'000;
  /// Mappings and descriptors for all jobs together; 0: as many as the process's limits allow.
  uint64_t mappings = 0;
  uint64_t descriptors = 0;
  uint32_t handles_share_percent = 50;    ///< the part of them for one tenant or user
  control::WorkBudget::Limits work = {};  ///< share of the conductor's time for one user or address
  /// The source of all this, to be read again; nullptr: it does not come from a file.
  std::shared_ptr<Configuration> configuration = {};
  /// Has the log go on in the file that is at its path now; empty: there is no file.
  std::function<Result<void>()> reopen_log = {};
  /// Called when every lane has answered: when the switch begins to serve, and from then on each
  /// `heartbeat_ns` (0: not again).
  std::function<void()> heartbeat = {};
  Nanos heartbeat_ns = 0;

  /// Jobs may be spread over switches above or below this one.
  bool spreads() const { return !uplink.url.empty() || !control.switches_below.empty(); }
  /// True if `owner` is one of control.switches_below.
  bool is_switch_below(const std::string& owner) const;
  /// Straggler help: workers may run ahead; jobs.window_bytes bounds what they have in the switch.
  bool helps() const { return straggler.help != config::Help::kOff && !aggregator.fixed_slots(); }
  /// aggregator::JobSpec::park_home
  bool parks_at_home() const {
    return straggler.help == config::Help::kFallback && rules.home == Home::kWorkers;
  }
  /// Bytes that each worker keeps for others; 0: the fallback does.
  uint64_t park_bytes() const {
    const bool workers_keep = straggler.help == config::Help::kLeader || parks_at_home();
    return workers_keep ? straggler.park_bytes : 0;
  }
};

/// As the configuration has them; only those that were opened have MAC addresses.
std::vector<FramePortInfo> frame_ports_of(const config::Config& config);
ConductorConfig conductor_config(const config::Config& config,
                                 std::vector<FramePortInfo> frame_ports);

}  // namespace ina::switchd
