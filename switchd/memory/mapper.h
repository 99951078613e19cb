// Work on memory that takes time in proportion to a worker's request: mapping registered memory,
// making result buffers, giving memory back. Two separate threads do this work, so that the
// conductor never waits for it. One maps workers' regions, whose size is the switch's own choice
// (JobRules::geometry()), so that a join never waits for somebody's gigabytes. The other does the
// rest. On both the owners of the work take turns.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "io/shm/region.h"
#include "wire/types.h"

namespace ina::switchd {

class Mapper {
 public:
  struct Done {
    uint64_t token = 0;
    std::string owner;
    Result<io::shm::Region> region;  ///< of mapped memory: without descriptor
    Nanos spent = 0;                 ///< of the mapper's own time
  };

  Mapper();
  /// Finishes what it has begun, and gives back what it was given. Nothing else is begun.
  ~Mapper();
  Mapper(const Mapper&) = delete;
  Mapper& operator=(const Mapper&) = delete;

  /// For a task, or for other uses of a unique number.
  uint64_t new_token() { return ++last_token_; }

  // `owner`: whose turn it is, Job::owner().
  /// io::shm::map_peer_region(), of the memory that comes with `attach`.
  void map_region(const std::string& owner, uint64_t token, Fd file, size_t bytes);
  /// io::shm::map_peer_region(), of the memory that comes with `register`.
  void map_registered(const std::string& owner, uint64_t token, Fd file, size_t bytes);
  /// io::shm::make_region(); `name` must stay.
  void make(const std::string& owner, uint64_t token, const char* name, size_t bytes);
  /// Unmaps and closes, before the owner's other tasks: what is given back makes room for them.
  void discard(const std::string& owner, Mapping map, Fd file = {});
  /// Takes a task back that nobody waits for any more. False: it has begun, or is done.
  bool withdraw(uint64_t token);

  /// Readable when there is something for next().
  int fd() const { return event_.get(); }
  std::optional<Done> next();
  /// Mappings that are to go and have not gone yet.
  uint32_t leaving() const { return leaving_.load(std::memory_order_relaxed); }

 private:
  struct Task {
    enum class Kind { kMap, kMake, kDiscard } kind{};
    std::string owner;
    uint64_t token = 0;
    const char* name = "";
    size_t bytes = 0;
    Fd file;
    Mapping map;
  };
  /// Tasks, and whose turn is next. Only owners with tasks are in it.
  class Turns {
   public:
    bool empty() const { return order_.empty(); }
    void add(Task task);
    Task next();
    std::optional<Task> extract(uint64_t token);

   private:
    std::map<std::string, std::deque<Task>> of_;
    std::deque<std::string> order_;
  };
  struct Queue {
    std::condition_variable wanted;
    Turns tasks;
    std::thread thread;
  };
  void post(Queue& queue, Task task);
  void stop();
  void run(Queue& queue);
  void carry_out(Task& task);

  uint64_t last_token_ = 0;
  Fd event_;
  std::mutex mutex_;  ///< of the queues and the results
  std::deque<Done> done_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint32_t> leaving_{0};
  Queue regions_, rest_;
};

}  // namespace ina::switchd
