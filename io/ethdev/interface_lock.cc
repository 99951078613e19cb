#include "io/ethdev/interface_lock.h"

#include <net/if.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

namespace ina::io {
namespace {

struct Address {
  sockaddr_un name{};
  socklen_t bytes = 0;
};

/// The address of an abstract name.
Address address_of(const std::string& name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  name.copy(address.name.sun_path + 1, sizeof address.name.sun_path - 1);
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

std::string prefix_of(unsigned index) {
  return "ina-interface-" + std::to_string(index) + "-";
}

std::string name_of(unsigned index, InterfaceUse use) {
  return prefix_of(index) + (use == InterfaceUse::kPort
                                 ? std::string("port")
                                 : "worker-" + std::to_string(::getpid()) + "-");
}

/// The process that listens at a name, if its user counts; 0: too many have asked to tell which.
std::optional<pid_t> holder_of(const std::string& name) {
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address = address_of(name);
  if (!socket) return std::nullopt;
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.bytes) != 0)
    return errno == EAGAIN ? std::optional<pid_t>(0) : std::nullopt;
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return std::nullopt;
  if (peer.uid != 0 && peer.uid != ::geteuid()) return std::nullopt;
  return peer.pid;
}

std::string text_of(const std::string& interface, const std::string& holder, pid_t pid) {
  const std::string process = pid == ::getpid() ? "this process"
                              : pid == 0        ? "another process"
                                                : "process " + std::to_string(pid);
  return "interface " + interface + " is used by " + holder + " of " + process +
         " already: each port needs an interface of its own";
}

/// Why workers' locks at an interface keep a port from it.
std::string workers_obstacle(const std::string& interface, unsigned index) {
  std::ifstream sockets("/proc/net/unix");
  const std::string mark = " @" + prefix_of(index) + "worker-";
  for (std::string line; std::getline(sockets, line);) {
    const size_t at = line.find(mark);
    if (at == std::string::npos) continue;
    if (const auto pid = holder_of(line.substr(at + 2)))
      return text_of(interface, "a worker (dpdk:)", *pid);
  }
  return "";
}

std::string obstacle_of(const std::string& interface, InterfaceUse use, bool own_too) {
  const unsigned index = ::if_nametoindex(interface.c_str());
  if (index == 0) return "";  // for others to tell
  const auto pid = holder_of(name_of(index, InterfaceUse::kPort));
  if (pid && (own_too || *pid != ::getpid())) return text_of(interface, "a port of a switch", *pid);
  return use == InterfaceUse::kPort ? workers_obstacle(interface, index) : "";
}

}  // namespace

std::string InterfaceLock::obstacle(const std::string& interface, InterfaceUse use) {
  return obstacle_of(interface, use, false);
}

bool InterfaceLock::same(const std::string& interface, const std::string& other) {
  const unsigned index = ::if_nametoindex(interface.c_str());
  return index != 0 && index == ::if_nametoindex(other.c_str());
}

Result<InterfaceLock> InterfaceLock::take(const std::string& interface, InterfaceUse use) {
  if (const std::string text = obstacle_of(interface, use, true); !text.empty())
    return fail(INA_ERR_REFUSED, text + ".");
  const unsigned index = ::if_nametoindex(interface.c_str());
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::string name = name_of(index, use);
  static int workers = 0;
  if (use == InterfaceUse::kWorker) name += std::to_string(++workers);
  const Address address = address_of(name);
  // A lock that does not count may have the name: the start goes on without one.
  if (!socket ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.bytes) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0)
    socket.reset();
  return InterfaceLock(std::move(socket));
}

}  // namespace ina::io
