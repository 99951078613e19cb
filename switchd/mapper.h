// Work on memory that takes time in proportion to a worker's request: mapping registered memory,
// making result buffers, giving memory back. Two separate threads do this work, so that the
// conductor never waits for it. One takes short tasks, such as a worker's region, so that these
// never wait for another user's gigabytes. The other takes the rest.
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

  /// For a task, or for other uses of a unique number.
  uint64_t new_token() { return ++last_token_; }

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
  struct Queue {
    std::condition_variable wanted;
    std::deque<Task> tasks;
    std::thread thread;
  };
  void post(Task task);
  void stop();
  void run(Queue& queue);
  void carry_out(Task& task);

  uint64_t last_token_ = 0;
  Fd event_;
  std::mutex mutex_;  ///< of the queues and the results
  std::deque<Done> done_;
  bool stopping_ = false;
  std::atomic<uint32_t> leaving_{0};
  Queue small_, large_;
};

}  // namespace ina::switchd
