// Whom a client takes for its switch. Whoever serves a socket gets all gradients, and hands over
// descriptors of memory; a path in a folder like /tmp is anybody's to serve.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "common/result.h"
#include "control/tls.h"

namespace ina::control {

struct Trust {
  TlsClient tls = {};  ///< of a switch over TLS
  /// The user of a switch at a unix socket, beside those that is_trusted_owner() names.
  std::optional<uid_t> user = std::nullopt;
};

/// True of root, this process's own user, `trust.user`, and, for a socket in /run/NAME, the owner
/// of that folder: only root makes folders in /run, such as those of system services.
bool is_trusted_owner(uid_t owner, const std::string& socket, const Trust& trust);

/// INA_ERR_REFUSED, with a sentence that names socket, owner and remedy.
tl::unexpected<Error> not_trusted(uid_t owner, const std::string& socket);

/// Checks the process that listens at `path`, to which the unix socket `fd` is connected:
/// INA_ERR_REFUSED if it is not of a trusted user. Before this nothing may be sent.
Result<void> check_server(int fd, const std::string& path, const Trust& trust);

/// Checks the owner of a socket's file, for a socket that must not be connected to for this: in a
/// folder like /tmp nobody else can put another in its place. No file: nothing to refuse yet.
Result<void> check_socket_file(const std::string& path, const Trust& trust);

/// The user that INA_SWITCH_USER names, by name or number; nothing if it is not set.
Result<std::optional<uid_t>> own_switch_user(
    const std::function<const char*(const char*)>& environment);

}  // namespace ina::control
