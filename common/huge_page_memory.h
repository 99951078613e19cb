// Memory of large tables that are read at random: from huge pages where the kernel gives them,
// since a look-up in one of small pages mostly misses the TLB as well as the caches.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <new>

#include "common/huge_pages.h"

namespace ina {

/// For the containers of std::pmr. Less than a huge page comes from the heap as ever.
class HugePageMemory final : public std::pmr::memory_resource {
 private:
  static std::align_val_t alignment_of(size_t bytes, size_t alignment) {
    const size_t least = bytes < kHugePageBytes ? 1 : size_t{kHugePageBytes};
    return std::align_val_t{std::max(alignment, least)};
  }
  void* do_allocate(size_t bytes, size_t alignment) override {
    void* const memory = ::operator new(bytes, alignment_of(bytes, alignment));
    if (bytes >= kHugePageBytes)
      ::madvise(memory, bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
    return memory;
  }
  void do_deallocate(void* memory, size_t bytes, size_t alignment) override {
    ::operator delete(memory, alignment_of(bytes, alignment));
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

inline std::pmr::memory_resource* huge_page_memory() {
  static HugePageMemory memory;
  return &memory;
}

}  // namespace ina
