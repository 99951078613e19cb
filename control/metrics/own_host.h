// Checks the host that an HTTP request takes this server for. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ina::metrics {

/// True if a request with this Host header may be answered: an address, localhost, or one of
/// `names`, each with a port or without. A web site can let its own name point to this server, and
/// a browser would then hand the answers to the site's scripts (DNS rebinding). It cannot do that
/// with an address, nor with a name that is not its own.
bool is_own_host(std::string_view host, std::span<const std::string> names);

}  // namespace ina::metrics
