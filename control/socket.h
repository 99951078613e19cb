// The control socket: a SEQPACKET unix socket that carries one JSON object a message, with file
// descriptors beside it. docs/protocol.md lists the messages.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/result.h"
#include "wire/types.h"

namespace ina::control {

using Json = nlohmann::json;

inline constexpr int kControlVersion = 1;
inline constexpr size_t kMaxMessageBytes = 16 * 1024;
inline constexpr size_t kMaxDescriptors = 80;

struct Received {
  Json body;
  std::vector<Fd> fds;
};

/// Who is at the other end, by the kernel's word.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

/// One end of a connection. Not thread-safe, but one thread may send while another receives.
class Connection {
 public:
  Connection() = default;
  explicit Connection(Fd fd) : fd_(std::move(fd)) {}

  /// Connects to `path`. The error names the path and says what to do.
  static Result<Connection> open(const std::string& path, Nanos timeout_ns);

  /// Sends one message; never blocks longer than the socket's buffer needs (a peer that does not
  /// read gets INA_ERR_SWITCH_LOST here).
  Result<void> send(const Json& body, const std::vector<int>& fds = {}) const;
  /// Receives one message, waiting at most `timeout_ns` (0: not at all). Nothing if none came in
  /// time; error INA_ERR_SWITCH_LOST at end of file, INA_ERR_INVALID for a message that is no JSON
  /// object.
  Result<std::optional<Received>> receive(Nanos timeout_ns) const;

  PeerCredentials peer() const;
  int fd() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void close() { fd_.reset(); }

 private:
  Fd fd_;
};

/// Listening socket at a path; removes the path again when destroyed. A stale path left by a
/// dead process is replaced; one that a living switch listens on is an error.
class Listener {
 public:
  static Result<Listener> open(const std::string& path, mode_t mode);
  Listener(Listener&& other) noexcept = default;
  Listener& operator=(Listener&& other) noexcept = delete;
  ~Listener();
  /// Nothing if no connection waits; an error if one does but cannot be taken, because descriptors
  /// or memory have run out.
  Result<std::optional<Connection>> accept() const;
  int fd() const { return fd_.get(); }

 private:
  Listener(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Fd fd_;
  std::string path_;
};

}  // namespace ina::control
