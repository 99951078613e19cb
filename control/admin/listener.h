// The listening sockets for administrators: a unix socket, where the kernel names the user, and a
// TCP socket, where gRPC asks for a certificate. The listener accepts and counts connections,
// because gRPC would take any number.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

namespace ina::admin {

/// The number of a group, of its name or its number.
Result<gid_t> group_of(const std::string& name);

/// The peer of a unix socket, and whether it is root, the user of this process, or one of the
/// group.
struct UnixPeer {
  std::string text;    ///< "uid 1000, pid 4711"
  std::string source;  ///< "uid:1000"
  bool allowed = false;
};
UnixPeer peer_of(int fd, std::optional<gid_t> group);

class Listener {
 public:
  /// Connections at a time. Administrators on this host do not share places with others.
  static constexpr size_t kMaxUnix = 64;
  static constexpr size_t kMaxTcp = 24;
  static constexpr size_t kMaxOneAddress = 12;

  /// Called on the listener's thread, for each connection of somebody allowed. The descriptor is
  /// the callee's. `who`: of a unix socket.
  using Accepted = std::function<void(int fd, const std::string& who)>;

  static Result<Listener> open_unix(const std::string& path, std::optional<gid_t> group);
  /// `listen`: "ADDRESS:PORT", port 0: any.
  static Result<Listener> open_tcp(const std::string& listen);
  Listener(Listener&& other) noexcept = default;
  Listener& operator=(Listener&& other) noexcept = delete;
  /// Ends the thread and removes the path.
  ~Listener();

  /// Begins to accept.
  void start(Accepted accepted);
  /// Of TCP.
  uint16_t port() const;

 private:
  /// A connection that was handed on. The copy of its descriptor tells when it is closed, which
  /// gRPC does not without shutting it down.
  struct Connection {
    Fd copy;
    std::string source;
  };

  Listener(Fd fd, std::string path, std::optional<gid_t> group);
  void run(const Accepted& accepted);
  void accept_one(const Accepted& accepted);
  bool has_room(const std::string& source) const;

  Fd fd_;
  std::string path_;  ///< empty: TCP
  std::optional<gid_t> group_;
  Fd stop_;  ///< eventfd
  std::vector<Connection> connections_;
  std::thread thread_;
};

}  // namespace ina::admin
