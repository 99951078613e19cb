// Obstacles to a start of a switch with this configuration on this machine. They are found without
// opening a device, counting a start or leaving anything behind. `ina-switchd --check` shows all of
// them, and a start that they would spoil ends with the same sentences.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/process_limits.h"
#include "switchd/config/config.h"
#include "switchd/startup/machine_files.h"

namespace ina::switchd {

/// The questions of the checks to the machine, so that tests can use another one.
struct Machine {
  /// Processors, interfaces and addresses are this machine's; the rest comes from `files`.
  static Machine here(const MachineFiles& files = MachineFiles());
  /// True if a packet loop may be bound to this CPU.
  bool has_cpu(uint32_t cpu) const;

  std::vector<uint32_t> cpus;      ///< on which this process runs
  std::vector<uint32_t> isolated;  ///< that the kernel leaves to threads that are bound to them
  uint64_t free_bytes = 0;         ///< memory that can be had, swap included
  uint64_t free_hugepage_bytes = 0;
  bool raw_sockets = false;    ///< CAP_NET_RAW
  bool network_admin = false;  ///< CAP_NET_ADMIN
  bool bpf = false;            ///< CAP_BPF, or CAP_SYS_ADMIN
  bool locks_memory = true;    ///< CAP_IPC_LOCK: RLIMIT_MEMLOCK does not count
  LimitSource limits;
  /// MTU of an interface of the kernel; nothing if there is none of that name.
  std::function<std::optional<uint32_t>(const std::string&)> mtu_of;
  std::function<uint32_t(const std::string&)> receive_queues_of;
  /// Kernel driver of a PCI device; empty: none; nothing: there is no such device.
  std::function<std::optional<std::string>(const std::string&)> pci_driver_of;
};

struct Finding {
  std::string check;  ///< object of the check: mostly a key of the configuration
  std::string text;   ///< a whole sentence
  bool fatal = true;  ///< the switch does not start; else it starts, and something will not work
};

struct Preflight {
  std::vector<Finding> findings;
  std::vector<std::string> not_checked;
  bool may_start() const;
};

/// `config_file`: the path that the configuration was read from; empty: there is none.
Preflight preflight(const config::Config& config, const Machine& machine,
                    const std::string& config_file = "");

/// DPDK's memory (eal.memory) that the ports of a configuration need, in bytes.
struct EalMemory {
  uint64_t least = 0;   ///< with less it does not start
  uint64_t enough = 0;  ///< with so much it does
};
EalMemory needed_eal_memory(const config::Config& config, bool hugepages);

/// Free hugepages from which on they are used, in bytes: eal.memory, or, if DPDK does not run, the
/// size of the value rows.
uint64_t wanted_hugepage_bytes(const config::Config& config);
bool takes_hugepages(const config::Config& config, const Machine& machine);

/// What the switch needs of the process's limits, without jobs.
LimitNeeds needed_limits(const config::Config& config);

/// Memory of the aggregator's value rows, in bytes, of all lanes.
uint64_t row_memory_bytes(const config::Config& config);

/// True if DPDK can use a PCI device that the kernel has given this driver.
bool is_dpdk_driver(std::string_view driver);

/// "01:00.0" -> "0000:01:00.0"
std::string full_pci_address(const std::string& address);

}  // namespace ina::switchd
