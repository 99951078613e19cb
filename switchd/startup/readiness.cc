#include "switchd/startup/readiness.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "common/cpu_list.h"
#include "switchd/memory/handles.h"

namespace ina::switchd {

namespace {

using config::Config;
using config::PortConfig;

constexpr uint64_t kBytesPerMiB = uint64_t{1} << 20;
constexpr uint64_t kNoLimit = UINT64_MAX;

/// The input of a check.
struct Subject {
  const Config& config;
  const Machine& machine;
  const HostFacts& facts;

  /// CPUs that packet loops may run on.
  const std::vector<uint32_t>& loop_cpus() const {
    return config.eal.cpus.empty() ? machine.cpus : config.eal.cpus;
  }
  /// Ports whose devices are on the PCI bus.
  std::vector<const PortConfig*> pci_ports() const {
    std::vector<const PortConfig*> found;
    for (const PortConfig& port : config.ports)
      if (port.type == config::PortType::kEthdev && !port.device.starts_with("net_"))
        found.push_back(&port);
    return found;
  }
  std::string driver_of(const PortConfig& port) const {
    return machine.pci_driver_of(port.device).value_or("");
  }
  /// Ports by vfio: these need an IOMMU, and locked memory.
  std::vector<const PortConfig*> vfio_ports() const {
    auto found = pci_ports();
    std::erase_if(found, [this](const PortConfig* port) { return driver_of(*port) != "vfio-pci"; });
    return found;
  }
};

uint64_t whole_mib(uint64_t bytes) {
  return bytes / kBytesPerMiB + (bytes % kBytesPerMiB != 0);
}

std::string limit_text(uint64_t limit, std::string_view unit = "") {
  return limit == kNoLimit ? "no limit" : fmt::format("{}{}", limit, unit);
}

/// CPUs of `wanted` that are not in `have`.
std::vector<uint32_t> without(const std::vector<uint32_t>& wanted,
                              const std::vector<uint32_t>& have) {
  std::vector<uint32_t> rest;
  std::ranges::set_difference(wanted, have, std::back_inserter(rest));
  return rest;
}

// ---- the checks

void check_start(const Preflight& start, SelfTestRow& row) {
  for (const Finding& finding : start.findings)
    finding.fatal ? row.missing(finding.text) : row.improve(finding.text);
  const auto obstacles = std::ranges::count(start.findings, true, &Finding::fatal);
  if (start.findings.empty())
    row.found = "nothing is in the way";
  else
    row.found = fmt::format("{} obstacles, {} warnings", obstacles,
                            static_cast<ptrdiff_t>(start.findings.size()) - obstacles);
}

void check_hugepages(const Subject& subject, SelfTestRow& row) {
  uint64_t free = 0;
  uint64_t total = 0;
  for (const HugepagePool& pool : subject.facts.hugepages) {
    free += pool.free * pool.page_bytes;
    total += pool.total * pool.page_bytes;
  }
  const Config& config = subject.config;
  const uint64_t need =
      (config.needs_dpdk() ? config.eal.memory_bytes : 0) + row_memory_bytes(config);
  row.found =
      fmt::format("{} of {} MiB are free, {} MiB are of use ({}slots)", whole_mib(free),
                  whole_mib(total), whole_mib(need), config.needs_dpdk() ? "eal.memory, " : "");
  if (config.eal.huge == HugePages::kNo) {
    row.found = "not used (eal.huge: no)";
    return;
  }
  if (free >= need) return;
  constexpr uint64_t kPageBytes = 2 * kBytesPerMiB;
  const uint64_t pages = (total - free + need + kPageBytes - 1) / kPageBytes;
  const std::string change = fmt::format(
      "Reserve hugepages: 'sysctl vm.nr_hugepages={}' and the same in /etc/sysctl.d, best at boot",
      pages);
  config.eal.huge == HugePages::kYes&& free < wanted_hugepage_bytes(config) ? row.missing(change)
                                                                            : row.improve(change);
}

/// CPUs for the loops, e.g. "2-3": isolated ones, or the last, because interrupts prefer the first.
std::string proposed_cpus(const Subject& subject) {
  const uint32_t loops = subject.config.switchd.lcores;
  const bool enough = subject.machine.isolated.size() >= loops;
  const std::vector<uint32_t>& from = enough ? subject.machine.isolated : subject.machine.cpus;
  return format_cpus({from.end() - static_cast<ptrdiff_t>(loops), from.end()});
}

void check_pinning(const Subject& subject, SelfTestRow& row) {
  const Config& config = subject.config;
  const uint32_t loops = config.switchd.lcores;
  row.found = fmt::format(
      "CPUs {}, isolated: {}; {} packet loop{} on {}", format_cpus(subject.machine.cpus),
      subject.facts.isolated.empty() ? "none" : format_cpus(subject.facts.isolated), loops,
      loops == 1 ? "" : "s", config.eal.cpus.empty() ? "any" : format_cpus(config.eal.cpus));
  // The conductor and all other processes need one, too.
  if (subject.machine.isolated.size() < loops && subject.machine.cpus.size() <= loops)
    return row.improve(fmt::format(
        "switch.lcores: {} leaves no CPU for anything else: give the machine more CPUs, lower "
        "switch.lcores, or keep switch.idle: auto",
        loops));
  const std::string cpus =
      config.eal.cpus.empty() ? proposed_cpus(subject) : format_cpus(config.eal.cpus);
  if (config.eal.cpus.empty())
    row.improve(fmt::format("Name CPUs that nothing else uses: eal.cpus: \"{}\"", cpus));
  const std::vector<uint32_t> wanted = parse_cpus(cpus).value_or(std::vector<uint32_t>{});
  const bool ticks = !without(wanted, subject.facts.tickless).empty();
  if (!without(wanted, subject.facts.isolated).empty() || ticks)
    row.improve(fmt::format(
        "Keep other programs away from them: isolcpus={0} nohz_full={0} rcu_nocbs={0} on the "
        "kernel's command line",
        cpus));
}

void check_cores(const Subject& subject, SelfTestRow& row) {
  check_pinning(subject, row);
  if (subject.config.eal.cpus.empty()) return;
  for (const uint32_t cpu : subject.config.eal.cpus) {
    const auto found = subject.facts.siblings.find(cpu);
    if (found == subject.facts.siblings.end()) continue;
    std::vector<uint32_t> shared;
    std::ranges::set_intersection(found->second, subject.config.eal.cpus,
                                  std::back_inserter(shared));
    if (shared.size() > 1 && shared.front() == cpu)
      row.improve(
          fmt::format("CPUs {} are one core: name one of them in eal.cpus", format_cpus(shared)));
  }
}

void check_governor(const Subject& subject, SelfTestRow& row) {
  const std::map<uint32_t, std::string>& governors = subject.facts.governors;
  if (governors.empty()) {
    row.found = "frequencies are not the kernel's to choose";
    return;
  }
  std::vector<uint32_t> slow;
  std::string other;
  for (const uint32_t cpu : subject.loop_cpus()) {
    const auto found = governors.find(cpu);
    if (found == governors.end() || found->second == "performance") continue;
    slow.push_back(cpu);
    other = found->second;
  }
  row.found = slow.empty() ? "performance" : fmt::format("{} on CPUs {}", other, format_cpus(slow));
  if (!slow.empty())
    row.improve(fmt::format("'cpupower -c {} frequency-set -g performance'", format_cpus(slow)));
}

void check_clock(const Subject& subject, SelfTestRow& row) {
  // Clock sources that a program reads without a system call.
  constexpr std::array kFast = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page",
                                "arch_sys_counter"};
  const std::string& source = subject.facts.clock_source;
  row.found = source.empty() ? "not known" : source;
  if (source.empty() || std::ranges::find(kFast, source) != kFast.end()) return;
  row.improve(
      "Each reading of this clock is a system call: boot with clocksource=tsc, or see in dmesg why "
      "the kernel does not trust the TSC");
}

void check_nics(const Subject& subject, SelfTestRow& row) {
  const auto ports = subject.pci_ports();
  std::vector<std::string> seen;
  for (const Nic& nic : subject.facts.nics)
    seen.push_back(nic.address + " " + (nic.driver.empty() ? "no driver" : nic.driver));
  row.found = seen.empty() ? "no NIC on the PCI bus" : fmt::format("{}", fmt::join(seen, ", "));
  if (ports.empty()) row.found += "; no port needs one";
  for (const PortConfig* port : ports) {
    const auto driver = subject.machine.pci_driver_of(port->device);
    const std::string address = full_pci_address(port->device);
    if (!driver)
      row.missing(
          fmt::format("port {}: there is no {}; 'dpdk-devbind.py --status-dev net' lists "
                      "what there is",
                      port->name, address));
    else if (!is_dpdk_driver(*driver))
      row.missing(
          fmt::format("port {}: 'modprobe vfio-pci && dpdk-devbind.py --bind=vfio-pci {}'; the "
                      "kernel's interface must be down",
                      port->name, address));
  }
}

void check_iommu(const Subject& subject, SelfTestRow& row) {
  const HostFacts& facts = subject.facts;
  row.found = facts.iommu ? "on" : facts.unsafe_vfio ? "off; vfio is used without" : "off";
  // mlx's driver stays the kernel's, and uio does without.
  const auto ports = subject.vfio_ports();
  if (ports.empty()) {
    row.found += "; no port needs it";
    return;
  }
  if (!facts.iommu && facts.unsafe_vfio)
    row.improve(
        "The NICs may read and write all memory: turn the IOMMU on in the firmware, and "
        "intel_iommu=on iommu=pt on the kernel's command line (AMD: iommu=pt)");
  else if (!facts.iommu)
    return row.missing(
        "Turn the IOMMU (VT-d, AMD-Vi) on in the firmware, and intel_iommu=on iommu=pt on the "
        "kernel's command line (AMD: iommu=pt)");
  for (const PortConfig* port : ports) {
    const auto nic = std::ranges::find(facts.nics, full_pci_address(port->device), &Nic::address);
    if (nic != facts.nics.end() && !nic->usable)
      row.missing(
          fmt::format("port {}: this user may not open /dev/vfio/{}: a udev rule gives it "
                      "to the user of the switch",
                      port->name, nic->iommu_group));
  }
}

void check_locked_memory(const Subject& subject, SelfTestRow& row) {
  const HostFacts& facts = subject.facts;
  const bool xdp = std::ranges::any_of(subject.config.ports, [](const PortConfig& port) {
    return port.device.starts_with("net_af_xdp");
  });
  const uint64_t need = xdp || !subject.vfio_ports().empty() ? subject.config.eal.memory_bytes : 0;
  row.found = facts.locked_bytes == kNoLimit
                  ? "no limit"
                  : fmt::format("{} MiB{}", facts.locked_bytes / kBytesPerMiB,
                                facts.may_lock_memory ? ", which do not count (CAP_IPC_LOCK)" : "");
  if (need == 0) row.found += "; no port needs any";
  if (need == 0 || facts.may_lock_memory || facts.locked_bytes >= need) return;
  row.missing(
      fmt::format("Devices take {} MiB (eal.memory): 'ulimit -l unlimited', or "
                  "LimitMEMLOCK=infinity in the unit",
                  whole_mib(need)));
}

void check_open_files(const Subject& subject, SelfTestRow& row) {
  const uint32_t wanted = subject.config.control.max_connections;
  const uint64_t limit = subject.facts.open_files;
  const uint32_t most = Handles::connections_of(wanted, limit);
  row.found = fmt::format("{}, for {} of {} connections", limit_text(limit), most, wanted);
  if (most < wanted)
    row.improve(
        fmt::format("Raise the limit of open files to {} or more: 'ulimit -Hn', or "
                    "LimitNOFILE= in the unit; or lower control.max_connections",
                    uint64_t{wanted} * 2 + 256));
}

void check_mappings(const Subject& subject, SelfTestRow& row) {
  // A worker's region and the switch's own, and pieces of memory that it registers.
  constexpr uint64_t kForAWorker = 16;
  const uint32_t workers = subject.config.control.max_connections;
  const uint64_t limit = subject.facts.mappings;
  const uint64_t left = Handles::of_limits(limit, kNoLimit, 0).mappings;
  row.found = limit == kNoLimit
                  ? "not known"
                  : fmt::format("{}, {} for each of {} workers", limit, left / workers, workers);
  if (left / workers < kForAWorker)
    row.improve(
        fmt::format("Allow more mappings: 'sysctl vm.max_map_count={}' and the same in "
                    "/etc/sysctl.d",
                    uint64_t{workers} * kForAWorker * 4 / 3 + 8192));
}

struct HostCheck {
  const char* name;
  void (*run)(const Subject&, SelfTestRow&);
};

constexpr HostCheck kHostChecks[] = {
    {"hugepages", check_hugepages},
    {"cores", check_cores},
    {"governor", check_governor},
    {"clock", check_clock},
    {"NICs", check_nics},
    {"IOMMU", check_iommu},
    {"locked memory", check_locked_memory},
    {"open files", check_open_files},
    {"mappings", check_mappings},
};

}  // namespace

std::string_view readiness_name(Readiness readiness) {
  constexpr std::array<std::string_view, 3> kNames = {"ready", "improve", "missing"};
  return kNames[static_cast<size_t>(readiness)];
}

Readiness SelfTest::verdict() const {
  Readiness worst = Readiness::kReady;
  for (const SelfTestRow& row : rows) worst = std::max(worst, row.state);
  return worst;
}

SelfTest self_test(const Config& config, const Machine& machine, const HostFacts& facts) {
  const Preflight start = preflight(config, machine);
  SelfTest result;
  result.not_checked = start.not_checked;
  check_start(start, result.rows.emplace_back(SelfTestRow{"start", {}, {}, {}}));
  for (const HostCheck& check : kHostChecks)
    check.run({config, machine, facts},
              result.rows.emplace_back(SelfTestRow{check.name, {}, {}, {}}));
  return result;
}

}  // namespace ina::switchd
