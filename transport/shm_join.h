// The switch's answer to a worker that joins over the shm port.
#pragma once

#include <memory>

#include "control/socket.h"
#include "transport/shm_transport.h"

namespace ina::client {

/// The transport that a `joined` describes, whose descriptors it takes over. Throws
/// control::Json::exception if the message lacks something.
Result<std::unique_ptr<ShmTransport>> join_shm(control::Received& joined, BulkCopier& copier);

}  // namespace ina::client
