// TCP sockets for the control connection: making, resolving, and watching for dead hosts.
#pragma once

#include <netinet/in.h>

#include <string>
#include <string_view>

#include "common/fd.h"
#include "common/result.h"
#include "control/tls.h"
#include "wire/types.h"

namespace ina::control {

/// After this a host that answers nothing counts as dead, where nobody says otherwise.
inline constexpr Nanos kDeadPeerNs = 10'000'000'000;

/// The prefix of "tcp:HOST:PORT", which may stand in place of a socket's path.
inline constexpr std::string_view kTcpScheme = "tcp:";
inline bool is_tcp(std::string_view address) {
  return address.starts_with(kTcpScheme);
}
/// Over TCP, with or without TLS.
inline bool is_remote(std::string_view address) {
  return is_tcp(address) || is_tls(address);
}
/// HOST of "tcp:HOST:PORT" or "tls:HOST:PORT".
std::string host_of(const std::string& address);

/// "10.0.0.2:4711"
std::string text_of(const sockaddr_in& address);

/// `address` with its host's name resolved, "tcp:10.0.0.1:7584"; a path as it stands. For "tls:"
/// the name itself is needed, too: host_of(). May block as long as the system's resolver does.
Result<std::string> resolve(const std::string& address);

/// The address in "tcp:HOST:PORT" or "tls:HOST:PORT"; blocks like resolve(). The error says what is
/// wrong with it.
Result<sockaddr_in> tcp_address(const std::string& text);
/// One attempt to connect, given up after `timeout_ns`. No descriptor: nobody is there, `why` says
/// what happened.
Result<Fd> connect_tcp(const sockaddr_in& address, Nanos timeout_ns, std::string& why);

/// A listening socket. `listen`: "ADDRESS:PORT"; port 0: the kernel chooses. `setting`: its key in
/// the configuration.
Result<Fd> listen_tcp(const std::string& listen, const std::string& setting);

/// No delay for small messages, and an error on the socket within about `dead_peer_ns` (whole
/// seconds, and up to 2 more) once its peer answers nothing, or takes nothing that is sent.
void set_tcp_options(int fd, Nanos dead_peer_ns);

}  // namespace ina::control
