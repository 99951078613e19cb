// Making, sealing, checking and mapping the memory of the shm port.
#pragma once

#include "common/fd.h"
#include "common/result.h"

namespace ina::io::shm {

struct Region {
  Fd fd;
  Mapping map;
};

/// Makes an anonymous memory file of `bytes`, maps it read-write and touches every page, seals its
/// size, and forbids further writable mappings. `name` is seen in /proc/PID/maps.
Result<Region> make_region(const char* name, size_t bytes);

/// Maps a peer's region read-only after checking that it cannot fault the reader: an ordinary memfd
/// (no hugetlb, whose holes raise SIGBUS), sealed against shrinking and growing, of exactly
/// `bytes`. Pages are populated here, not on the packet path.
Result<Mapping> map_peer_region(const Fd& fd, size_t bytes, const char* what);

}  // namespace ina::io::shm
