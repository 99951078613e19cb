#include "admin/listener.h"

#include <grp.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

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
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return {"nobody", false};
  const bool one_of_the_group = group && std::ranges::count(groups_of(fd, peer.gid), *group) != 0;
  return {"uid " + std::to_string(peer.uid) + ", pid " + std::to_string(peer.pid),
          peer.uid == 0 || peer.uid == ::geteuid() || one_of_the_group};
}

Result<UnixListener> UnixListener::open(const std::string& path, std::optional<gid_t> group) {
  auto fd = control::listen_unix(path, group ? 0660 : 0600, SOCK_STREAM, "admin.socket");
  if (!fd) return tl::unexpected(fd.error());
  UnixListener listener(std::move(*fd), path, group, Fd(::eventfd(0, EFD_CLOEXEC)));
  if (group && ::chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0)
    return fail(INA_ERR_INVALID, "cannot give " + path + " to group " + std::to_string(*group) +
                                     " (admin.group): " + std::strerror(errno));
  return listener;
}

UnixListener::~UnixListener() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }
  if (fd_) ::unlink(path_.c_str());
}

void UnixListener::start(Accepted accepted) {
  thread_ = std::thread([this, accepted = std::move(accepted)] { run(accepted); });
}

void UnixListener::run(const Accepted& accepted) const {
  ::pthread_setname_np(::pthread_self(), "ina-admin");
  for (;;) {
    pollfd fds[2] = {{stop_.get(), POLLIN, 0}, {fd_.get(), POLLIN, 0}};
    ::poll(fds, 2, -1);
    if (fds[0].revents != 0) return;
    Fd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) ::poll(fds, 1, kAcceptPauseMs);
      continue;
    }
    const UnixPeer peer = peer_of(fd.get(), group_);
    if (peer.allowed)
      accepted(fd.release(), peer.text);
    else
      spdlog::warn(
          "administrator refused by=\"{}\" text=\"neither root, nor the switch's user, "
          "nor of admin.group\"",
          peer.text);
  }
}

}  // namespace ina::admin
