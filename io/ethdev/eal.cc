#include "io/ethdev/eal.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <utility>

#include "common/cpu_list.h"
#include "common/cpus.h"
#include "io/ethdev/eal_log.h"
#include "io/ethdev/poll_gate.h"

namespace ina::io {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// ---- what DPDK logs ----------------------------------------------------------------------------

/// One for the process and never destroyed: DPDK's interrupt thread outlives the environment.
struct LogSink {
  std::mutex mutex;
  std::function<void(EalLogLevel, std::string_view)> log;
  EalLogLevel level = EalLogLevel::kError;
  std::string errors;  ///< for the texts of our own
  std::string line;    ///< begun, not ended yet

  void add_error(std::string_view text) {
    constexpr size_t kEnough = 300;
    if (errors.size() < kEnough) errors.append(errors.empty() ? "" : "; ").append(text);
  }
};

LogSink& sink() {
  static auto* const instance = new LogSink;
  return *instance;
}

EalLogLevel level_of(int rte_level) {
  if (rte_level <= 0 || rte_level >= static_cast<int>(RTE_LOG_NOTICE)) return EalLogLevel::kInfo;
  return rte_level == static_cast<int>(RTE_LOG_WARNING) ? EalLogLevel::kWarning
                                                        : EalLogLevel::kError;
}

ssize_t write_log(void*, const char* text, size_t bytes) {
  PollGate::on_driver_log(rte_log_cur_msg_logtype());
  // Debug lines are asked for by PollGate only.
  const int rte_level = rte_log_cur_msg_loglevel();
  if (rte_level >= static_cast<int>(RTE_LOG_DEBUG)) return static_cast<ssize_t>(bytes);
  LogSink& to = sink();
  const std::lock_guard lock(to.mutex);
  const EalLogLevel level = level_of(rte_level);
  for (const char c : std::string_view(text, bytes)) {
    if (c != '\n') {
      to.line += c;
      continue;
    }
    const EalLogLevel proper = proper_level(level, to.line);
    if (proper == EalLogLevel::kError) to.add_error(to.line);
    if (to.log && proper <= to.level) to.log(proper, to.line);
    to.line.clear();
  }
  return static_cast<ssize_t>(bytes);
}

bool open_log_stream() {
  static FILE* const stream = [] {
    cookie_io_functions_t functions{};
    functions.write = write_log;
    return ::fopencookie(nullptr, "w", functions);
  }();
  return stream != nullptr && rte_openlog_stream(stream) == 0;
}

// ---- memory and CPUs ---------------------------------------------------------------------------

uint64_t free_hugepage_bytes() {
  uint64_t sum = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/kernel/mm/hugepages", error)) {
    const std::string name = entry.path().filename();  // hugepages-2048kB
    uint64_t page_kib = 0;
    uint64_t pages = 0;
    const size_t dash = name.find('-');
    if (dash == std::string::npos) continue;
    std::from_chars(name.data() + dash + 1, name.data() + name.size(), page_kib);
    std::ifstream(entry.path() / "free_hugepages") >> pages;
    sum += pages * page_kib * 1024;
  }
  return sum;
}

/// CPUs that the kernel keeps for threads that are bound to them (isolcpus=).
std::vector<uint32_t> isolated_cpus() {
  std::string line;
  std::ifstream stream("/sys/devices/system/cpu/isolated");
  std::getline(stream, line);
  const auto isolated = parse_cpus(line);
  return isolated && !isolated->empty() ? bindable_cpus(*isolated) : std::vector<uint32_t>();
}

/// "(0-3,6)", the form in which --lcores takes a set of CPUs.
std::string format_cpu_set(const std::vector<uint32_t>& cpus) {
  return '(' + format_cpus(cpus) + ')';
}

std::string prefix_of(const EalConfig& config) {
  return config.file_prefix.empty() ? "ina-" + std::to_string(::getpid()) : config.file_prefix;
}

std::string advice(int error) {
  switch (error) {
    case ENOMEM:
      return "Lower the memory asked for, free hugepages, or run without hugepages (huge: no).";
    case EALREADY:
      return "DPDK can be started only once in the life of a process.";
    case EACCES:
    case EPERM:
      return "Run as root, or without hugepages and PCI devices.";
    default:
      return "Check the devices and the extra arguments.";
  }
}

}  // namespace

std::string take_eal_errors() {
  LogSink& from = sink();
  const std::lock_guard lock(from.mutex);
  return std::exchange(from.errors, {});
}

void add_eal_error(std::string_view line) {
  LogSink& to = sink();
  const std::lock_guard lock(to.mutex);
  to.add_error(line);
}

Result<std::vector<uint32_t>> parse_cpu_list(std::string_view list) {
  static_assert(kMaxCpus <= CPU_SETSIZE);
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view part = list.substr(begin, end - begin);
    if (part.empty() || !parse_cpus(part))
      return fail(INA_ERR_INVALID, "CPU list \"" + std::string(list) + "\": \"" +
                                       std::string(part) +
                                       "\" is neither a CPU number nor a range such as 2-5.");
    begin = end + 1;
  }
  return *parse_cpus(list);
}

Result<std::vector<std::string>> eal_arguments(const EalConfig& config,
                                               const std::vector<uint32_t>& available,
                                               bool use_hugepages,
                                               const std::vector<uint32_t>& isolated) {
  std::vector<uint32_t> cpus = available;
  if (!config.cpus.empty()) {
    auto listed = parse_cpu_list(config.cpus);
    if (!listed) return tl::unexpected(listed.error());
    cpus = std::move(*listed);
    for (const uint32_t cpu : cpus)
      if (!std::ranges::binary_search(available, cpu) && !std::ranges::binary_search(isolated, cpu))
        return fail(INA_ERR_INVALID, "CPU list \"" + config.cpus + "\": CPU " +
                                         std::to_string(cpu) +
                                         " does not exist or is not allowed to this process (" +
                                         format_cpu_set(available) + ").");
  }
  // Lcore 0 runs threads that may sleep, so it takes no CPU for itself.
  std::string lcores = "0@" + format_cpu_set(available);
  const bool pinned = !config.cpus.empty() && cpus.size() >= config.lcores;
  for (uint32_t lcore = 1; lcore <= config.lcores; ++lcore)
    lcores += ',' + std::to_string(lcore) + '@' +
              (pinned ? std::to_string(cpus[lcore - 1]) : format_cpu_set(cpus));

  std::vector<std::string> args = {
      "ina",
      config.telemetry ? "--telemetry" : "--no-telemetry",
      "--file-prefix=" + prefix_of(config),
      "--lcores=" + lcores,
      "-m",
      std::to_string((config.memory_bytes + kMiB - 1) / kMiB),
  };
  // Neither form has files or a lock: hugepages come from memfds and need no hugetlbfs mount, and a
  // process that was killed leaves no more than an empty folder.
  if (use_hugepages) {
    args.push_back("--in-memory");
  } else {
    args.insert(args.end(), {"--no-huge", "--no-shconf"});
  }
  if (config.pci.empty()) args.push_back("--no-pci");
  for (const std::string& address : config.pci) args.insert(args.end(), {"-a", address});
  for (const std::string& vdev : config.vdevs) args.push_back("--vdev=" + vdev);
  args.insert(args.end(), config.extra_args.begin(), config.extra_args.end());
  return args;
}

Result<Eal> Eal::start(const EalConfig& config) {
  const uint64_t free_bytes = free_hugepage_bytes();
  // A failed start cannot be repeated with other arguments in the same process: decide beforehand.
  const bool enough = free_bytes >= config.memory_bytes;
  if (config.huge == HugePages::kYes && !enough)
    return fail(INA_ERR_NO_MEMORY,
                "Hugepages are asked for (huge: yes), " +
                    std::to_string((config.memory_bytes + kMiB - 1) / kMiB) + " MiB of them, but " +
                    std::to_string(free_bytes / kMiB) +
                    " MiB are free. Raise /proc/sys/vm/nr_hugepages, or set huge: auto.");
  const bool use_hugepages = config.huge != HugePages::kNo && enough;

  auto args = eal_arguments(config, cpus_of_process(), use_hugepages, isolated_cpus());
  if (!args) return tl::unexpected(args.error());

  // DPDK would say this itself, but to stderr.
  static std::atomic<bool> started{false};
  if (started.load())
    return fail(INA_ERR_INTERNAL, "DPDK could not start again. " + advice(EALREADY));

  LogSink& log = sink();
  {
    const std::lock_guard lock(log.mutex);
    log.log = config.log;
    log.level = config.log_level;
    log.errors.clear();
  }
  if (!open_log_stream())
    return fail(INA_ERR_NO_MEMORY, "DPDK could not start: no stream for its log.");

  // DPDK keeps pointers to its arguments for the life of the process.
  auto* const kept = new std::vector<std::string>(std::move(*args));
  auto* const argv = new std::vector<char*>;
  for (std::string& arg : *kept) argv->push_back(arg.data());
  argv->push_back(nullptr);
  // DPDK's threads inherit the mask: signals are for the threads of the program, and memif's write
  // to a socket whose peer is gone must not raise SIGPIPE.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int parsed = rte_eal_init(static_cast<int>(kept->size()), argv->data());
  const int error = rte_errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (parsed < 0) {
    const std::string said = take_eal_errors();
    return fail(error == ENOMEM ? INA_ERR_NO_MEMORY : INA_ERR_INTERNAL,
                "DPDK could not start (" + std::string(rte_strerror(error)) +
                    (said.empty() ? "" : "; " + said) + "). " + advice(error));
  }
  started = true;
  PollGate::install();
  return Eal(use_hugepages, config.telemetry);
}

Eal::Eal(bool uses_hugepages, bool telemetry)
    : uses_hugepages_(uses_hugepages), telemetry_(telemetry), running_(true) {}

Eal::Eal(Eal&& other) noexcept
    : uses_hugepages_(other.uses_hugepages_),
      telemetry_(other.telemetry_),
      running_(std::exchange(other.running_, false)) {}

Eal& Eal::operator=(Eal&& other) noexcept {
  if (this != &other) {
    stop();
    uses_hugepages_ = other.uses_hugepages_;
    telemetry_ = other.telemetry_;
    running_ = std::exchange(other.running_, false);
  }
  return *this;
}

Eal::~Eal() {
  stop();
}

void Eal::remove_runtime_folder() {
  // Only an empty folder is removed: if the extra arguments bring files, other processes may use
  // them.
  std::error_code ignored;
  std::filesystem::remove(rte_eal_get_runtime_dir(), ignored);
}

void Eal::stop() {
  if (!std::exchange(running_, false)) return;
  // DPDK removes its socket later than this.
  std::error_code ignored;
  if (telemetry_)
    std::filesystem::remove(std::filesystem::path(rte_eal_get_runtime_dir()) / "dpdk_telemetry.v2",
                            ignored);
  // rte_eal_cleanup() is not called: it unmaps memory that DPDK's interrupt thread, which it does
  // not stop, goes on using, and that crashes programs at their end. All it would do besides, the
  // end of the process does: there are no files, and devices are closed by their owners.
  remove_runtime_folder();
  const std::lock_guard lock(sink().mutex);
  sink().log = {};
}

}  // namespace ina::io
