// Memory of large tables that are read at random: from huge pages where the kernel gives them,
// since a look-up in one of small pages mostly misses the TLB as well as the caches.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

#include "common/huge_pages.h"

namespace ina {

/// For standard containers. Less than a huge page comes from the heap as ever.
template <class T>
struct HugePageAllocator {
  using value_type = T;

  HugePageAllocator() = default;
  template <class Other>
  HugePageAllocator(const HugePageAllocator<Other>&) {}  // NOLINT: containers convert them

  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    void* const memory = ::operator new(bytes, alignment_of(bytes));
    if (bytes >= kHugePageBytes)
      ::madvise(memory, bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) {
    ::operator delete(memory, alignment_of(count * sizeof(T)));
  }
  bool operator==(const HugePageAllocator&) const = default;

 private:
  static std::align_val_t alignment_of(size_t bytes) {
    return std::align_val_t{bytes < kHugePageBytes ? alignof(T) : size_t{kHugePageBytes}};
  }
};

}  // namespace ina
