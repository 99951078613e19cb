// The size of a file in memory (memfd_create).
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace ina {

/// Gives a new memory file its size. Where the limit of a file's size does not allow that, it is an
/// error (EFBIG), and not a signal that ends the process.
inline bool set_size(int fd, size_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    errno = EFBIG;
    return false;
  }
  return ::ftruncate(fd, static_cast<off_t>(bytes)) == 0;
}

}  // namespace ina
