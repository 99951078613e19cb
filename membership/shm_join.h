// The switch's answer to a worker that joins over the shm port.
#pragma once

#include <memory>

#include "control/client.h"
#include "transport/shm_transport.h"

namespace ina::membership {

/// The transport that `place` describes, which came in `joined`. It takes over the descriptors that
/// came beside it.
Result<std::unique_ptr<client::ShmTransport>> join_shm(const control::answer::Place& place,
                                                       control::Heard& joined,
                                                       client::BulkCopier& copier);

}  // namespace ina::membership
