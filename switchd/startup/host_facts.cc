#include "switchd/startup/host_facts.h"

#include <linux/capability.h>
#include <unistd.h>

#include "common/cpu_list.h"

namespace ina::switchd {

namespace {

constexpr const char* kCpus = "sys/devices/system/cpu";
constexpr const char* kPci = "sys/bus/pci/devices";

std::vector<uint32_t> cpus_in(const MachineFiles& files, const std::string& file) {
  return parse_cpus(files.line(file)).value_or(std::vector<uint32_t>{});
}

void read_cpus(const MachineFiles& files, HostFacts& facts) {
  facts.isolated = cpus_in(files, std::string(kCpus) + "/isolated");
  facts.tickless = cpus_in(files, std::string(kCpus) + "/nohz_full");
  for (const std::string& name : files.names(kCpus)) {
    const auto number = name.starts_with("cpu") ? parse_cpus(name.substr(3)) : std::nullopt;
    if (!number || number->size() != 1) continue;  // cpufreq, cpuidle
    const std::string folder = std::string(kCpus) + "/" + name;
    const std::string governor = files.line(folder + "/cpufreq/scaling_governor");
    if (!governor.empty()) facts.governors[number->front()] = governor;
    facts.siblings[number->front()] = cpus_in(files, folder + "/topology/thread_siblings_list");
  }
}

void read_devices(const MachineFiles& files, HostFacts& facts) {
  facts.iommu = !files.names("sys/kernel/iommu_groups").empty();
  facts.unsafe_vfio =
      files.line("sys/module/vfio/parameters/enable_unsafe_noiommu_mode").starts_with('Y');
  for (const std::string& address : files.names(kPci)) {
    const std::string folder = std::string(kPci) + "/" + address;
    if (!files.line(folder + "/class").starts_with("0x02")) continue;  // network controllers
    Nic nic{address, files.link(folder + "/driver"), files.link(folder + "/iommu_group"), false};
    const std::string group =
        "dev/vfio/" + (facts.iommu ? nic.iommu_group : "noiommu-" + nic.iommu_group);
    nic.usable = ::access(files.path(group).c_str(), R_OK | W_OK) == 0;
    facts.nics.push_back(std::move(nic));
  }
}

/// Reads /proc/self/limits: "Max open files            1024                 1048576 files".
uint64_t hard_limit(const MachineFiles& files, const std::string& name) {
  const std::string text = files.after("proc/self/limits", name);
  const size_t hard = text.find_first_not_of(' ', text.find(' '));
  if (hard == std::string::npos || text.compare(hard, 9, "unlimited") == 0) return UINT64_MAX;
  return std::strtoull(text.c_str() + hard, nullptr, 10);
}

uint64_t soft_limit(const MachineFiles& files, const std::string& name) {
  const std::string text = files.after("proc/self/limits", name);
  if (text.empty() || text.starts_with("unlimited")) return UINT64_MAX;
  return std::strtoull(text.c_str(), nullptr, 10);
}

}  // namespace

HostFacts HostFacts::of(const MachineFiles& files) {
  HostFacts facts;
  facts.hugepages = hugepage_pools(files);
  read_cpus(files, facts);
  read_devices(files, facts);
  facts.clock_source =
      files.line("sys/devices/system/clocksource/clocksource0/current_clocksource");
  facts.may_lock_memory = (capabilities(files) >> CAP_IPC_LOCK & 1) != 0;
  facts.locked_bytes = soft_limit(files, "Max locked memory");
  facts.open_files = hard_limit(files, "Max open files");
  facts.mappings = files.number("proc/sys/vm/max_map_count").value_or(UINT64_MAX);
  return facts;
}

}  // namespace ina::switchd
