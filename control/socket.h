// The control connection: one JSON object a message. Over a SEQPACKET unix socket, file descriptors
// travel beside it; over TCP there are none. docs/protocol.md lists the messages.
#pragma once

#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/result.h"
#include "control/messages.h"
#include "control/stream.h"
#include "control/tcp.h"
#include "control/trust.h"
#include "wire/types.h"

namespace ina::control {

inline constexpr size_t kMaxMessageBytes = 16 * 1024;
inline constexpr size_t kMaxDescriptors = 80;
/// Limit of a status or a trace: a memory file, or over TCP the switch's message itself.
inline constexpr size_t kMaxStatusBytes = 16 * 1024 * 1024;

/// The switch's setting of the path at which workers find it.
inline constexpr const char* kControlSocketSetting = "control.socket";

struct Received {
  Json body;
  std::vector<Fd> fds;
  /// Descriptors came beside it for which this process had no room.
  bool lost_descriptors = false;
  /// An accepted connection takes no descriptors: the message carries some and was only looked at.
  /// It is still the next one there, for a Doorman; nothing else may be received before.
  bool carries_descriptors = false;
};

class Doorman;

/// The peer, as the kernel reports it.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  /// Over TCP the kernel knows an address, and no user: `uid` and `gid` are nobody's.
  bool remote = false;
  uint32_t ip = 0;  ///< host byte order
  uint16_t port = 0;

  /// "pid 4711" or "10.0.0.2:33042"
  std::string text() const;
  /// The source that limits count by: "uid:1000" or "10.0.0.2"
  std::string source() const;
  /// "uid:1000, pid 4711" or "10.0.0.2:33042"
  std::string whole_text() const { return remote ? text() : source() + ", " + text(); }
  /// The source as a number.
  uint64_t key() const { return remote ? uint64_t{1} << 32 | ip : uid; }
  /// Root and this process's own user, on this host: they could stop this process.
  bool is_trusted() const { return !remote && (uid == 0 || uid == ::geteuid()); }
};

/// One end of a connection. Not thread-safe, but one thread may send while another receives.
class Connection {
 public:
  Connection() = default;
  /// One end of a unix socket. `accepted`: from a stranger, see Received::carries_descriptors;
  /// `doorman`: closes it then, and outlives it.
  explicit Connection(Fd fd, bool accepted = false, Doorman* doorman = nullptr)
      : fd_(std::move(fd)), accepted_(accepted), doorman_(doorman) {}
  /// One end of a TCP socket.
  Connection(Fd fd, StreamLimits limits, std::unique_ptr<TlsSession> tls = nullptr)
      : fd_(std::move(fd)), stream_(std::make_unique<Stream>(limits, std::move(tls))) {}

  Connection(Connection&& other) noexcept = default;
  Connection& operator=(Connection&& other) noexcept;
  ~Connection() { close(); }

  /// Connects to `path`, or to "tcp:HOST:PORT" or "tls:HOST:PORT", waiting for a switch that is
  /// busy, and at most `absent_ns` for one that is not there: it may be just starting. One attempt
  /// is made for any `timeout_ns`; over TCP it may take 500 ms, and a handshake as much again. A
  /// path that is no socket is an error at once. The error names the path and the remedy;
  /// INA_ERR_REFUSED: the switch is not to be trusted, or the two ends do not agree about TLS.
  /// `setting`: of the switch, that `path` must be.
  static Result<Connection> open(const std::string& path, Nanos timeout_ns, const Trust& trust = {},
                                 Nanos absent_ns = INT64_MAX,
                                 const std::string& setting = kControlSocketSetting);

  /// Sends one message, and never blocks. A peer that does not read gets INA_ERR_SWITCH_LOST here;
  /// INA_ERR_NO_MEMORY: the descriptors cannot be passed, the message alone may be. Over TCP only
  /// when much waits for it, until then receive() sends the rest. Descriptors do not pass over TCP.
  Result<void> send_text(const std::string& text, const std::vector<int>& fds = {}) const;
  /// Sends a body that is no message of control/messages.h, or is passed on unchanged.
  Result<void> send(const Json& body, const std::vector<int>& fds = {}) const {
    return send_text(text_of(body), fds);
  }
  /// Receives one message, waiting at most `timeout_ns` (0: not at all). Nothing if none came in
  /// time; error INA_ERR_SWITCH_LOST at end of file, INA_ERR_INVALID for a message that is no JSON
  /// object.
  Result<std::optional<Received>> receive(Nanos timeout_ns) const;

  PeerCredentials peer() const;
  int fd() const { return fd_.get(); }
  /// Part of a message waits to be sent.
  bool pending() const { return stream_ && stream_->pending(); }
  /// The events to poll for before receive(0).
  short events() const;
  /// receive(0) has more, of which no poll will tell.
  bool buffered() const { return stream_ && stream_->buffered(); }
  /// TlsSession::peer_name(), once something was received.
  std::optional<std::string> peer_name() const {
    return stream_ ? stream_->peer_name() : std::nullopt;
  }
  /// Sends a message and waits for the answer. A message that the peer sent before it closed the
  /// connection counts as the answer, also if nothing could be sent any more. Nothing: the peer did
  /// not answer in time.
  Result<std::optional<Received>> ask_text(const std::string& text, Nanos timeout_ns) const;
  Result<std::optional<Received>> ask(const Json& body, Nanos timeout_ns) const {
    return ask_text(text_of(body), timeout_ns);
  }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void close();
  /// The peer has closed its end, also if receive() has not come to that yet.
  bool peer_has_closed() const;
  /// Bytes that the peer has not read yet, give or take; unix sockets only.
  int unread() const;

 private:
  Result<std::optional<Received>> receive_accepted(Nanos deadline) const;
  static Result<Connection> open_tcp(const std::string& address, Nanos timeout_ns,
                                     const TlsClient& tls, Nanos absent_ns);
  static Result<std::unique_ptr<TlsSession>> shake_hands(int fd, const std::string& address,
                                                         Nanos deadline, TlsClient tls);
  Result<std::optional<Received>> receive_stream(Nanos deadline) const;
  static std::string text_of(const Json& body);

  Fd fd_;
  bool accepted_ = false;
  Doorman* doorman_ = nullptr;
  std::unique_ptr<Stream> stream_;  ///< TCP only
};

/// INA_ERR_INVALID: the path is empty or too long.
Result<sockaddr_un> unix_address(const std::string& path);

/// A listening unix socket (SOCK_SEQPACKET) at `path`. A stale path left by a dead process is
/// replaced; one that a living switch listens on is an error. `setting`: the key
/// of the path in the configuration. The caller unlinks the path when it is done with the socket.
Result<Fd> listen_unix(const std::string& path, mode_t mode, const std::string& setting);

/// How long connections wait in the backlog when none can be accepted.
inline constexpr Nanos kAcceptPauseNs = 100'000'000;

/// Listening socket at a path or a TCP port. Of a path (listen_unix): removes the path again when
/// destroyed.
class Listener {
 public:
  /// `setting`: listen_unix(), listen_tcp().
  static Result<Listener> open(const std::string& path, mode_t mode,
                               const std::string& setting = kControlSocketSetting);
  /// `listen`: "ADDRESS:PORT", port 0: any. `dead_peer_ns`: set_tcp_options().
  static Result<Listener> open_tcp(const std::string& listen, Nanos dead_peer_ns,
                                   const std::string& setting = "control.listen");
  Listener(Listener&& other) noexcept = default;
  Listener& operator=(Listener&& other) noexcept = delete;
  ~Listener();
  /// Has the TCP connections that come from now on encrypted. nullptr: not.
  void set_tls(std::shared_ptr<const TlsAcceptor> tls) { tls_ = std::move(tls); }
  /// The doorman closes connections to a path: those that come from now on, and those that still
  /// wait when this is destroyed.
  void set_doorman(Doorman* doorman) { doorman_ = doorman; }
  /// Nothing if no connection waits; an error if one does but cannot be taken, because descriptors
  /// or memory have run out.
  Result<std::optional<Connection>> accept() const;
  int fd() const { return fd_.get(); }
  /// The TCP port where it listens.
  uint16_t port() const;

 private:
  Listener(Fd fd, std::string path, Nanos dead_peer_ns = 0)
      : fd_(std::move(fd)), path_(std::move(path)), dead_peer_ns_(dead_peer_ns) {}
  Fd fd_;
  std::string path_;    ///< empty: TCP
  Nanos dead_peer_ns_;  ///< TCP only
  std::shared_ptr<const TlsAcceptor> tls_;
  Doorman* doorman_ = nullptr;
};

}  // namespace ina::control
