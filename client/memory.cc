#include "client/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/sealed_memory.h"
#include "common/system_text.h"
#include "io/shm/layout.h"

namespace ina::client {

namespace {

constexpr size_t kHugePageBytes = 2 << 20;

tl::unexpected<Error> no_memory(const std::string& what) {
  return fail(INA_ERR_NO_MEMORY, what + ": " + system_text(errno));
}

}  // namespace

Result<Mapping> map_private(size_t bytes) {
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return no_memory("no memory for " + std::to_string(bytes) + " bytes");
  return Mapping(static_cast<std::byte*>(address), bytes);
}

Result<void> check_size(size_t bytes) {
  constexpr size_t kMostBytes = size_t{1} << 46;
  if (bytes != 0 && bytes <= kMostBytes) return {};
  return fail(INA_ERR_INVALID,
              "bytes is " + std::to_string(bytes) + ", not 1 to " + std::to_string(kMostBytes));
}

Result<RegisteredMemory> make_memory(size_t bytes) {
  if (auto fine = check_size(bytes); !fine) return tl::unexpected(fine.error());
  bytes = io::shm::round_up(bytes, bytes >= kHugePageBytes ? kHugePageBytes : io::shm::kPageBytes);
  RegisteredMemory memory;
  memory.bytes = bytes;
  memory.file = Fd(::memfd_create("ina-alloc", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.file) return no_memory("cannot create shared memory");
  if (!may_have_size(bytes) || ::ftruncate(memory.file.get(), static_cast<off_t>(bytes)) != 0)
    return no_memory("cannot size shared memory to " + std::to_string(bytes) + " bytes");
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.file.get(), 0);
  if (address == MAP_FAILED)
    return no_memory("cannot map " + std::to_string(bytes) + " bytes of shared memory");
  memory.mapping = Mapping(static_cast<std::byte*>(address), bytes);
  // Where the system lets shared memory have huge pages, both sides save most of their TLB misses.
  ::madvise(address, bytes, MADV_HUGEPAGE);
  if (!populate(memory.mapping.data(), bytes, true))
    return no_memory("no memory for " + std::to_string(bytes) + " bytes");
  if (::fcntl(memory.file.get(), F_ADD_SEALS, kRegionSeals) != 0)
    return no_memory("cannot seal shared memory");
  memory.data = memory.mapping.data();
  return memory;
}

Result<RegisteredMemory> take_memory(int memfd, void* data, size_t bytes) {
  RegisteredMemory memory;
  memory.data = static_cast<std::byte*>(data);
  memory.bytes = bytes;
  struct stat status {};
  if (::fstat(memfd, &status) != 0) return fail(INA_ERR_INVALID, "memfd is no open descriptor");
  if (bytes == 0 || static_cast<uint64_t>(status.st_size) != bytes)
    return fail(INA_ERR_INVALID, "bytes is " + std::to_string(bytes) + ", the memfd has " +
                                     std::to_string(status.st_size) +
                                     ": a file is registered as a whole");
  if (!data) return fail(INA_ERR_INVALID, "memory is NULL");
  memory.file = Fd(::fcntl(memfd, F_DUPFD_CLOEXEC, 0));
  if (!memory.file) return no_memory("cannot duplicate the memfd");
  return memory;
}

}  // namespace ina::client
