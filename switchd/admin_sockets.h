// The sockets of administrators: a unix socket, where the kernel names the user, and a TCP port,
// where TLS names the holder of a certificate. Their connections have places of their own, so that
// neither workers keep administrators out, nor remote administrators those of this host.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "control/socket.h"
#include "switchd/client.h"
#include "switchd/config/config.h"

namespace ina::switchd {

/// The number of a group, of its name or its number.
Result<gid_t> group_of(const std::string& name);

class AdminSockets {
 public:
  /// Connections at a time, and those of one address over TCP.
  static constexpr uint32_t kMostLocal = 64;
  static constexpr uint32_t kMostRemote = 24;
  static constexpr uint32_t kMostOneAddress = 12;

  using Clients = std::map<int, std::unique_ptr<Client>>;

  /// `config`: its socket is the path itself; empty: none. It must outlive this, and so must
  /// `doorman` (Listener::set_doorman).
  AdminSockets(const config::AdminConfig& config, control::Doorman* doorman)
      : config_(config), doorman_(doorman) {}

  /// Errors name setting and file.
  Result<void> open();
  void close();
  std::vector<int> listening() const;
  /// nullptr: none of them has this descriptor.
  const control::Listener* find(int fd) const;
  /// After open(), from any thread; 0: there is none.
  uint16_t tcp_port() const { return tcp_port_; }

  /// The peer of an accepted connection is an administrator, as far as the kernel knows.
  bool may_come_in(const control::Connection& connection) const;
  /// There is a place for one more. `clients`: all that the switch has.
  bool has_room(const control::PeerCredentials& peer, const Clients& clients) const;

 private:
  Result<void> open_local();
  Result<void> open_remote();

  const config::AdminConfig& config_;
  control::Doorman* doorman_;
  std::optional<gid_t> group_;
  std::optional<control::Listener> local_;
  std::optional<control::Listener> remote_;
  uint16_t tcp_port_ = 0;  ///< stays after close(): other threads read it
};

}  // namespace ina::switchd
