#include "io/shm/region.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>

#include "common/memory_file.h"
#include "common/sealed_memory.h"
#include "common/system_text.h"

namespace ina::io::shm {

namespace {

tl::unexpected<Error> system_error(const std::string& what) {
  return fail(INA_ERR_NO_MEMORY, what + ": " + system_text(errno));
}

/// Opens the same file by another description, which has a mode of its own.
Fd open_again(int fd, int flags) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return Fd(::open(path.c_str(), flags | O_CLOEXEC));
}

/// Maps `bytes` of a file for writing and makes all pages.
Result<Mapping> map_writable(int fd, size_t bytes, const std::string& name,
                             const std::function<void()>& between) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED)
    return system_error("cannot map " + std::to_string(bytes) + " bytes of " + name);
  Mapping map(static_cast<std::byte*>(address), bytes);
  // A forked child must not keep writing into rings that its parent uses.
  ::madvise(address, bytes, MADV_DONTFORK);
  const auto go_on = [&] {
    between();
    return true;
  };
  if (!populate(map.data(), bytes, true, go_on))
    return system_error("no memory for " + std::to_string(bytes) + " bytes of " + name);
  return map;
}

}  // namespace

Result<Region> make_region(const char* name, size_t bytes, const std::function<void()>& between) {
  const Fd file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return system_error(std::string("cannot create shared memory ") + name);
  if (!set_size(file.get(), bytes))
    return system_error("cannot size shared memory " + std::string(name) + " to " +
                        std::to_string(bytes) + " bytes");
  auto map = map_writable(file.get(), bytes, std::string("shared memory ") + name, between);
  if (!map) return tl::unexpected(map.error());
  if (::fcntl(file.get(), F_ADD_SEALS, kRegionSeals | F_SEAL_SEAL) != 0)
    return system_error("cannot seal shared memory " + std::string(name) +
                        " (needs Linux 5.1 or later)");
  // Descriptions that memfd_create made are not counted by the file, so that nobody could tell
  // whether a peer keeps one: they get another.
  Region region{open_again(file.get(), O_RDONLY), std::move(*map)};
  if (!region.fd)
    return system_error("cannot open shared memory " + std::string(name) +
                        " for reading (is /proc mounted?)");
  return region;
}

Result<Mapping> map_peer_region(const Fd& fd, size_t bytes, const char* what,
                                const std::function<void()>& between) {
  const std::string name(what);
  uint64_t actual = 0;
  if (const char* problem = problem_of_region(fd.get(), actual))
    return fail(INA_ERR_REFUSED, "the " + name + " " + problem);
  if (actual != bytes || bytes == 0)
    return fail(INA_ERR_REFUSED, "the " + name + " has " + std::to_string(actual) +
                                     " bytes, agreed were " + std::to_string(bytes));
  void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED)
    return system_error("cannot map " + std::to_string(bytes) + " bytes of the " + name);
  Mapping map(static_cast<std::byte*>(address), bytes);
  ::madvise(address, bytes, MADV_DONTFORK);
  if (const char* problem = populate_full(fd.get(), map.data(), bytes, between))
    return fail(problem == kHasHoles ? INA_ERR_REFUSED : INA_ERR_NO_MEMORY,
                "the " + name + " " + problem);
  return map;
}

Result<void> populate_and_seal(int fd, size_t bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return fail(INA_ERR_INVALID, "the descriptor is no memfd");
  // A sealed memfd cannot be written here any more; the process that sealed it has made the pages.
  if ((seals & F_SEAL_FUTURE_WRITE) == 0)
    if (auto map = map_writable(fd, bytes, "the memfd", [] {}); !map)
      return tl::unexpected(map.error());
  if ((seals & kRegionSeals) != kRegionSeals && ::fcntl(fd, F_ADD_SEALS, kRegionSeals) != 0)
    return fail(INA_ERR_INVALID,
                "the descriptor is no memfd that can be sealed (memfd_create with "
                "MFD_ALLOW_SEALING): the switch must be able to rely on it");
  uint64_t actual = 0;
  if (const char* problem = problem_of_region(fd, actual))
    return fail(INA_ERR_INVALID, std::string("the memfd ") + problem);
  return {};
}

Result<Watch> Watch::open(const Fd& region) {
  Fd fd = open_again(region.get(), O_RDWR);
  if (!fd) return system_error("cannot watch shared memory");
  return Watch(std::move(fd));
}

/// A write lease is given only on the one description that there is. Mappings hold theirs.
bool Watch::alone() const {
  if (::fcntl(fd_.get(), F_SETLEASE, F_WRLCK) != 0) return errno != EAGAIN;
  ::fcntl(fd_.get(), F_SETLEASE, F_UNLCK);
  return true;
}

}  // namespace ina::io::shm
