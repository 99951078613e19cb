// Making, sealing, checking and mapping the memory of the shm port.
#pragma once

#include <functional>

#include "common/fd.h"
#include "common/result.h"

namespace ina::io::shm {

/// Memory that its maker writes and peers read.
struct Region {
  Fd fd;  ///< read-only, and the only one that may be handed out: see Watch
  Mapping map;
};

/// Makes an anonymous memory file of `bytes`, maps it read-write and makes every page, then seals
/// it (kRegionSeals). `name` is seen in /proc/PID/maps. After each piece of the work, of a fraction
/// of a millisecond, `between` is called.
Result<Region> make_region(
    const char* name, size_t bytes, const std::function<void()>& between = [] {});

/// Maps a peer's region of exactly `bytes` read-only and makes sure that it cannot fault the reader
/// (problem_of_region(), populate_full()). Page tables are made here, not on the packet path, and
/// `between` is called likewise.
Result<Mapping> map_peer_region(
    const Fd& fd, size_t bytes, const char* what, const std::function<void()>& between = [] {});

/// Makes all pages of a memory file that is its maker's alone, and seals it as peers want it.
Result<void> populate_and_seal(int fd, size_t bytes);

/// Says whether peers still have memory that was handed out.
class Watch {
 public:
  Watch() = default;
  /// Watches a region, by its descriptor. That descriptor must be closed before alone().
  static Result<Watch> open(const Fd& region);
  /// Nobody else has a descriptor or a mapping of the memory, nor is one on its way.
  bool alone() const;
  int fd() const { return fd_.get(); }
  Fd take() { return std::move(fd_); }

 private:
  explicit Watch(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace ina::io::shm
