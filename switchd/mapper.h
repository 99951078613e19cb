// Work on memory that takes time in proportion to a worker's request: mapping registered memory,
// making result buffers, giving memory back. One thread of the switch does it, so that the
// conductor never waits for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "io/shm/region.h"
#include "wire/types.h"

namespace ina::switchd {

class Mapper {
 public:
  struct Done {
    uint64_t token = 0;
    Result<io::shm::Region> region;  ///< of map(): without descriptor
    Nanos spent = 0;                 ///< of the mapper's own time
  };

  Mapper();
  /// Finishes what it has begun, and gives back what it was given.
  ~Mapper();
  Mapper(const Mapper&) = delete;
  Mapper& operator=(const Mapper&) = delete;

  /// io::shm::map_peer_region(); `what` must stay.
  void map(uint64_t token, Fd file, size_t bytes, const char* what);
  /// io::shm::make_region(); `name` must stay.
  void make(uint64_t token, const char* name, size_t bytes);
  /// Unmaps and closes.
  void discard(Mapping map, Fd file = {});

  /// Readable when there is something for next().
  int fd() const { return event_.get(); }
  std::optional<Done> next();
  /// Mappings that are to go and have not gone yet.
  uint32_t leaving() const { return leaving_.load(std::memory_order_relaxed); }

 private:
  struct Task {
    enum class Kind { kMap, kMake, kDiscard } kind{};
    uint64_t token = 0;
    const char* name = "";
    size_t bytes = 0;
    Fd file;
    Mapping map;
  };
  void post(Task task);
  void run();
  void carry_out(Task& task);

  Fd event_;
  std::mutex mutex_;
  std::condition_variable wanted_;
  std::deque<Task> tasks_;
  std::deque<Done> done_;
  bool stopping_ = false;
  std::atomic<uint32_t> leaving_{0};
  std::thread thread_;
};

}  // namespace ina::switchd
