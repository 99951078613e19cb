// ina-switchd: reads the configuration, starts DPDK if anything needs it, opens the ports, runs a
// lane on each datapath lcore, or thread, and the conductor on the main one, until SIGTERM or
// SIGINT.
#include <fmt/format.h>
#include <malloc.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#ifdef INA_HAVE_METRICS
#include "control/metrics/server.h"
#endif
#include "common/command_line.h"
#include "common/logging/file_sink.h"
#include "common/logging/journal.h"
#include "common/logging/record.h"
#include "common/process_limits.h"
#include "common/sealed_memory.h"
#include "common/standard_error.h"
#include "control/doorman.h"
#include "io/ethdev/device_arguments.h"
#include "io/ethdev/eal.h"
#include "io/ethdev/ethdev_port.h"
#include "switchd/conductor.h"
#include "switchd/config/config.h"
#include "switchd/configuration.h"
#include "switchd/lanes/lane.h"
#include "switchd/lanes/loop_threads.h"
#include "switchd/reports/counter_lists.h"
#include "switchd/reports/telemetry.h"
#include "switchd/startup/handover.h"
#include "switchd/startup/preflight.h"
#include "switchd/startup/readiness.h"
#include "switchd/startup/service_manager.h"

namespace ina::switchd {
namespace {

constexpr int kExitConfig = command_line::kExitUsage;  // also what `--check` returns for a bad file
constexpr int kExitStart = 1;
constexpr int kExitImprove = 3;  // of `--self-test`: the switch would serve, but not at its best

using DaemonLane = Lane<io::EthdevPort>;

Conductor* signalled = nullptr;
/// Other threads may get a signal that the main one holds back while the switch starts again.
volatile sig_atomic_t stop_wanted = 0;
volatile sig_atomic_t reload_wanted = 0;
void on_signal(int signal) {
  if (signal != SIGHUP) stop_wanted = 1;
  if (!signalled) {
    if (signal == SIGHUP) reload_wanted = 1;
    return;
  }
  if (signal == SIGHUP)
    signalled->reload();
  else
    signalled->stop();
}

void set_log_level(config::LogLevel level) {
  spdlog::set_level(spdlog::level::from_str(std::string(name(level))));
}

/// The file that the log goes to; nullptr: standard error.
Result<std::shared_ptr<logging::FileSink>> set_up_log(const config::LogConfig& log) {
  std::shared_ptr<logging::FileSink> file;
  std::shared_ptr<spdlog::logger> logger;
  if (log.format == LogFormat::kJournal)
    if (auto journal = logging::find_journal(); !journal) return tl::unexpected(journal.error());
  if (log.file.empty()) {
    logger = spdlog::stderr_color_mt("switchd");
  } else {
    auto opened = logging::FileSink::open(log.file, "log.file");
    if (!opened) return tl::unexpected(opened.error());
    file = std::move(*opened);
    // Another switch may write to this file. This one does when it serves.
    file->hold();
    logger = std::make_shared<spdlog::logger>("switchd", file);
  }
  logger->set_pattern(logging::pattern_of(log.format));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  set_log_level(log.level);
  logging::set_format(log.format);
  return file;
}

/// Memory of value rows: from huge pages where the kernel gives them, prefaulted, 64-byte aligned.
Result<Mapping> row_memory(size_t bytes, bool hugepages) {
  const size_t rounded = whole_huge_pages(bytes);
  const auto map = [rounded](int flags) {
    return ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1,
                  0);
  };
  void* rows = hugepages ? map(MAP_HUGETLB | MAP_POPULATE) : MAP_FAILED;
  if (rows != MAP_FAILED) return Mapping(static_cast<std::byte*>(rows), rounded);
  rows = map(0);
  if (rows != MAP_FAILED) {
    Mapping mapping(static_cast<std::byte*>(rows), rounded);
    // Before there are pages: the kernel changes its mind about those seldom and late.
    ::madvise(rows, rounded, MADV_HUGEPAGE);
    if (populate(mapping.data(), rounded, true)) return mapping;
  }
  return fail(INA_ERR_NO_MEMORY,
              fmt::format("cannot allocate {} bytes of value rows (aggregator.slots x "
                          "aggregator.slot_bytes)",
                          bytes));
}

std::string cpu_list(const std::vector<uint32_t>& cpus) {
  return fmt::format("{}", fmt::join(cpus, ","));
}

Result<io::Eal> start_eal(const config::Config& config) {
  io::EalConfig eal;
  eal.huge = config.eal.huge;
  eal.memory_bytes = config.eal.memory_bytes;
  eal.file_prefix = config.eal.file_prefix;
  eal.cpus = cpu_list(config.eal.cpus);
  eal.lcores = config.switchd.lcores;
  eal.extra_args = config.eal.extra_args;
  eal.telemetry = config.eal.telemetry;
  for (const config::PortConfig& port : config.ports)
    if (port.type == config::PortType::kEthdev && !port.device.starts_with("net_"))
      eal.pci.push_back(port.device);
  eal.log = [](io::EalLogLevel level, std::string_view line) {
    if (level == io::EalLogLevel::kError)
      logging::error("dpdk")("text", line);
    else
      logging::warn("dpdk")("text", line);
  };
  return io::Eal::start(eal);
}

bool is_bridged(const config::Config& config) {
  return config.bridge.enabled &&
         std::ranges::count(config.ports, config::PortType::kEthdev, &config::PortConfig::type) > 1;
}

bool may_pass(uint16_t vlan, const config::PortConfig& port) {
  return port.vlans.empty() || std::ranges::find(port.vlans, vlan) != port.vlans.end();
}

/// A device that writes into a file, or nowhere: no loop leads through it.
bool leads_nowhere(const config::PortConfig& port) {
  return port.device.starts_with("net_null") ||
         (port.device.starts_with("net_pcap") && io::device_argument(port.device, "iface").empty());
}

/// Nothing: the switch does not forward.
Result<std::optional<bridge::BridgeConfig>> bridge_config(const config::Config& config) {
  if (!is_bridged(config)) return std::nullopt;
  bridge::BridgeConfig bridge;
  bridge.mac_entries = config.bridge.mac_entries;
  bridge.ageing_ns = config.bridge.ageing_ns;
  bridge.storm_limit_frames_per_s = config.bridge.storm_limit_frames_per_s;
  bridge.loop_protection = config.bridge.loop_protection;
  for (const config::PortConfig& port : config.ports) {
    if (port.type != config::PortType::kEthdev) continue;
    if (leads_nowhere(port)) bridge.unprobed |= uint64_t{1} << bridge.vlans.size();
    bridge.vlans.push_back(port.vlans);
  }
  if (::getrandom(&bridge.hash_seed, sizeof(bridge.hash_seed), 0) != sizeof(bridge.hash_seed) ||
      ::getrandom(&bridge.probe_key, sizeof(bridge.probe_key), 0) != sizeof(bridge.probe_key))
    return fail(INA_ERR_INTERNAL, "no random number from the kernel for the table of addresses");
  return bridge;
}

/// A port's parts, by lane.
using PortLanes = std::vector<std::unique_ptr<io::EthdevPort>>;

/// The way of frames to their lane: "none" (there is one), "rules" (of the device) or "software".
std::string_view steering_of(const io::EthdevPort& port) {
  if (port.config().lanes == 1) return "none";
  return port.steered() ? "rules" : "software";
}

Result<std::vector<PortLanes>> open_ports(const config::Config& config,
                                          const std::optional<bridge::BridgeConfig>& bridge) {
  std::vector<PortLanes> ports;
  std::vector<io::SwitchAddress> addresses;
  uint32_t queued_buffers = 0;
  for (const config::PortConfig& port : config.ports) {
    if (port.type != config::PortType::kEthdev) continue;
    addresses.push_back({port.ip, port.vlan});
    queued_buffers += port.tx_descriptors;
  }
  for (const config::PortConfig& port : config.ports) {
    if (port.type != config::PortType::kEthdev) continue;
    io::EthdevPortConfig ethdev;
    ethdev.name = port.name;
    ethdev.device = port.device;
    ethdev.ip = port.ip;
    ethdev.vlan = port.vlan;
    ethdev.udp_port = port.udp_port;
    ethdev.lanes = static_cast<uint16_t>(config.switchd.lcores);
    ethdev.mtu = port.mtu_bytes;
    ethdev.rx_descriptors = port.rx_descriptors;
    ethdev.tx_descriptors = port.tx_descriptors;
    ethdev.slot_bytes = config.aggregator.slot_bytes;
    ethdev.ecn = config.rules.ecn;
    for (const config::HostConfig& host : port.hosts) ethdev.hosts.push_back({host.mac, host.ip});
    if (bridge) {
      ethdev.bridged = true;
      ethdev.probe_key = bridge->probe_key;
      for (const io::SwitchAddress& address : addresses)
        if (may_pass(address.vlan, port)) ethdev.switch_addresses.push_back(address);
      ethdev.lent_buffers = queued_buffers - port.tx_descriptors;
    }
    auto opened = io::EthdevPort::open(ethdev);
    if (!opened)
      return fail(opened.error().status, "port " + port.name + ": " + opened.error().text);
    logging::info("port open")("name", port.name)("type", "ethdev")("device", port.device)(
        "queues", opened->front()->queues())("steering", steering_of(*opened->front()));
    ports.push_back(std::move(*opened));
  }
  return ports;
}

/// The ports that were opened.
std::vector<FramePortInfo> opened_ports(const config::Config& config,
                                        const std::vector<PortLanes>& ports) {
  std::vector<FramePortInfo> infos = frame_ports_of(config);
  for (size_t i = 0; i < infos.size(); ++i) {
    infos[i].address = ports[i].front()->address();
    infos[i].device = &ports[i].front()->device();
    infos[i].interface = io::device_argument(ports[i].front()->config().device, "iface");
  }
  return infos;
}

#ifdef INA_HAVE_METRICS
/// nullptr: nobody is to scrape.
Result<std::unique_ptr<metrics::Server>> start_metrics(const config::Config& config,
                                                       admin::Queue& queue) {
  const config::MetricsConfig& metrics = config.metrics;
  if (metrics.listen.empty()) return nullptr;
  auto server = metrics::Server::start({.listen = metrics.listen,
                                        .most_jobs = metrics.jobs,
                                        .page = metrics.page,
                                        .hosts = metrics.hosts,
                                        .counters = counter_lists()},
                                       queue);
  if (server) logging::info("metrics served")("listen", metrics.listen);
  return server;
}
#else
Result<std::nullptr_t> start_metrics(const config::Config& config, admin::Queue&) {
  if (!config.metrics.listen.empty())
    return fail(INA_ERR_UNSUPPORTED,
                "metrics.listen: this ina-switchd was built without metrics for Prometheus");
  return nullptr;
}
#endif

/// Finds what would make the start fail, before anything is opened.
Result<void> pass_preflight(const config::Config& config, const Machine& machine,
                            const std::string& config_file) {
  std::string problems;
  for (const Finding& finding : preflight(config, machine, config_file).findings) {
    if (!finding.fatal)
      logging::warn("start")("check", finding.check)("text", finding.text);
    else
      problems += (problems.empty() ? "" : "; ") + finding.text;
  }
  if (problems.empty()) return {};
  return fail(INA_ERR_INVALID, problems);
}

/// The reasons why a switch with another configuration could not start, without those that this
/// switch itself causes.
std::vector<std::string> obstacles_beside(const config::Config& running, const config::Config& next,
                                          const Program& program, const std::string& file) {
  std::vector<std::string> texts;
  if (std::string problem = program.problem(); !problem.empty()) texts.push_back(problem);
  Machine machine = Machine::here();
  machine.free_bytes += row_memory_bytes(running);
  machine.free_hugepage_bytes += wanted_hugepage_bytes(running);
  const std::vector<Finding> own = preflight(running, machine, file).findings;
  for (const Finding& finding : preflight(next, machine, file).findings)
    if (finding.fatal && std::ranges::find(own, finding.text, &Finding::text) == own.end())
      texts.push_back(finding.text);
  return texts;
}

/// The functions that the control plane needs to read the file again.
Configuration::Daemon daemon_of(const std::shared_ptr<Configuration>& configuration,
                                const Program& program) {
  return {.obstacles =
              [running = configuration.get(), &program](const config::Config& next) {
                return obstacles_beside(running->running().config, next, program, running->file());
              },
          .set_log_level = set_log_level,
          .reloading = ServiceManager::reloading,
          .reloaded = ServiceManager::reloaded};
}

/// `--check`: one line a finding, then what was not looked at. The exit status of the program.
int check_only(const config::Config& config, const std::string& file) {
  const std::string name = file.empty() ? "defaults" : file;
  const Preflight result = preflight(config, Machine::here(), file);
  for (const Finding& finding : result.findings)
    tell_stderr(name.c_str(), (finding.fatal ? "" : "warning: ") + finding.text);
  if (result.may_start()) fmt::print("{}: ok\n", name);
  for (const std::string& text : result.not_checked) fmt::print("not checked: {}\n", text);
  return result.may_start() ? 0 : kExitStart;
}

/// `--self-test`: the exit status of the program.
int test_machine(const config::Config& config, bool json) {
  const MachineFiles files;
  const SelfTest result = self_test(config, Machine::here(files), HostFacts::of(files));
  using Json = nlohmann::json;
  fmt::print(
      "{}", json ? self_test_json(result).dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
                 : format_self_test(result));
  switch (result.verdict()) {
    case Readiness::kReady:
      return 0;
    case Readiness::kImprove:
      return kExitImprove;
    case Readiness::kMissing:
      break;
  }
  return kExitStart;
}

/// On DPDK's lcores, which have waited for that. There are no other threads.
Result<LoopThreads> run_on_lcores(const std::vector<std::unique_ptr<DaemonLane>>& lanes) {
  size_t next = 0;
  unsigned lcore = 0;
  RTE_LCORE_FOREACH_WORKER(lcore) {
    if (next == lanes.size()) break;
    rte_eal_remote_launch(
        [](void* lane) {
          static_cast<DaemonLane*>(lane)->run();
          return 0;
        },
        lanes[next++].get(), lcore);
  }
  return LoopThreads();
}

Result<LoopThreads> run_on_threads(const std::vector<std::unique_ptr<DaemonLane>>& lanes,
                                   const std::vector<uint32_t>& cpus) {
  std::vector<std::function<void()>> loops;
  for (const auto& lane : lanes) loops.emplace_back([lane = lane.get()] { lane->run(); });
  return LoopThreads::start(std::move(loops), cpus);
}

/// All lanes, with what they use: a lane goes before its link and its rows.
struct LaneSet {
  std::vector<Mapping> rows;
  std::vector<std::unique_ptr<LaneLink>> links;
  std::vector<std::unique_ptr<DaemonLane>> lanes;

  std::vector<LaneLink*> all_links() const {
    std::vector<LaneLink*> all;
    for (const auto& link : links) all.push_back(link.get());
    return all;
  }
  /// Returns when none handles packets any more.
  void stop() const {
    for (const auto& link : links) {
      Posted<command::Stop> stop;
      link->post(&stop);
      while (!stop.done.load(std::memory_order_acquire)) ::usleep(100);
    }
  }
};

Result<LaneSet> make_lanes(const config::Config& config,
                           const std::optional<bridge::BridgeConfig>& bridge,
                           const std::vector<PortLanes>& ports, bool hugepages) {
  LaneSet set;
  for (uint32_t i = 0; i < config.switchd.lcores; ++i) {
    LaneConfig lane = lane_config(config.switchd, config.aggregator, config.rules.ecn, i);
    if (i == 0) lane.bridge = bridge;
    auto memory = row_memory(aggregator::Aggregator::row_memory_bytes(lane.shape), hugepages);
    if (!memory) return tl::unexpected(memory.error());
    set.rows.push_back(std::move(*memory));
    set.links.push_back(std::make_unique<LaneLink>());
    std::vector<io::EthdevPort*> lane_ports;
    for (const PortLanes& port : ports) lane_ports.push_back(port[i].get());
    set.lanes.push_back(std::make_unique<DaemonLane>(
        lane, std::span(set.rows.back().data(), set.rows.back().size()), *set.links.back(),
        lane_ports));
  }
  return set;
}

/// `manager`: outlives the conductor.
ConductorConfig told_to_conductor(const std::shared_ptr<Configuration>& configuration,
                                  const std::vector<PortLanes>& ports,
                                  const std::shared_ptr<logging::FileSink>& log,
                                  ServiceManager& manager) {
  const config::Config& config = configuration->running().config;
  ConductorConfig told = conductor_config(config, opened_ports(config, ports));
  told.configuration = configuration;
  if (log) told.reopen_log = [log] { return log->reopen(); };
  told.heartbeat = [&manager] { manager.alive(); };
  told.heartbeat_ns = ServiceManager::heartbeat_ns();
  return told;
}

void log_serving(const config::Config& config, bool hugepages, bool dpdk) {
  logging::info("serving")("version", INA_PROJECT_VERSION)("lcores", config.switchd.lcores)(
      "slots", config.aggregator.slots)("slot_bytes", config.aggregator.slot_bytes)(
      "policy", name(config.aggregator.policy.kind))("kernels", aggregator::kernel_target())(
      "hugepages", hugepages)("dpdk", dpdk);
}

/// Signals reach the conductor from now on, until `signalled` is none.
void take_signals(Conductor& conductor) {
  signalled = &conductor;
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGHUP, &action, nullptr);
  release_signals();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGIO, SIG_IGN);  // of leases: io::shm::Watch
}

/// Everything between a valid configuration and the end; errors are whole sentences. The
/// configuration with which the switch is to start again, if it is.
Result<std::optional<Configuration::Version>> serve(
    const std::shared_ptr<Configuration>& configuration,
    const std::shared_ptr<logging::FileSink>& log) {
  const config::Config& config = configuration->running().config;
  // Before there is a thread, a lock or a descriptor that it could have a copy of.
  auto doorman = control::Doorman::start();
  if (!doorman) return tl::unexpected(doorman.error());
  const Machine machine = Machine::here();
  if (auto passed = pass_preflight(config, machine, configuration->file()); !passed)
    return tl::unexpected(passed.error());
  // First of all: no packet may meet an epoch that the last process gave out too.
  auto state = StateFile::open(config.control.state_path());
  if (!state) return tl::unexpected(state.error());
  std::optional<io::Eal> eal;
  if (config.needs_dpdk()) {
    auto started = start_eal(config);
    if (!started) return tl::unexpected(started.error());
    eal = std::move(*started);
  }
  const bool hugepages = eal ? eal->uses_hugepages() : takes_hugepages(config, machine);
  auto bridge = bridge_config(config);
  if (!bridge) return tl::unexpected(bridge.error());
  auto ports = open_ports(config, *bridge);
  if (!ports) return tl::unexpected(ports.error());
  if (eal) eal->remove_runtime_folder();  // now: a switch that is killed removes nothing
  auto lanes = make_lanes(config, *bridge, *ports, hugepages);
  if (!lanes) return tl::unexpected(lanes.error());

  ServiceManager manager;
  Conductor conductor(told_to_conductor(configuration, *ports, log, manager), std::move(*state),
                      lanes->all_links(), doorman->get());
  if (auto opened = conductor.open(); !opened) return tl::unexpected(opened.error());
  auto metrics = start_metrics(config, conductor.admin());
  if (!metrics) return tl::unexpected(metrics.error());
  std::optional<Telemetry> telemetry;
  if (config.eal.telemetry) telemetry.emplace(conductor.admin());
  take_signals(conductor);

  auto threads = eal ? run_on_lcores(lanes->lanes) : run_on_threads(lanes->lanes, config.eal.cpus);
  if (!threads) return tl::unexpected(threads.error());
  if (log) log->release();
  log_serving(config, hugepages, eal.has_value());
  conductor.run();

  // A signal to stop that comes while the switch starts again is handled then.
  hold_signals();
  auto next = conductor.next();
  if (!next) ServiceManager::stopping();
  signalled = nullptr;
  *metrics = nullptr;
  lanes->stop();
  if (eal) rte_eal_mp_wait_lcore();
  threads->join();
  logging::info("stopped");
  if (stop_wanted != 0) next.reset();
  // It stays pending until the program that this one becomes takes signals.
  if (next && (reload_wanted != 0 || conductor.is_to_reload())) ::raise(SIGHUP);
  return next;
}

int start_failed(const std::string& text) {
  tell_stderr("ina-switchd", text);
  return kExitStart;
}

/// On standard error, wherever the log goes: who starts a switch looks there.
int cannot_serve(const std::string& text, const config::LogConfig& log,
                 const std::shared_ptr<logging::FileSink>& file) {
  if (file)
    std::fputs(file->discard().c_str(), stderr);
  else
    logging::critical("cannot serve")("text", text);
  return file || log.format == LogFormat::kJournal ? start_failed(text) : kExitStart;
}

/// The switch does not start with a configuration that a running one was given: it goes on with the
/// one before. Returns if there is none, or that failed, too.
int go_back(const std::optional<Handover>& handed, const Program& program, int status,
            const std::string& why) {
  if (!handed || !handed->previous) return status;
  tell_stderr("ina-switchd", "back to the configuration before: " + why);
  return start_failed(program.execute({.source = *handed->previous, .failure = why}).text);
}

std::string text_of(const std::vector<config::ConfigError>& errors) {
  std::string text;
  for (const config::ConfigError& error : errors)
    text += (text.empty() ? "" : "\n") + error.to_string();
  return text;
}

/// Serves with the configuration, and again with each new one that it is given meanwhile.
int serve_on(const std::shared_ptr<Configuration>& configuration,
             const std::optional<Handover>& handed, const Program& program) {
  const auto log = set_up_log(configuration->running().config.log);
  if (!log) return go_back(handed, program, start_failed(log.error().text), log.error().text);
  configuration->daemon = daemon_of(configuration, program);
  if (handed && !handed->failure.empty()) {
    configuration->set_failure(handed->failure);
    logging::error("back to the configuration before")("text", handed->failure);
  }
  // A heap does not grow where mappings have run out (brk counts as one): the conductor, which
  // tells that, has room from the start. Pages come when they are used.
  ::mallopt(M_TOP_PAD, 16 << 20);
  const auto served = serve(configuration, *log);
  if (!served) {
    const std::string& why = served.error().text;
    return go_back(handed, program, cannot_serve(why, configuration->running().config.log, *log),
                   why);
  }
  if (!*served) return 0;
  return start_failed(
      program.execute({.source = (*served)->source, .previous = configuration->running().source})
          .text);
}

int run(int argc, char** argv) {
  const Program program(argv);
  command_line::App app{"The INA aggregation switch: sums the gradients of its workers' jobs."};
  std::string config_file;
  std::string socket;
  bool check = false;
  bool self_test = false;
  bool json = false;
  bool sample = false;
  bool manual = false;
  app.set_version_flag("--version", INA_PROJECT_VERSION);
  app.add_option("-c,--config", config_file, "configuration file (YAML); without it, the defaults");
  app.add_option("--socket", socket, "control socket, instead of control.socket of the file");
  app.add_flag("--check", check,
               "only check: exit 0; 2 if the configuration is wrong; 1 if this machine keeps the "
               "switch from starting with it");
  command_line::Option* tests = app.add_flag(
      "--self-test", self_test,
      "only look at this machine: hugepages, cores, governor, clock, NICs, limits, and\n"
      "what to change for this configuration; exit 0 if it is ready; 3 if the switch\n"
      "would serve and something can be improved; 1 and 2 as --check");
  app.add_flag("-j,--json", json, "of --self-test: JSON, for programs")->needs(tests);
  app.add_flag("--print-config", sample, "print a commented configuration with all defaults");
  app.add_flag("--print-manual", manual, "print the manual page of the configuration (roff)");
  if (const auto status = command_line::parse(app, argc, argv)) return *status;
  if (sample || manual) {
    fmt::print("{}", sample ? config::sample_config() : config::manual_page());
    return 0;
  }
  const auto configuration = std::make_shared<Configuration>(config_file, socket);
  const bool serves = !self_test && !check;
  const auto handed = serves ? take_handover() : std::optional<Handover>();
  auto version = handed ? configuration->parse(handed->source) : configuration->read();
  if (!version) {
    const std::string text = text_of(version.error());
    fmt::print(stderr, "{}\n", printable(text, "\n"));
    return go_back(handed, program, kExitConfig, text);
  }
  if (self_test) return test_machine(version->config, json);
  if (check) return check_only(version->config, config_file);
  configuration->set_running(std::move(*version));
  return serve_on(configuration, handed, program);
}

}  // namespace
}  // namespace ina::switchd

int main(int argc, char** argv) {
  ina::prepare_limits();
  try {
    return ina::switchd::run(argc, argv);
  } catch (const std::exception& e) {
    ina::tell_stderr("ina-switchd", e.what());
    return 1;
  }
}
