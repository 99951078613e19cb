#include "io/shm/region.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>

// Linux 5.1; older headers lack it.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace ina::io::shm {

namespace {

tl::unexpected<Error> system_error(const std::string& what) {
  return fail(INA_ERR_NO_MEMORY, what + ": " + std::strerror(errno));
}

}  // namespace

Result<Region> make_region(const char* name, size_t bytes) {
  Region region;
  region.fd = Fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!region.fd) return system_error(std::string("cannot create shared memory ") + name);
  if (::ftruncate(region.fd.get(), static_cast<off_t>(bytes)) != 0)
    return system_error("cannot size shared memory " + std::string(name) + " to " +
                        std::to_string(bytes) + " bytes");
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, region.fd.get(), 0);
  if (address == MAP_FAILED)
    return system_error("cannot map " + std::to_string(bytes) + " bytes of shared memory " + name);
  region.map = Mapping(static_cast<std::byte*>(address), bytes);
  // A forked child must not keep writing into rings that its parent uses.
  ::madvise(address, bytes, MADV_DONTFORK);
  if (::fcntl(region.fd.get(), F_ADD_SEALS,
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
    return system_error("cannot seal shared memory " + std::string(name) +
                        " (needs Linux 5.1 or later)");
  return region;
}

Result<Mapping> map_peer_region(const Fd& fd, size_t bytes, const char* what) {
  const std::string name(what);
  struct statfs fs {};
  if (::fstatfs(fd.get(), &fs) != 0) return system_error("cannot examine the " + name);
  if (fs.f_type == HUGETLBFS_MAGIC)
    return fail(INA_ERR_REFUSED, "the " + name +
                                     " is a hugetlb file: refused, because a hole in it would "
                                     "fault the reader; use an ordinary memfd");
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW))
    return fail(INA_ERR_REFUSED,
                "the " + name + " is not a memfd sealed with F_SEAL_SHRINK and F_SEAL_GROW");
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return system_error("cannot examine the " + name);
  if (static_cast<size_t>(status.st_size) != bytes)
    return fail(INA_ERR_REFUSED, "the " + name + " has " + std::to_string(status.st_size) +
                                     " bytes, agreed were " + std::to_string(bytes));
  void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (address == MAP_FAILED)
    return system_error("cannot map " + std::to_string(bytes) + " bytes of the " + name);
  ::madvise(address, bytes, MADV_DONTFORK);
  return Mapping(static_cast<std::byte*>(address), bytes);
}

}  // namespace ina::io::shm
