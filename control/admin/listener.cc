#include "control/admin/listener.h"

#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "common/event_fd.h"
#include "common/logging/record.h"
#include "control/socket.h"

namespace ina::admin {

namespace {

// How long connections wait in the backlog when no descriptor is left for them.
constexpr int kAcceptPauseMs = 100;

std::vector<gid_t> groups_of(int fd, gid_t first) {
  std::vector<gid_t> groups(64);
  for (;;) {
    auto bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) == 0) {
      groups.resize(bytes / sizeof(gid_t));
      break;
    }
    if (errno != ERANGE) {
      groups.clear();
      break;
    }
    groups.resize(bytes / sizeof(gid_t));
  }
  groups.push_back(first);
  return groups;
}

}  // namespace

Result<gid_t> group_of(const std::string& name) {
  gid_t number = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, number);
  if (error == std::errc() && stop == end) return number;
  group entry{};
  group* found = nullptr;
  std::vector<char> space(1 << 16);
  if (::getgrnam_r(name.c_str(), &entry, space.data(), space.size(), &found) != 0 || !found)
    return fail(INA_ERR_INVALID, "admin.group: there is no group '" + name + "'");
  return found->gr_gid;
}

UnixPeer peer_of(int fd, std::optional<gid_t> group) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
    return {"nobody", "nobody", false};
  const bool one_of_the_group = group && std::ranges::count(groups_of(fd, peer.gid), *group) != 0;
  return {"uid " + std::to_string(peer.uid) + ", pid " + std::to_string(peer.pid),
          "uid:" + std::to_string(peer.uid),
          peer.uid == 0 || peer.uid == ::geteuid() || one_of_the_group};
}

Listener::Listener(Fd fd, std::string path, std::optional<gid_t> group)
    : fd_(std::move(fd)),
      path_(std::move(path)),
      group_(group),
      stop_(Fd(::eventfd(0, EFD_CLOEXEC))) {}

Result<Listener> Listener::open_unix(const std::string& path, std::optional<gid_t> group) {
  auto fd = control::listen_unix(path, group ? 0660 : 0600, SOCK_STREAM, "admin.socket");
  if (!fd) return tl::unexpected(fd.error());
  Listener listener(std::move(*fd), path, group);
  if (group && ::chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0)
    return fail(INA_ERR_INVALID, "cannot give " + path + " to group " + std::to_string(*group) +
                                     " (admin.group): " + std::strerror(errno));
  return listener;
}

Result<Listener> Listener::open_tcp(const std::string& listen) {
  auto fd = control::listen_tcp(listen, "admin.listen");
  if (!fd) return tl::unexpected(fd.error());
  return Listener(std::move(*fd), "", std::nullopt);
}

uint16_t Listener::port() const {
  sockaddr_in address{};
  socklen_t bytes = sizeof(address);
  ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
  return ntohs(address.sin_port);
}

Listener::~Listener() {
  if (thread_.joinable()) {
    ring_event(stop_.get());
    thread_.join();
  }
  if (fd_ && !path_.empty()) ::unlink(path_.c_str());
}

void Listener::start(Accepted accepted) {
  thread_ = std::thread([this, accepted = std::move(accepted)] { run(accepted); });
}

void Listener::run(const Accepted& accepted) {
  ::pthread_setname_np(::pthread_self(), "ina-admin");
  for (;;) {
    std::vector<pollfd> fds = {{stop_.get(), POLLIN, 0}, {fd_.get(), POLLIN, 0}};
    for (const Connection& one : connections_) fds.push_back({one.copy.get(), POLLRDHUP, 0});
    ::poll(fds.data(), fds.size(), -1);
    if (fds[0].revents != 0) return;
    for (size_t i = connections_.size(); i-- != 0;)
      if (fds[i + 2].revents != 0)
        connections_.erase(connections_.begin() + static_cast<ptrdiff_t>(i));
    if (fds[1].revents != 0) accept_one(accepted);
  }
}

bool Listener::has_room(const std::string& source) const {
  if (connections_.size() >= (path_.empty() ? kMaxTcp : kMaxUnix)) return false;
  return !path_.empty() || static_cast<size_t>(std::ranges::count(
                               connections_, source, &Connection::source)) < kMaxOneAddress;
}

void Listener::accept_one(const Accepted& accepted) {
  sockaddr_in address{};
  socklen_t bytes = sizeof(address);
  Fd fd(::accept4(fd_.get(), path_.empty() ? reinterpret_cast<sockaddr*>(&address) : nullptr,
                  path_.empty() ? &bytes : nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  Fd copy(fd ? ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0) : -1);
  if (!copy) {
    pollfd stop{stop_.get(), POLLIN, 0};
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) ::poll(&stop, 1, kAcceptPauseMs);
    return;
  }
  UnixPeer peer;
  if (path_.empty()) {
    peer = {control::text_of(address), "", true};
    peer.source = peer.text.substr(0, peer.text.rfind(':'));
    control::set_tcp_options(fd.get(), control::kDeadPeerNs);
  } else {
    peer = peer_of(fd.get(), group_);
  }
  if (!peer.allowed) {
    logging::warn("administrator refused", peer.source)("by", peer.text)(
        "text", "neither root, nor the switch's user, nor of admin.group");
  } else if (!has_room(peer.source)) {
    logging::warn("administrator refused", peer.source)("by", peer.text)(
        "text", "there are as many connections of administrators as there may be");
  } else {
    connections_.push_back({std::move(copy), peer.source});
    accepted(fd.release(), peer.text);
  }
}

}  // namespace ina::admin
