#include "switchd/startup/preflight.h"

#include <fmt/format.h>

#include <algorithm>

#include "aggregator/aggregator.h"
#include "common/logging/journal.h"
#include "control/tls_server.h"
#include "control/tokens.h"
#include "switchd/admin_sockets.h"
#include "switchd/credentials.h"
#include "switchd/jobs/state_file.h"
#include "switchd/lanes/lane_config.h"
#include "switchd/startup/preflight_checks.h"

namespace ina::switchd {

namespace {

std::string mib(uint64_t bytes) {
  return fmt::format("{} MiB", (bytes + kMiB - 1) / kMiB);
}

// ---- sockets and files

void check_control_socket(const Asked& asked, Report& report) {
  report.problem(socket_problem(asked.config.control.socket, "control.socket"));
}

void check_state(const Asked& asked, Report& report) {
  const auto usable = StateFile::check(asked.config.control.state_path());
  if (!usable) report.problem(usable.error().text);
}

void check_control_listen(const Asked& asked, Report& report) {
  const config::ControlConfig& control = asked.config.control;
  if (control.listen.empty()) return;
  if (const auto checked = Credentials(control).check_listen(); !checked)
    report.problem(checked.error().text);
  report.problem(listen_problem(control.listen, "control.listen"));
}

void check_tokens(const Asked& asked, Report& report) {
  const config::ControlConfig& control = asked.config.control;
  if (control.listen.empty() || control.token_file.empty()) return;
  if (const auto tokens = control::TokenTable::load(control.token_file); !tokens)
    report.problem(tokens.error().text);
}

void check_tls(const Asked& asked, Report& report) {
  const config::ControlConfig& control = asked.config.control;
  if (control.listen.empty() || control.tls.certificate.empty()) return;
  const auto loaded = control::load_tls_acceptor(control.tls, control.require_client_certificate);
  if (!loaded) return report.problem(loaded.error().text);
  report.not_checked(
      "whether the names in control.tls_certificate are those in the URLs of the workers");
}

void check_admin_socket(const Asked& asked, Report& report) {
  if (!asked.config.admin.enabled) return;
  const std::string path = asked.config.admin_socket_path();
  if (path == asked.config.control.socket)
    return report.problem("admin.socket and control.socket are the same path, " + path);
  report.problem(socket_problem(path, "admin.socket"));
}

void check_admin_group(const Asked& asked, Report& report) {
  const config::AdminConfig& admin = asked.config.admin;
  if (!admin.enabled || admin.group.empty()) return;
  if (const auto group = group_of(admin.group); !group) report.problem(group.error().text);
}

void check_admin_listen(const Asked& asked, Report& report) {
  const config::AdminConfig& admin = asked.config.admin;
  if (!admin.enabled || admin.listen.empty()) return;
  report.problem(listen_problem(admin.listen, "admin.listen"));
  const auto pem = control::read_tls_files(admin.tls, control::kAdminTlsNames);
  if (!pem) report.problem(pem.error().text);
}

void check_metrics(const Asked& asked, Report& report) {
  const std::string& listen = asked.config.metrics.listen;
  if (listen.empty()) return;
  report.problem(listen_problem(listen, "metrics.listen"));
  if (!listen.starts_with("127."))
    report.warning("metrics.listen: " + listen +
                   " is no loopback address: whoever reaches it reads the names of all jobs");
}

void check_log(const Asked& asked, Report& report) {
  const config::LogConfig& log = asked.config.log;
  report.problem(log_problem(log.file));
  if (log.format != LogFormat::kJournal) return;
  if (const auto journal = logging::find_journal(); !journal) report.problem(journal.error().text);
}

// ---- processors and memory

void check_cpus(const Asked& asked, Report& report) {
  const std::vector<uint32_t>& here = asked.machine.cpus;
  for (const uint32_t cpu : asked.config.eal.cpus)
    if (!asked.machine.has_cpu(cpu))
      report.problem(
          fmt::format("eal.cpus: CPU {} does not exist or is not allowed to this process ({})", cpu,
                      fmt::join(here, ",")));
  const size_t wanted = asked.config.switchd.lcores;
  const std::vector<uint32_t>& named = asked.config.eal.cpus;
  if (!named.empty() && named.size() < wanted)
    report.warning(
        fmt::format("eal.cpus names {} CPUs for switch.lcores: {}, so the packet loops "
                    "share them and are not pinned",
                    named.size(), wanted));
}

void check_memory(const Asked& asked, Report& report) {
  const config::Config& config = asked.config;
  const uint64_t eal = config.needs_dpdk() ? config.eal.memory_bytes : 0;
  const uint64_t huge = asked.machine.free_hugepage_bytes;
  const uint64_t wanted = wanted_hugepage_bytes(config);
  if (config.eal.huge == HugePages::kYes && huge < wanted)
    report.problem(fmt::format(
        "eal.huge: yes asks for {} of hugepages ({}), but {} are free: raise "
        "/proc/sys/vm/nr_hugepages, or set eal.huge: auto",
        mib(wanted), config.needs_dpdk() ? "eal.memory" : "aggregator.slots x slot_bytes",
        mib(huge)));
  const bool hugepages = takes_hugepages(config, asked.machine);
  const uint64_t rows = row_memory_bytes(config);
  const uint64_t need =
      rows + (hugepages ? 0 : std::min(needed_eal_memory(config, false).least, eal));
  // Rows take hugepages that are left.
  if (need > asked.machine.free_bytes + (hugepages ? huge - eal : 0))
    report.problem(fmt::format(
        "the switch needs {} of memory at once, {} of them for value rows (aggregator.slots x "
        "aggregator.slot_bytes), and {} are free: lower aggregator.slots",
        mib(need), mib(rows), mib(asked.machine.free_bytes)));
}

void check_eal_memory(const Asked& asked, Report& report) {
  const EalMemory need =
      needed_eal_memory(asked.config, takes_hugepages(asked.config, asked.machine));
  const uint64_t given = asked.config.eal.memory_bytes;
  const auto text = [&](const char* how) {
    return fmt::format(
        "eal.memory: {} {} for the packet buffers of the Ethernet ports: set eal.memory: {} MiB, "
        "or "
        "lower rx_descriptors, tx_descriptors or mtu of the ports",
        mib(given), how, (need.enough + kMiB - 1) / kMiB);
  };
  if (given < need.least)
    report.problem(text("are not enough"));
  else if (given < need.enough)
    report.warning(text("may not be enough"));
}

void check_ports(const Asked& asked, Report& report) {
  for (const config::PortConfig& port : asked.config.ports)
    if (port.type == config::PortType::kEthdev) check_port(asked, port, report);
  if (!asked.config.eal.extra_args.empty()) report.not_checked("whether DPDK takes eal.extra_args");
}

struct Check {
  const char* name;
  void (*run)(const Asked&, Report&);
};

constexpr Check kChecks[] = {
    {"control.socket", check_control_socket},
    {"control.state", check_state},
    {"control.listen", check_control_listen},
    {"control.token_file", check_tokens},
    {"control.tls_certificate", check_tls},
    {"admin.socket", check_admin_socket},
    {"places", check_same_places},
    {"admin.group", check_admin_group},
    {"admin.listen", check_admin_listen},
    {"metrics.listen", check_metrics},
    {"log.file", check_log},
    {"eal.cpus", check_cpus},
    {"memory", check_memory},
    {"limits", check_limits},
    {"eal.memory", check_eal_memory},
    {"ports", check_ports},
};

}  // namespace

uint64_t row_memory_bytes(const config::Config& config) {
  const aggregator::Shape shape = lane_shape(config.switchd, config.aggregator, 0);
  return aggregator::Aggregator::row_memory_bytes(shape) * shape.lanes;
}

uint64_t wanted_hugepage_bytes(const config::Config& config) {
  if (config.needs_dpdk()) return config.eal.memory_bytes;
  const uint32_t lanes = config.switchd.lcores;
  return whole_huge_pages(row_memory_bytes(config) / lanes) * lanes;
}

bool takes_hugepages(const config::Config& config, const Machine& machine) {
  return config.eal.huge != HugePages::kNo &&
         machine.free_hugepage_bytes >= wanted_hugepage_bytes(config);
}

bool Preflight::may_start() const {
  return std::ranges::none_of(findings, &Finding::fatal);
}

Preflight preflight(const config::Config& config, const Machine& machine,
                    const std::string& config_file) {
  Preflight result;
  for (const Check& check : kChecks) {
    Report report(check.name, result);
    check.run({config, machine, config_file}, report);
  }
  return result;
}

}  // namespace ina::switchd
