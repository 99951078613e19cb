// Facts about a machine for the self-test, beyond the checks of a start
// (switchd/startup/preflight.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "switchd/startup/machine_files.h"

namespace ina::switchd {

/// A network device on the PCI bus.
struct Nic {
  std::string address;      ///< e.g. "0000:01:00.0"
  std::string driver;       ///< of the kernel; empty: none
  std::string iommu_group;  ///< empty: none
  bool usable = false;      ///< this user may open the group's file below /dev/vfio
};

struct HostFacts {
  static HostFacts of(const MachineFiles& files);

  std::vector<HugepagePool> hugepages;
  std::vector<uint32_t> isolated;                      ///< CPUs that the scheduler leaves alone
  std::vector<uint32_t> tickless;                      ///< CPUs without the timer's tick
  std::map<uint32_t, std::string> governors;           ///< by CPU; none where frequencies are fixed
  std::map<uint32_t, std::vector<uint32_t>> siblings;  ///< by CPU: CPUs of its core, sorted
  std::string clock_source;                            ///< of the kernel; empty: it is not said
  std::vector<Nic> nics;
  bool iommu = false;                  ///< it is on: devices are in groups
  bool unsafe_vfio = false;            ///< vfio may be used without an IOMMU
  bool may_lock_memory = false;        ///< CAP_IPC_LOCK: no limit of locked memory counts
  uint64_t locked_bytes = UINT64_MAX;  ///< RLIMIT_MEMLOCK; UINT64_MAX: no limit
  uint64_t open_files = UINT64_MAX;    ///< hard limit, to which the switch raises its own
  uint64_t mappings = UINT64_MAX;      ///< vm.max_map_count
};

}  // namespace ina::switchd
