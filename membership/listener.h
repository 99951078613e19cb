// Finds out without a connection whether a process serves a unix socket.
#pragma once

#include <string>

#include "common/result.h"
#include "wire/types.h"

namespace ina::membership {

/// Waits up to `most` until somebody listens at `path`, the socket of a memif port.
/// INA_ERR_NO_SWITCH with a sentence if nobody does. With INT64_MAX it is not looked at all: the
/// driver waits itself.
Result<void> await_listener(const std::string& path, Nanos most);

}  // namespace ina::membership
