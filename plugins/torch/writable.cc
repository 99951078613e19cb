#include "plugins/torch/writable.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace ina::plugin {

namespace {

#ifndef MADV_POPULATE_WRITE
constexpr int MADV_POPULATE_WRITE = 23;  // since Linux 5.14
#endif

/// Has the system prepare the page of `byte` for a write, which changes nothing. Returns 0 or
/// errno.
int prepare_page(const void* byte) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t start = reinterpret_cast<uintptr_t>(byte) / page * page;
  const int before = errno;
  const int result = ::madvise(reinterpret_cast<void*>(start), page, MADV_POPULATE_WRITE);
  const int error = result == 0 ? 0 : errno;
  errno = before;
  return error;
}

/// By the system's list of mappings, which takes longer.
bool is_mapped_for_writing(uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char write = '-';
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*c%c", &begin, &end, &write) != 3)
      continue;
    if (address >= begin && address < end) return write == 'w';
  }
  return true;
}

bool is_writable_byte(const void* byte) {
  static const bool known = [] {
    char own = 0;
    return prepare_page(&own) == 0;
  }();
  if (!known) return true;
  switch (prepare_page(byte)) {
    case EFAULT:  // beyond the end of a file
      return false;
    case EINVAL:  // of a device's memory, too
      return is_mapped_for_writing(reinterpret_cast<uintptr_t>(byte));
    default:
      return true;
  }
}

}  // namespace

bool is_writable(const void* memory, size_t bytes) {
  if (bytes == 0) return true;
  const auto* first = static_cast<const char*>(memory);
  return is_writable_byte(first) && is_writable_byte(first + bytes - 1);
}

}  // namespace ina::plugin
