// The device of a memif: URL, see dpdk_transport.h.
#pragma once

#include <memory>

#include "common/result.h"
#include "io/ethdev/device.h"
#include "transport/url.h"
#include "wire/types.h"

namespace ina::client {

/// Waits at most `timeout_ns` for a switch that listens on the socket. DPDK allows one device for
/// each socket and id: one that is open already must be closed before.
Result<std::unique_ptr<io::Device>> open_memif(const Url& url, uint32_t mtu, Nanos timeout_ns);

}  // namespace ina::client
