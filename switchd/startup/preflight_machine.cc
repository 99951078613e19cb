// The machine's facts for preflight(): sockets, files, processors, memory, interfaces.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "common/cpu_list.h"
#include "common/cpus.h"
#include "common/fd.h"
#include "common/receive_queues.h"
#include "io/ethdev/device_limits.h"
#include "switchd/startup/preflight_checks.h"

namespace ina::switchd {

namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

/// Why no file can be made beside `path`.
std::string folder_problem(const std::string& path, const std::string& setting) {
  const std::string folder = folder_of(path);
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
    return fmt::format("{}: the folder of {} does not exist: create it first, or set another {}",
                       setting, path, setting);
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return fmt::format("{}: the folder of {} may not be written to by this user ({}); set another {}",
                     setting, path, std::strerror(errno), setting);
}

}  // namespace

std::string socket_problem(const std::string& path, const std::string& setting) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path))
    return fmt::format("{}: socket path '{}' must have 1 to {} characters", setting, path,
                       sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const Fd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // A backlog that is full is a sign of life, too, and so is a socket of another type.
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
      errno == EAGAIN || errno == EPROTOTYPE)
    return fmt::format("another switch already listens on {}; stop it, or set another {}", path,
                       setting);
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode))
    return fmt::format("{} exists and is not a socket; remove it, or set another {}", path,
                       setting);
  return folder_problem(path, setting);
}

std::string listen_problem(const std::string& listen, const std::string& setting) {
  const size_t colon = listen.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  uint16_t port = 0;
  if (colon == std::string::npos ||
      ::inet_pton(AF_INET, listen.substr(0, colon).c_str(), &address.sin_addr) != 1)
    return {};  // not ours to read: a name, or IPv6
  std::from_chars(listen.data() + colon + 1, listen.data() + listen.size(), port);
  address.sin_port = htons(port);
  const Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // As the listener does: a port in TIME_WAIT is no obstacle.
  const int yes = 1;
  ::setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (!probe ||
      ::bind(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return {};
  const int error = errno;
  std::string hint;
  if (error == EADDRINUSE) hint = ": another program listens there";
  if (error == EADDRNOTAVAIL) hint = ": it is no address of this machine";
  return fmt::format("cannot listen on {} ({}): {}{}", listen, setting, std::strerror(error), hint);
}

std::string log_problem(const std::string& path) {
  if (path.empty()) return {};
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return folder_problem(path, "log.file");
  if (S_ISDIR(status.st_mode)) return "log.file: " + path + " is a folder";
  if (::access(path.c_str(), W_OK) == 0) return {};
  return fmt::format("log.file: {} may not be written to by this user ({})", path,
                     std::strerror(errno));
}

// ---- the machine

namespace {

/// A value of /proc/meminfo in bytes; 0: there is no such line.
uint64_t memory_line(const MachineFiles& files, const std::string& key) {
  return std::strtoull(files.after("proc/meminfo", key + ":").c_str(), nullptr, 10) * 1024;
}

uint64_t free_memory(const MachineFiles& files) {
  const uint64_t bytes = memory_line(files, "MemAvailable") + memory_line(files, "SwapFree");
  if (bytes == 0) return UINT64_MAX;  // it is not said
  return std::min(bytes, files.number("sys/fs/cgroup/memory.max").value_or(UINT64_MAX));
}

uint64_t free_hugepages(const MachineFiles& files) {
  uint64_t sum = 0;
  for (const HugepagePool& pool : hugepage_pools(files)) sum += pool.free * pool.page_bytes;
  return sum;
}

std::optional<std::string> pci_driver(const MachineFiles& files, const std::string& address) {
  const std::string device = "sys/bus/pci/devices/" + full_pci_address(address);
  if (!files.exists(device)) return std::nullopt;
  return files.link(device + "/driver");
}

}  // namespace

std::string full_pci_address(const std::string& address) {
  return address.find(':') == address.rfind(':') ? "0000:" + address : address;
}

bool Machine::has_cpu(uint32_t cpu) const {
  return std::ranges::binary_search(cpus, cpu) || std::ranges::binary_search(isolated, cpu);
}

Machine Machine::here(const MachineFiles& files) {
  Machine machine;
  machine.cpus = cpus_of_process();
  const auto isolated = parse_cpus(files.line("sys/devices/system/cpu/isolated"));
  if (isolated && !isolated->empty()) machine.isolated = bindable_cpus(*isolated);
  machine.free_bytes = free_memory(files);
  machine.free_hugepage_bytes = free_hugepages(files);
  const uint64_t caps = capabilities(files);
  const auto has = [caps](int bit) { return (caps >> bit & 1) != 0; };
  machine.raw_sockets = has(CAP_NET_RAW);
  machine.network_admin = has(CAP_NET_ADMIN);
  machine.bpf = has(CAP_BPF) || has(CAP_SYS_ADMIN);
  machine.locks_memory = has(CAP_IPC_LOCK);
  machine.mtu_of = io::mtu_of_interface;
  machine.receive_queues_of = ina::receive_queues_of;
  machine.pci_driver_of = [files](const std::string& address) {
    return pci_driver(files, address);
  };
  return machine;
}

}  // namespace ina::switchd
