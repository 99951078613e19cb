// A check whether memory can be written.
#pragma once

#include <cstddef>

namespace ina::plugin {

/// False if a write to the first or to the last byte would end the process, as in a file that is
/// mapped for reading. True where the system cannot tell.
bool is_writable(const void* memory, size_t bytes);

}  // namespace ina::plugin
