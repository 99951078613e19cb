// Conditions that a peer's memory file must meet before it may be mapped and read. The code makes
// nothing but system calls, so that a freshly forked process may use it, too.
#pragma once

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

// Linux 5.1; older headers lack it.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
// Linux 5.14.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace ina {

/// The seals that a memory file must have before a reader relies on it: its size cannot change, and
/// no page can be taken out of it. Mappings that exist stay writable.
inline constexpr int kRegionSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;

inline constexpr const char* kHasHoles = "has holes: write to all of it before it is sealed";

/// What a memory file occupies, blocks beyond its end included; 0: cannot be examined.
inline uint64_t occupied_bytes(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? static_cast<uint64_t>(status.st_blocks) * 512 : 0;
}

/// The error in a peer's memory file, as the end of "the ... region "; nullptr: none was seen, and
/// `bytes` is its size then. Takes the same time for every size: to find each hole is left to
/// populate_full(). Of a file that is no memory file only the seals are asked for: that never
/// waits, on any file system.
inline const char* problem_of_region(int fd, uint64_t& bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return "is no memory file (memfd_create)";
  struct statfs fs {};
  struct stat status {};
  if (::fstatfs(fd, &fs) != 0 || ::fstat(fd, &status) != 0) return "cannot be examined";
  if (fs.f_type == HUGETLBFS_MAGIC)
    return "is a hugetlb file, of which a hole would fault the reader: use an ordinary memfd";
  if ((seals & kRegionSeals) != kRegionSeals)
    return "is not sealed with F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_FUTURE_WRITE";
  bytes = static_cast<uint64_t>(status.st_size);
  return occupied_bytes(fd) < bytes ? kHasHoles : nullptr;
}

/// Makes the page tables of a mapping, piece by piece so that other threads get at the address
/// space between. After each piece, of a fraction of a millisecond, `go_on` is asked whether to
/// continue. `write`: makes pages where there are none, too. False: `errno` says why, or `go_on`
/// said no.
template <class GoOn>
bool populate(std::byte* data, size_t bytes, bool write, const GoOn& go_on) {
  constexpr size_t kPieceBytes = size_t{512} << 10;
  constexpr size_t kPageBytes = 4096;
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const size_t piece = bytes - at < kPieceBytes ? bytes - at : kPieceBytes;
    int done = 0;
    do {
      done = ::madvise(data + at, piece, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
    } while (done != 0 && (errno == EINTR || errno == EAGAIN));
    if (done != 0 && errno != EINVAL) return false;
    // An older kernel: by hand. An atomic or changes nothing, even if somebody writes meanwhile.
    for (size_t page = at; done != 0 && page < at + piece; page += kPageBytes) {
      auto* byte = reinterpret_cast<unsigned char*>(data + page);
      if (write)
        __atomic_fetch_or(byte, 0, __ATOMIC_RELAXED);
      else
        (void)__atomic_load_n(byte, __ATOMIC_RELAXED);
    }
    if (!go_on()) return false;
  }
  return true;
}

inline bool populate(std::byte* data, size_t bytes, bool write) {
  return populate(data, bytes, write, [] { return true; });
}

/// Makes the page tables of the mapping of a peer's memory file, which has the seals. nullptr: no
/// page can fault the reader from now on; else the problem, as above. A hole is filled by the
/// reader's own fault, on its account: the file grows. So that is the end after one piece. (To look
/// for holes with SEEK_HOLE takes milliseconds for a large file, in which a kernel without
/// preemption gives the core to nobody.)
template <class Between>
const char* populate_full(int fd, std::byte* data, size_t bytes, const Between& between) {
  const uint64_t occupied = occupied_bytes(fd);
  bool holes = false;
  const bool done = populate(data, bytes, false, [&] {
    holes = occupied_bytes(fd) > occupied;
    if (!holes) between();
    return !holes;
  });
  if (holes) return kHasHoles;
  return done ? nullptr : "cannot be mapped whole: there is no room for its page tables";
}

/// Gives a mapping back piece by piece, from its end. Between two pieces, each of which takes a
/// fraction of a millisecond, `between` is called.
template <class Between>
void unmap_in_pieces(std::byte* data, size_t bytes, Between between) {
  constexpr size_t kPieceBytes = size_t{2} << 20;
  while (bytes != 0) {
    const size_t piece = bytes % kPieceBytes != 0 ? bytes % kPieceBytes : kPieceBytes;
    bytes -= piece;
    ::munmap(data + bytes, piece);
    if (bytes != 0) between();
  }
}

}  // namespace ina
