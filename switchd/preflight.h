// Obstacles to a start of a switch with this configuration on this machine. They are found without
// opening a device, counting a start or leaving anything behind. `ina-switchd --check` shows all of
// them, and a start that they would spoil ends with the same sentences.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "switchd/config/config.h"

namespace ina::switchd {

/// What the checks ask of the machine, so that tests can be on another one.
struct Machine {
  static Machine here();

  std::vector<uint32_t> cpus;  ///< that this process may run on
  uint64_t free_bytes = 0;     ///< memory that can be had, swap included
  uint64_t free_hugepage_bytes = 0;
  bool raw_sockets = false;    ///< CAP_NET_RAW
  bool network_admin = false;  ///< CAP_NET_ADMIN
  bool bpf = false;            ///< CAP_BPF, or CAP_SYS_ADMIN
  /// MTU of an interface of the kernel; nothing if there is none of that name.
  std::function<std::optional<uint32_t>(const std::string&)> mtu_of;
  std::function<uint32_t(const std::string&)> receive_queues_of;
  /// Kernel driver of a PCI device; empty: none; nothing: there is no such device.
  std::function<std::optional<std::string>(const std::string&)> pci_driver_of;
};

struct Finding {
  std::string check;  ///< what was looked at: mostly a key of the configuration
  std::string text;   ///< a whole sentence
  bool fatal = true;  ///< the switch does not start; else it starts, and something will not work
};

struct Preflight {
  std::vector<Finding> findings;
  std::vector<std::string> not_checked;
  bool may_start() const;
};

Preflight preflight(const config::Config& config, const Machine& machine);

/// DPDK's memory (eal.memory) that the ports of a configuration need, in bytes.
struct EalMemory {
  uint64_t least = 0;   ///< with less it does not start
  uint64_t enough = 0;  ///< with so much it does
};
EalMemory needed_eal_memory(const config::Config& config, bool hugepages);

}  // namespace ina::switchd
