#include "switchd/admin_sockets.h"

#include <fmt/format.h>
#include <grp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "control/tls_server.h"

namespace ina::switchd {

namespace {

/// The groups of the peer of a unix socket, beside its first one.
std::vector<gid_t> groups_of_peer(int fd) {
  std::vector<gid_t> groups(64);
  for (;;) {
    auto bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    const bool known = ::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) == 0;
    if (!known && errno != ERANGE) return {};
    groups.resize(bytes / sizeof(gid_t));
    if (known) return groups;
  }
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
    return fail(INA_ERR_INVALID, "admin.group: this machine has no group '" + name + "'");
  return found->gr_gid;
}

Result<void> AdminSockets::open() {
  if (!config_.listen.empty())
    if (auto opened = open_remote(); !opened) return opened;
  return config_.socket.empty() ? Result<void>() : open_local();
}

Result<void> AdminSockets::open_local() {
  if (!config_.group.empty()) {
    const auto group = group_of(config_.group);
    if (!group) return tl::unexpected(group.error());
    group_ = *group;
  }
  auto listener = control::Listener::open(config_.socket, group_ ? 0660 : 0600, "admin.socket");
  if (!listener) return tl::unexpected(listener.error());
  local_.emplace(std::move(*listener));
  local_->set_doorman(doorman_);
  if (group_ && ::chown(config_.socket.c_str(), static_cast<uid_t>(-1), *group_) != 0)
    return fail(INA_ERR_INVALID, fmt::format("cannot give {} to group {} (admin.group): {}",
                                             config_.socket, *group_, std::strerror(errno)));
  return {};
}

Result<void> AdminSockets::open_remote() {
  if (config_.tls.certificate.empty() || config_.tls.key.empty() || config_.tls.ca.empty())
    return fail(INA_ERR_INVALID,
                "admin.listen needs admin.certificate, admin.key and admin.client_ca: over TCP "
                "both ends show a certificate");
  auto tls = control::load_tls_acceptor(config_.tls, true, control::kAdminTlsNames);
  if (!tls) return tl::unexpected(tls.error());
  auto listener = control::Listener::open_tcp(config_.listen, control::kDeadPeerNs, "admin.listen");
  if (!listener) return tl::unexpected(listener.error());
  remote_.emplace(std::move(*listener));
  remote_->set_tls(std::move(*tls));
  tcp_port_ = remote_->port();
  return {};
}

void AdminSockets::close() {
  local_.reset();
  remote_.reset();
}

std::vector<int> AdminSockets::listening() const {
  std::vector<int> fds;
  for (const auto* listener : {&local_, &remote_})
    if (*listener) fds.push_back((*listener)->fd());
  return fds;
}

const control::Listener* AdminSockets::find(int fd) const {
  for (const auto* listener : {&local_, &remote_})
    if (*listener && (*listener)->fd() == fd) return &**listener;
  return nullptr;
}

bool AdminSockets::may_come_in(const control::Connection& connection) const {
  const control::PeerCredentials peer = connection.peer();
  if (peer.remote || peer.is_trusted()) return true;
  return group_ &&
         (peer.gid == *group_ || std::ranges::count(groups_of_peer(connection.fd()), *group_) != 0);
}

bool AdminSockets::has_room(const control::PeerCredentials& peer, const Clients& clients) const {
  uint32_t alike = 0;
  uint32_t of_address = 0;
  for (const auto& [fd, other] : clients) {
    if (!other->administers() || other->peer.remote != peer.remote) continue;
    ++alike;
    of_address += other->peer.ip == peer.ip;
  }
  return peer.remote ? alike < kMostRemote && of_address < kMostOneAddress : alike < kMostLocal;
}

}  // namespace ina::switchd
