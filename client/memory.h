// A worker's own memory that the switch reads in place. See docs/protocol.md, "Registered memory
// and result buffers".
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/fd.h"
#include "common/result.h"

namespace ina::client {

// As numbers: pointers into different memory have no order.
inline bool contains(const std::byte* data, size_t bytes, const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(data) < bytes;
}
inline bool overlaps(const std::byte* data, size_t bytes, const std::byte* other,
                     size_t other_bytes) {
  return other != nullptr && other_bytes != 0 &&
         (contains(data, bytes, other) || contains(other, other_bytes, data));
}

/// The worker's own memory, which the switch may read.
struct RegisteredMemory {
  uint32_t number = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
  Fd file;             ///< kept, to register it anew with another switch
  Mapping mapping;     ///< of ours; empty if the caller has mapped it
  bool known = false;  ///< to the switch
};

/// INA_ERR_INVALID: no memory has this size.
Result<void> check_size(size_t bytes);

/// New memory of that size, rounded up to pages, which may be sealed and sent.
Result<RegisteredMemory> make_memory(size_t bytes);
/// The caller's own: `memfd` has `bytes` bytes, which it has mapped at `data`.
Result<RegisteredMemory> take_memory(int memfd, void* data, size_t bytes);
/// Ordinary zeroed memory.
Result<Mapping> map_private(size_t bytes);

}  // namespace ina::client
