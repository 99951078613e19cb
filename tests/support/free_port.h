// A port of this machine for a test: other switches and other tests run beside it.
#pragma once

#include <cstdint>

#include "control/socket.h"

namespace ina::test {

/// A TCP port of 127.0.0.1 at which nobody listens.
inline uint16_t free_port() {
  return control::Listener::open_tcp("127.0.0.1:0", 1'000'000'000)->port();
}

}  // namespace ina::test
