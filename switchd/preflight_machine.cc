// What preflight() learns of the machine: sockets, files, processors, memory, interfaces.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/fd.h"
#include "common/receive_queues.h"
#include "io/ethdev/device_limits.h"
#include "switchd/preflight_checks.h"

namespace ina::switchd {

namespace fs = std::filesystem;

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

std::string socket_problem(const std::string& path, int type, const std::string& setting) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path))
    return fmt::format("{}: socket path '{}' must have 1 to {} characters", setting, path,
                       sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const Fd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // A backlog that is full is a sign of life, too.
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
      errno == EAGAIN)
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
  // As the listener does: what waits for the end of old connections is no obstacle.
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

/// Of /proc/meminfo, in bytes; 0: there is no such line.
uint64_t memory_line(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":"))
      return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  return 0;
}

uint64_t free_memory() {
  uint64_t bytes = memory_line("MemAvailable") + memory_line("SwapFree");
  if (bytes == 0) return UINT64_MAX;  // it is not said
  uint64_t limit = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit) bytes = std::min(bytes, limit);
  return bytes;
}

uint64_t free_hugepages() {
  uint64_t sum = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/kernel/mm/hugepages", error)) {
    const std::string name = entry.path().filename();  // hugepages-2048kB
    uint64_t pages = 0;
    std::ifstream(entry.path() / "free_hugepages") >> pages;
    const size_t dash = name.find('-');
    if (dash != std::string::npos)
      sum += pages * std::strtoull(name.c_str() + dash + 1, nullptr, 10) * 1024;
  }
  return sum;
}

uint64_t capabilities() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("CapEff:")) return std::strtoull(line.c_str() + 7, nullptr, 16);
  return UINT64_MAX;
}

std::optional<std::string> pci_driver(const std::string& address) {
  const std::string full = address.find(':') == address.rfind(':') ? "0000:" + address : address;
  const fs::path device = fs::path("/sys/bus/pci/devices") / full;
  std::error_code error;
  if (!fs::exists(device, error)) return std::nullopt;
  return fs::read_symlink(device / "driver", error).filename().string();
}

}  // namespace

Machine Machine::here() {
  Machine machine;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0)
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) machine.cpus.push_back(cpu);
  machine.free_bytes = free_memory();
  machine.free_hugepage_bytes = free_hugepages();
  const uint64_t caps = capabilities();
  const auto has = [caps](int bit) { return (caps >> bit & 1) != 0; };
  machine.raw_sockets = has(CAP_NET_RAW);
  machine.network_admin = has(CAP_NET_ADMIN);
  machine.bpf = has(CAP_BPF) || has(CAP_SYS_ADMIN);
  machine.mtu_of = io::mtu_of_interface;
  machine.receive_queues_of = ina::receive_queues_of;
  machine.pci_driver_of = pci_driver;
  return machine;
}

}  // namespace ina::switchd
