#include "control/trust.h"

#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace ina::control {

namespace {

constexpr const char* kServiceFolders = "/run";
constexpr size_t kPasswdBytes = 1 << 16;

bool only_root_writes(const struct stat& folder) {
  return S_ISDIR(folder.st_mode) && folder.st_uid == 0 &&
         (folder.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/// The owner of the folder /run/NAME in which a socket lies; nothing of other sockets.
std::optional<uid_t> service_of(const std::string& socket) {
  const std::string given = socket.substr(0, socket.rfind('/') + 1);
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(given.c_str(), nullptr),
                                                         &std::free);
  const std::string_view folder = real ? real.get() : "";
  const size_t slash = folder.rfind('/');
  if (slash == std::string_view::npos || folder.substr(0, slash) != kServiceFolders)
    return std::nullopt;
  struct stat above {
  }, own{};
  if (::stat(kServiceFolders, &above) != 0 || !only_root_writes(above)) return std::nullopt;
  if (::stat(real.get(), &own) != 0) return std::nullopt;
  return own.st_uid;
}

std::string user_text(uid_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> space(kPasswdBytes);
  const std::string number = std::to_string(uid);
  if (::getpwuid_r(uid, &entry, space.data(), space.size(), &found) != 0 || !found)
    return "uid " + number;
  return std::string(found->pw_name) + " (uid " + number + ")";
}

}  // namespace

bool is_trusted_owner(uid_t owner, const std::string& socket, const Trust& trust) {
  return owner == 0 || owner == ::geteuid() || owner == trust.user || owner == service_of(socket);
}

tl::unexpected<Error> not_trusted(uid_t owner, const std::string& socket) {
  return fail(INA_ERR_REFUSED,
              "the socket " + socket + " is served by user " + user_text(owner) +
                  ", who is neither root nor this user (uid " + std::to_string(::geteuid()) +
                  "), so that it may be a false switch; nothing was sent. If it is yours, set "
                  "INA_SWITCH_USER=" +
                  std::to_string(owner));
}

Result<void> check_server(int fd, const std::string& path, const Trust& trust) {
  ucred server{};
  socklen_t length = sizeof(server);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &length) != 0)
    server.uid = static_cast<uid_t>(-1);  // nobody's
  if (is_trusted_owner(server.uid, path, trust)) return {};
  return not_trusted(server.uid, path);
}

Result<void> check_socket_file(const std::string& path, const Trust& trust) {
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0 || is_trusted_owner(file.st_uid, path, trust)) return {};
  return not_trusted(file.st_uid, path);
}

Result<std::optional<uid_t>> own_switch_user(
    const std::function<const char*(const char*)>& environment) {
  const char* const value = environment("INA_SWITCH_USER");
  if (!value || !*value) return std::optional<uid_t>();
  const std::string name = value;
  uid_t uid = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, uid);
  if (error == std::errc() && stop == end) return std::optional(uid);
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> space(kPasswdBytes);
  if (::getpwnam_r(value, &entry, space.data(), space.size(), &found) != 0 || !found)
    return fail(INA_ERR_INVALID, "INA_SWITCH_USER='" + name +
                                     "' is neither a user of this host nor a number of one");
  return std::optional(found->pw_uid);
}

}  // namespace ina::control
