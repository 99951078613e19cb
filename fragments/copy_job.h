// Copies that the protocol asks for; whoever drives it makes them.
#pragma once

#include <cstddef>

namespace ina::client {

/// Bytes to move from a received payload into a user's buffer.
struct CopyJob {
  std::byte* to;
  const std::byte* from;
  size_t bytes;
  /// Nobody on this core reads `to` soon: the caches are better kept for something else.
  bool stream = false;
};

}  // namespace ina::client
