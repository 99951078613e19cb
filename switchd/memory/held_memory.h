// Memory that the switch has given up and a worker has not. A descriptor or a mapping keeps its
// pages, long after the job has ended. The owner is charged for as long as the memory exists.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/shm/region.h"
#include "switchd/memory/handles.h"
#include "switchd/memory/mapper.h"

namespace ina::switchd {

class HeldMemory {
 public:
  explicit HeldMemory(Mapper& mapper) : mapper_(mapper) {}

  /// `share`: for one descriptor.
  void add(const std::string& owner, uint64_t bytes, io::shm::Region region, Handles::Share share);
  /// Lets go of memory that no process has any more, telling `free` its owner and size. Looks at so
  /// many entries at most, and at others the next time.
  using Free = std::function<void(const std::string& owner, uint64_t bytes)>;
  void look(const Free& free, size_t most);
  /// Looks at the entry added last.
  void look_at_last(const Free& free);

  uint64_t bytes() const { return bytes_; }
  size_t count() const { return entries_.size(); }

 private:
  struct Entry {
    std::string owner;
    uint64_t bytes = 0;
    Fd file;  ///< until it can be watched
    io::shm::Watch watch;
    Handles::Share share;
  };
  static bool free_again(Entry& entry);
  bool look_at(size_t index, const Free& free);

  Mapper& mapper_;
  std::vector<Entry> entries_;
  size_t next_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace ina::switchd
