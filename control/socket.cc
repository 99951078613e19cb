#include "control/socket.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "common/clock.h"
#include "common/system_text.h"
#include "control/bounded_json.h"
#include "control/doorman.h"

namespace ina::control {

Result<sockaddr_un> unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path))
    return fail(INA_ERR_INVALID, "socket path '" + path + "' must have 1 to " +
                                     std::to_string(sizeof(address.sun_path) - 1) + " characters");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

namespace {

Fd new_socket() {
  return Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// The switch takes no more from a worker than on the unix socket; a worker takes a status, too.
constexpr StreamLimits kSwitchLimits{kMaxMessageBytes, kMaxStatusBytes};
constexpr StreamLimits kWorkerLimits{kMaxStatusBytes, kMaxMessageBytes};

// An attempt to connect over TCP gets this much at least: a round trip, and a lost packet or none.
constexpr Nanos kTcpAttemptNs = 500'000'000;

void pause_ms(long ms) {
  const timespec pause{0, ms * 1'000'000};
  ::nanosleep(&pause, nullptr);
}

tl::unexpected<Error> closed() {
  return fail(INA_ERR_SWITCH_LOST, "the control connection was closed by the other side");
}

Result<void> parse(const std::string& text, ssize_t bytes, int flags, Json& body) {
  body = Json::parse(text.data(), text.data() + bytes, nullptr, false);
  if ((flags & MSG_TRUNC) == 0 && body.is_object()) return {};
  return fail(INA_ERR_INVALID, "a control message is not one JSON object of at most " +
                                   std::to_string(kMaxMessageBytes) + " bytes");
}

void wait_for(int fd, short events, Nanos left) {
  pollfd waiter{fd, events, 0};
  ::poll(&waiter, 1, static_cast<int>(std::min<Nanos>(left / 1'000'000 + 1, 1'000'000)));
}

}  // namespace

std::string PeerCredentials::text() const {
  if (!remote) return "pid " + std::to_string(pid);
  sockaddr_in address{};
  address.sin_addr.s_addr = htonl(ip);
  address.sin_port = htons(port);
  return text_of(address);
}

std::string PeerCredentials::source() const {
  if (!remote) return "uid:" + std::to_string(uid);
  return std::to_string(ip >> 24) + "." + std::to_string(ip >> 16 & 255) + "." +
         std::to_string(ip >> 8 & 255) + "." + std::to_string(ip & 255);
}

namespace {

/// There is something at `path` that nobody can connect to, now or later.
bool is_no_socket(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode);
}

/// Why nobody answers at a path, and the remedy.
std::string absent_text(const std::string& path, const std::string& setting, int error) {
  const bool of_workers = setting == kControlSocketSetting;
  const std::string start = of_workers
                                ? "; start one there: `ina-switchd --config FILE --socket " + path +
                                      "`, or say where it is: the path must be its control.socket"
                                : "; is ina-switchd running, and is this its " + setting + "?";
  if (is_no_socket(path)) return "it is not a socket" + start;
  if (error == ENOENT || error == ENOTDIR) return "there is no such file" + start;
  if (error == ECONNREFUSED) return "nobody serves it, as its switch has ended" + start;
  if (error == EACCES)
    return std::string(std::strerror(error)) +
           (of_workers ? "; see control.mode in the switch's configuration"
                       : "; administrators are root, the switch's own user, and its admin.group");
  if (error == EPROTOTYPE)
    return "it is the socket of another program; the switch's " + setting + " is wanted";
  if (error == EAGAIN) return "it takes no more connections at present, as too many wait";
  return std::strerror(error);
}

}  // namespace

Result<Connection> Connection::open(const std::string& path, Nanos timeout_ns, const Trust& trust,
                                    Nanos absent_ns, const std::string& setting) {
  if (is_remote(path)) return open_tcp(path, timeout_ns, trust.tls, absent_ns);
  auto address = unix_address(path);
  if (!address) return tl::unexpected(address.error());
  Fd fd = new_socket();
  if (!fd)
    return fail(INA_ERR_NO_MEMORY, std::string("cannot create a socket: ") + system_text(errno));
  const Nanos begun = now_ns();
  // A backlog that is full (EAGAIN) and a switch that is just starting are worth waiting for.
  for (;;) {
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0) {
      if (auto trusted = check_server(fd.get(), path, trust); !trusted)
        return tl::unexpected(trusted.error());
      return Connection(std::move(fd));
    }
    const int error = errno;
    const bool absent = (error == ENOENT || error == ECONNREFUSED) && !is_no_socket(path);
    const bool busy = error == EAGAIN || error == EINTR;
    const Nanos most = absent ? std::min(timeout_ns, absent_ns) : timeout_ns;
    if ((!absent && !busy) || now_ns() - begun >= most)
      return fail(INA_ERR_NO_SWITCH,
                  "no switch at socket " + path + ": " + absent_text(path, setting, error));
    pause_ms(2);
  }
}

Result<Connection> Connection::open_tcp(const std::string& text, Nanos timeout_ns,
                                        const TlsClient& tls, Nanos absent_ns) {
  const Nanos begun = now_ns();
  const Nanos deadline = begun + timeout_ns;
  const Nanos give_up = begun + std::min(timeout_ns, absent_ns);
  const auto address = tcp_address(text);
  if (!address) return tl::unexpected(address.error());
  for (std::string why;;) {
    auto fd = connect_tcp(*address, std::max(kTcpAttemptNs, give_up - now_ns()), why);
    if (!fd) return tl::unexpected(fd.error());
    if (*fd && is_tls(text)) {
      const Nanos until = std::max(deadline, now_ns() + kTcpAttemptNs);
      auto session = shake_hands(fd->get(), text, until, tls);
      if (!session) return tl::unexpected(session.error());
      return Connection(std::move(*fd), kWorkerLimits, std::move(*session));
    }
    if (*fd) return Connection(std::move(*fd), kWorkerLimits);
    if (now_ns() >= give_up) return fail(INA_ERR_NO_SWITCH, "no switch at " + text + ": " + why);
    pause_ms(20);
  }
}

Result<std::unique_ptr<TlsSession>> Connection::shake_hands(int fd, const std::string& address,
                                                            Nanos deadline, TlsClient tls) {
  using Outcome = TlsSession::Outcome;
  if (tls.name.empty()) tls.name = host_of(address);
  auto session = open_tls_client(tls);
  if (!session) return session;
  for (;;) {
    const Outcome outcome = (*session)->handshake(fd);
    if (outcome == Outcome::kDone) return session;
    if (outcome == Outcome::kFailed)
      return fail(INA_ERR_REFUSED,
                  "no TLS with the switch at " + address + ": " + (*session)->error());
    if (outcome == Outcome::kClosed)
      return fail(INA_ERR_NO_SWITCH,
                  "the switch at " + address +
                      " closed the connection during the TLS handshake; its log may say why");
    const Nanos left = deadline - now_ns();
    if (left <= 0)
      return fail(INA_ERR_NO_SWITCH,
                  "the switch at " + address + " did not finish the TLS handshake");
    wait_for(fd, outcome == Outcome::kWantsWrite ? POLLOUT : POLLIN, left);
  }
}

std::string Connection::text_of(const Json& body) {
  // Text of foreign origin may be no UTF-8; it is replaced, not refused.
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<void> Connection::send_text(const std::string& text, const std::vector<int>& fds) const {
  if (stream_) {
    if (fds.empty()) return stream_->send(fd_.get(), text);
    return fail(INA_ERR_INTERNAL, "descriptors cannot be sent over TCP");
  }
  if (text.size() > kMaxMessageBytes || fds.size() > kMaxDescriptors)
    return fail(INA_ERR_INTERNAL, "a control message is too large: " + std::to_string(text.size()) +
                                      " bytes, " + std::to_string(fds.size()) + " descriptors");
  iovec part{const_cast<char*>(text.data()), text.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  // Zeroed: the kernel is given the padding, too.
  alignas(cmsghdr) char space[CMSG_SPACE(kMaxDescriptors * sizeof(int))] = {};
  if (!fds.empty()) {
    header.msg_control = space;
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
  }
  ssize_t sent;
  do {
    sent = ::sendmsg(fd_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return {};
  // Descriptors on their way are limited by the kernel, per user (ETOOMANYREFS).
  const bool descriptors = !fds.empty() && (errno == ETOOMANYREFS || errno == ENOMEM ||
                                            errno == ENOBUFS || errno == EMFILE);
  return fail(descriptors ? INA_ERR_NO_MEMORY : INA_ERR_SWITCH_LOST,
              std::string("cannot send ") + (descriptors ? "descriptors " : "") +
                  "on the control socket: " + std::strerror(errno));
}

Connection& Connection::operator=(Connection&& other) noexcept {
  if (this == &other) return *this;
  close();
  fd_ = std::move(other.fd_);
  accepted_ = other.accepted_;
  doorman_ = other.doorman_;
  stream_ = std::move(other.stream_);
  return *this;
}

void Connection::close() {
  if (fd_ && doorman_) doorman_->close(std::move(fd_));
  fd_.reset();
}

bool Connection::peer_has_closed() const {
  pollfd fds{fd_.get(), POLLRDHUP, 0};
  return ::poll(&fds, 1, 0) > 0;
}

int Connection::unread() const {
  int bytes = 0;
  return ::ioctl(fd_.get(), SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

Result<std::optional<Received>> Connection::ask_text(const std::string& text,
                                                     Nanos timeout_ns) const {
  const auto sent = send_text(text);
  if (!sent && sent.error().status != INA_ERR_SWITCH_LOST) return tl::unexpected(sent.error());
  auto answer = receive(sent ? timeout_ns : 0);
  if (!sent && !(answer && *answer)) return tl::unexpected(sent.error());
  return answer;
}

Result<std::optional<Received>> Connection::receive(Nanos timeout_ns) const {
  const Nanos deadline = now_ns() + timeout_ns;
  if (stream_) return receive_stream(deadline);
  if (accepted_) return receive_accepted(deadline);
  std::string text(kMaxMessageBytes, '\0');
  for (bool reset = false;;) {
    iovec part{text.data(), text.size()};
    alignas(cmsghdr) char space[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = space;
    header.msg_controllen = sizeof(space);
    const ssize_t got = ::recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got > 0) {
      Received received;
      for (cmsghdr* c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
          int fd = -1;
          std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
          received.fds.emplace_back(fd);
        }
      }
      received.lost_descriptors = (header.msg_flags & MSG_CTRUNC) != 0;
      if (auto parsed = parse(text, got, header.msg_flags, received.body); !parsed)
        return tl::unexpected(parsed.error());
      return std::optional<Received>(std::move(received));
    }
    // The other end closed with a message of ours unread. Its own last message is still there.
    if (got < 0 && errno == ECONNRESET && !std::exchange(reset, true)) continue;
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) return closed();
    const Nanos left = deadline - now_ns();
    if (left <= 0) return std::optional<Received>();
    wait_for(fd_.get(), POLLIN, left);
  }
}

/// A message with descriptors is left where it is: to discard them is to close them.
Result<std::optional<Received>> Connection::receive_accepted(Nanos deadline) const {
  std::string text;
  for (bool reset = false;;) {
    char first = 0;
    iovec part{&first, 1};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    // Without room for descriptors the kernel says that there were some.
    ssize_t got = ::recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_PEEK);
    const bool carries = got >= 0 && (header.msg_flags & MSG_CTRUNC) != 0;
    if (got > 0 || carries) {
      text.resize(kMaxMessageBytes);
      part = {text.data(), text.size()};
      got = ::recvmsg(fd_.get(), &header, MSG_DONTWAIT | (carries ? MSG_PEEK : 0));
      if (got < 0) return closed();
      Received received;
      received.carries_descriptors = carries;
      if (auto parsed = parse(text, got, header.msg_flags, received.body); !parsed)
        return tl::unexpected(parsed.error());
      return std::optional<Received>(std::move(received));
    }
    if (got < 0 && errno == ECONNRESET && !std::exchange(reset, true)) continue;
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) return closed();
    const Nanos left = deadline - now_ns();
    if (left <= 0) return std::optional<Received>();
    wait_for(fd_.get(), POLLIN, left);
  }
}

Result<std::optional<Received>> Connection::receive_stream(Nanos deadline) const {
  for (;;) {
    // If this fails, the peer's last message is still to be read.
    (void)stream_->flush(fd_.get());
    const auto text = stream_->receive(fd_.get());
    if (!text) return tl::unexpected(text.error());
    if (*text) {
      Received received;
      received.body = parse_bounded(**text);
      if (!received.body.is_object())
        return fail(INA_ERR_INVALID, "a control message is not one JSON object");
      return std::optional<Received>(std::move(received));
    }
    const Nanos left = deadline - now_ns();
    if (left <= 0) return std::optional<Received>();
    wait_for(fd_.get(), events(), left);
  }
}

short Connection::events() const {
  return static_cast<short>(stream_ && stream_->wants_write() ? POLLIN | POLLOUT : POLLIN);
}

PeerCredentials Connection::peer() const {
  if (stream_) {
    PeerCredentials peer{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
    peer.remote = true;
    sockaddr_in address{};
    socklen_t bytes = sizeof(address);
    // A peer that is gone already has no address, and no frame may come from 0.0.0.0.
    if (::getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0) {
      peer.ip = ntohl(address.sin_addr.s_addr);
      peer.port = ntohs(address.sin_port);
    }
    return peer;
  }
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return {0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  return {credentials.pid, credentials.uid, credentials.gid};
}

Result<Fd> listen_unix(const std::string& path, mode_t mode, const std::string& setting) {
  auto address = unix_address(path);
  if (!address) return fail(INA_ERR_INVALID, setting + ": " + address.error().text);
  const auto* name = reinterpret_cast<const sockaddr*>(&*address);
  const auto new_socket = [&] {
    return Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  };
  Fd fd = new_socket();
  const Fd probe = new_socket();
  if (!fd || !probe)
    return fail(INA_ERR_NO_MEMORY, std::string("cannot create a socket: ") + system_text(errno));
  // A backlog that is full is a sign of life, too, and so is a socket of another type.
  if (::connect(probe.get(), name, sizeof(*address)) == 0 || errno == EAGAIN || errno == EPROTOTYPE)
    return fail(INA_ERR_INVALID, "another switch already listens on " + path +
                                     "; stop it, or set another " + setting);
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode))
      return fail(INA_ERR_INVALID,
                  path + " exists and is not a socket; remove it, or set another " + setting);
    ::unlink(path.c_str());
  }
  if (::bind(fd.get(), name, sizeof(*address)) != 0)
    return fail(INA_ERR_INVALID, "cannot listen on " + path + ": " + std::strerror(errno) +
                                     (errno == ENOENT ? "; create its folder first" : ""));
  if (::chmod(path.c_str(), mode) != 0 || ::listen(fd.get(), 256) != 0) {
    const int error = errno;
    ::unlink(path.c_str());
    return fail(INA_ERR_INVALID, "cannot listen on " + path + ": " + std::strerror(error));
  }
  return fd;
}

Result<Listener> Listener::open(const std::string& path, mode_t mode, const std::string& setting) {
  auto fd = listen_unix(path, mode, setting);
  if (!fd) return tl::unexpected(fd.error());
  return Listener(std::move(*fd), path);
}

Result<Listener> Listener::open_tcp(const std::string& listen, Nanos dead_peer_ns,
                                    const std::string& setting) {
  auto fd = listen_tcp(listen, setting);
  if (!fd) return tl::unexpected(fd.error());
  return Listener(std::move(*fd), "", dead_peer_ns);
}

uint16_t Listener::port() const {
  sockaddr_in address{};
  socklen_t bytes = sizeof(address);
  ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
  return ntohs(address.sin_port);
}

Listener::~Listener() {
  if (!fd_ || path_.empty()) return;
  ::unlink(path_.c_str());
  // A peer that waits to be accepted may have sent descriptors already.
  if (!doorman_) return;
  for (;;) {
    const auto waiting = accept();
    if (!waiting || !*waiting) return;
  }
}

Result<std::optional<Connection>> Listener::accept() const {
  Fd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd && path_.empty()) {
    set_tcp_options(fd.get(), dead_peer_ns_);
    return std::optional<Connection>(
        Connection(std::move(fd), kSwitchLimits, tls_ ? tls_->accept() : nullptr));
  }
  if (fd) return std::optional<Connection>(Connection(std::move(fd), true, doorman_));
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
    return fail(INA_ERR_NO_MEMORY, std::string("cannot accept: ") + std::strerror(errno));
  return std::optional<Connection>();
}

}  // namespace ina::control
