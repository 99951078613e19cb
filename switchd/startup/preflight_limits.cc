// Limits of the process that this configuration needs.
#include "common/process_limits.h"
#include "switchd/startup/preflight_checks.h"

namespace ina::switchd {

namespace {

// What a switch without jobs has, measured, and some more: descriptors, address space, and threads.
constexpr uint64_t kOwnFiles = 40;
constexpr uint64_t kLaneFiles = 4;
constexpr uint64_t kPortFiles = 8;
constexpr uint64_t kOwnAddressBytes = 256 * kMiB;
constexpr uint64_t kStackBytes = kMiB / 4;
constexpr size_t kOwnThreads = 16;

bool locks_memory(const config::PortConfig& port) {
  return port.type == config::PortType::kEthdev &&
         (port.device.starts_with("net_af_xdp") || !port.device.starts_with("net_"));
}

}  // namespace

LimitNeeds needed_limits(const config::Config& config) {
  const uint64_t lanes = config.switchd.lcores;
  LimitNeeds needs;
  // A process with few gets half of them for itself, and the other half is for workers.
  needs.open_files = 2 * (kOwnFiles + kLaneFiles * lanes + kPortFiles * config.ports.size());
  // The state file; and the memory that workers share with the switch, which is files.
  needs.file_bytes = kMiB;
  for (const config::PortConfig& port : config.ports) {
    if (port.type == config::PortType::kShm) needs.file_bytes = kMiB + 4 * config.jobs.window_bytes;
    if (locks_memory(port)) needs.locked_bytes = config.eal.memory_bytes;
  }
  needs.address_bytes = kOwnAddressBytes + row_memory_bytes(config) +
                        (config.needs_dpdk() ? config.eal.memory_bytes : 0);
  needs.stack_bytes = kStackBytes;
  needs.threads = kOwnThreads + lanes;
  return needs;
}

void check_limits(const Asked& asked, Report& report) {
  LimitNeeds needs = needed_limits(asked.config);
  if (asked.machine.locks_memory) needs.locked_bytes = 0;
  for (const std::string& problem : low_limits("the switch", needs, asked.machine.limits))
    report.problem(problem);
}

}  // namespace ina::switchd
