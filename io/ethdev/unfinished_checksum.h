// Checksums that the sender of a frame has left to a device.
#pragma once

#include <cstddef>
#include <span>

namespace ina::io {

/// Writes the checksum of a TCP segment or UDP datagram in a frame, also behind tags. Of other
/// frames nothing is changed.
void finish_checksum(std::span<std::byte> frame);

}  // namespace ina::io
