#include "control/tcp.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "common/system_text.h"

namespace ina::control {

namespace {

/// The number behind the colon at `colon`; -1 if there is none.
int port_of(std::string_view text, size_t colon) {
  if (colon == std::string_view::npos) return -1;
  uint16_t port = 0;
  const auto [stop, error] =
      std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
  return error == std::errc() && stop == text.data() + text.size() ? port : -1;
}

bool set(int fd, int level, int option, int value) {
  return ::setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

/// A connection to nobody: the kernel took the port that it was to connect to as its own.
bool is_connected_to_itself(int fd) {
  sockaddr_in own{}, other{};
  socklen_t own_bytes = sizeof(own), other_bytes = sizeof(other);
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &other_bytes) == 0 &&
         own.sin_port == other.sin_port && own.sin_addr.s_addr == other.sin_addr.s_addr;
}

int finish_connecting(int fd, Nanos timeout_ns) {
  pollfd waiter{fd, POLLOUT, 0};
  const int ms = static_cast<int>(std::min<Nanos>(timeout_ns / 1'000'000 + 1, 1'000'000));
  if (const int ready = ::poll(&waiter, 1, ms); ready <= 0) return ready == 0 ? ETIMEDOUT : errno;
  int error = 0;
  socklen_t bytes = sizeof(error);
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
  return error;
}

}  // namespace

std::string text_of(const sockaddr_in& address) {
  char ip[INET_ADDRSTRLEN] = "?";
  ::inet_ntop(AF_INET, &address.sin_addr, ip, sizeof(ip));
  return std::string(ip) + ":" + std::to_string(ntohs(address.sin_port));
}

std::string host_of(const std::string& address) {
  const size_t begin = address.find(':') + 1;
  return address.substr(begin, address.rfind(':') - begin);
}

Result<sockaddr_in> tcp_address(const std::string& text) {
  static_assert(kTcpScheme.size() == kTlsScheme.size());
  const std::string rest = text.substr(std::min(text.size(), kTcpScheme.size()));
  const size_t colon = rest.rfind(':');
  const int port = port_of(rest, colon);
  if (!is_remote(text) || port <= 0 || colon == 0 || rest.find(':') != colon)
    return fail(INA_ERR_INVALID, "'" + text + "' is not of the form tcp:HOST:PORT or " +
                                     "tls:HOST:PORT, HOST an IPv4 address or a name");
  const std::string host = rest.substr(0, colon);
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  if (error != 0 || !found || found->ai_addrlen != sizeof(sockaddr_in))
    return fail(INA_ERR_NO_SWITCH,
                "cannot resolve '" + host + "' of " + text + ": " + ::gai_strerror(error));
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof(address));
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

Result<std::string> resolve(const std::string& address) {
  if (!is_remote(address)) return address;
  const auto resolved = tcp_address(address);
  if (!resolved) return tl::unexpected(resolved.error());
  return std::string(is_tls(address) ? kTlsScheme : kTcpScheme) + text_of(*resolved);
}

Result<Fd> connect_tcp(const sockaddr_in& address, Nanos timeout_ns, std::string& why) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd)
    return fail(INA_ERR_NO_MEMORY, std::string("cannot create a socket: ") + system_text(errno));
  set_tcp_options(fd.get(), kDeadPeerNs);
  int error = 0;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    error = errno == EINPROGRESS ? finish_connecting(fd.get(), timeout_ns) : errno;
  if (error == 0 && is_connected_to_itself(fd.get())) error = ECONNREFUSED;
  if (error == 0) return fd;
  why = std::strerror(error);
  if (error == ECONNREFUSED)
    why +=
        "; start one on that host: `ina-switchd --config FILE` with control.listen set to this "
        "address";
  else if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
    why +=
        "; is this the address of the switch's host (its control.listen), and does no firewall "
        "keep connections away?";
  return Fd();
}

Result<Fd> listen_tcp(const std::string& listen, const std::string& setting) {
  const size_t colon = listen.rfind(':');
  const int port = port_of(listen, colon);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (port < 0 || ::inet_pton(AF_INET, listen.substr(0, colon).c_str(), &address.sin_addr) != 1)
    return fail(INA_ERR_INVALID, setting + ": '" + listen +
                                     "' is not an IPv4 address and a port, such as 10.0.0.1:7584");
  address.sin_port = htons(static_cast<uint16_t>(port));
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd)
    return fail(INA_ERR_NO_MEMORY, std::string("cannot create a socket: ") + system_text(errno));
  // A switch that starts again must not wait for its predecessor's connections to time out.
  set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd.get(), 256) != 0)
    return fail(INA_ERR_INVALID,
                "cannot listen on " + listen + " (" + setting + "): " + std::strerror(errno));
  return fd;
}

void set_tcp_options(int fd, Nanos dead_peer_ns) {
  const int seconds = static_cast<int>(std::clamp<Nanos>(dead_peer_ns / 1'000'000'000, 1, 86'400));
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 2));
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 10));
  // Also where data waits for an acknowledgement or for room at the peer. It takes the place of
  // the number of probes.
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000);
}

}  // namespace ina::control
