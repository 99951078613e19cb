#include "plugins/python/binding/results.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include <ina/ina.hpp>

#include "plugins/python/binding/shared_pages.h"

namespace ina::python {

namespace {

/// Another mapping of the pages at `memory`. MAP_FAILED with EINVAL: they are private memory.
void* map_again(const std::byte* memory, size_t bytes) {
  return ::mremap(const_cast<std::byte*>(memory), 0, bytes, MREMAP_MAYMOVE);
}

void* map_private(size_t bytes) {
  return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/// As numbers: pointers into different memory have no order.
bool lies_in(const void* pointer, const std::byte* memory, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(memory) < bytes;
}

}  // namespace

// ---- Result

std::shared_ptr<Result> Result::make(std::byte* memory, size_t bytes,
                                     std::function<void(void*)> give_back) {
  bytes = whole_pages(bytes);
  void* mapped = map_again(memory, bytes);
  const bool ordinary = mapped == MAP_FAILED && errno == EINVAL;
  if (ordinary) mapped = map_private(bytes);  // results are copied, so any memory will do
  const int error = errno;
  if (ordinary || mapped == MAP_FAILED) give_back(memory);
  if (mapped == MAP_FAILED)
    throw Exception(INA_ERR_NO_MEMORY, "cannot map a result buffer of " + std::to_string(bytes) +
                                           " bytes: " + std::strerror(error));
  // libina hides its mapping from forked children, which may have arrays that show this one.
  ::madvise(mapped, bytes, MADV_DOFORK);
  return std::shared_ptr<Result>(new Result(
      static_cast<std::byte*>(mapped), ordinary ? nullptr : memory, bytes, std::move(give_back)));
}

Result::~Result() {
  ::munmap(seen_, bytes_);  // first: the switch looks whether anybody still has the pages
  if (memory_) give_back_(memory_);
}

std::byte* Result::target(std::byte* seen) const {
  const std::lock_guard lock(mutex_);
  return same_pages_ && !kept_ ? memory_ + (seen - seen_) : seen;
}

bool Result::deliver(const std::byte* target, size_t bytes) {
  if (bytes == 0 || lies_in(target, seen_, bytes_)) return true;
  const std::lock_guard lock(mutex_);
  if (same_pages_) {
    void* const probe = map_again(memory_, whole_pages(1));
    if (probe != MAP_FAILED) {
      ::munmap(probe, whole_pages(1));
      return true;
    }
    // The switch has started again, and libina copies results to private memory, which it has put
    // in the buffer's place.
    if (errno != EINVAL || !make_ordinary()) return false;
  }
  std::memcpy(seen_ + (target - memory_), target, bytes);
  return true;
}

void Result::keep() {
  const std::lock_guard lock(mutex_);
  kept_ = true;
  if (same_pages_) make_ordinary();  // otherwise they stay the switch's pages
}

/// Under the lock. The contents stay at their addresses.
bool Result::make_ordinary() {
  void* const copy = map_private(bytes_);
  if (copy == MAP_FAILED) return false;
  std::memcpy(copy, seen_, bytes_);
  if (::mremap(copy, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, seen_) == MAP_FAILED) {
    ::munmap(copy, bytes_);
    return false;
  }
  same_pages_ = false;
  return true;
}

// ---- Results

void Results::add(const std::shared_ptr<Result>& result) {
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const auto& other) { return other.expired(); });
  all_.push_back(result);
}

void Results::add_group(const std::shared_ptr<Results>& group) {
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [](const auto& other) { return other.expired(); });
  groups_.push_back(group);
}

std::shared_ptr<Result> Results::find(const void* memory) const {
  const std::lock_guard lock(mutex_);
  for (const auto& one : all_)
    if (auto result = one.lock(); result && lies_in(memory, result->data(), result->bytes()))
      return result;
  return nullptr;
}

std::vector<std::shared_ptr<Result>> Results::keep_all() {
  std::vector<std::shared_ptr<Result>> kept;
  const std::lock_guard lock(mutex_);
  for (const auto& one : all_)
    if (auto result = one.lock()) kept.push_back(std::move(result));
  for (const auto& result : kept) result->keep();
  for (const auto& one : groups_)
    if (const auto group = one.lock())
      std::ranges::move(group->keep_all(), std::back_inserter(kept));
  return kept;
}

}  // namespace ina::python
