// Memory that a write faults in.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <span>

#include "common/fd.h"

namespace ina::test {

/// A copy of bytes that can only be read.
class ReadOnlyMemory {
 public:
  explicit ReadOnlyMemory(std::span<const std::byte> bytes) : size_(bytes.size()) {
    const size_t mapped = size_ + 1;  // of which there is at least one
    void* const at =
        ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mapping_ = Mapping(static_cast<std::byte*>(at), mapped);
    if (size_ != 0) std::memcpy(at, bytes.data(), size_);
    ::mprotect(at, mapped, PROT_READ);
  }
  /// Not const, because it stands for a buffer that a caller takes for writable.
  std::byte* data() const { return mapping_.data(); }
  std::span<std::byte> bytes() const { return {data(), size_}; }

 private:
  size_t size_;
  Mapping mapping_;
};

}  // namespace ina::test
