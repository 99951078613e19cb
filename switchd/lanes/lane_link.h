// The link between the conductor and a lane: a ring of commands, a ring of events, an eventfd that
// wakes each of them, and a count of commands that wakes a conductor that waits for one. Conductor
// and lane are one producer and one consumer each.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "common/event_fd.h"
#include "common/fd.h"
#include "common/spsc_ring.h"
#include "switchd/lanes/lane_commands.h"

namespace ina::switchd {

/// Something the conductor must know about: a job whose workers disagree.
struct LaneEvent {
  aggregator::JobIndex job = 0;
  JobId job_id{};
  WorkerSet first_ranks = {};
  WorkerSet other_ranks = {};
  wire::Signature first;
  wire::Signature other;
};

class LaneLink {
 public:
  LaneLink() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  // Conductor.
  void post(const LaneCommand& command) {
    while (!commands_.push(command)) ::usleep(100);
    ring_event(wake_.get());
  }
  /// Commands carried out so far, modulo 2^32.
  uint32_t answered() const { return answered_.load(std::memory_order_acquire); }
  /// Sleeps until there are more. The core is the workers' meanwhile, where they share it.
  void wait_for_answer(uint32_t answered) const {
    answered_.wait(answered, std::memory_order_acquire);
  }
  std::optional<LaneEvent> next_event() { return events_.pop(); }
  void set_conductor_event(int fd) { conductor_event_ = fd; }

  // Lane.
  std::optional<LaneCommand> next_command() { return commands_.pop(); }
  bool has_command() const { return !commands_.empty(); }
  /// A command was carried out. A system call only if the conductor sleeps.
  void report_answer() {
    answered_.fetch_add(1, std::memory_order_release);
    answered_.notify_one();
  }
  /// A job has at most one event, and the ring holds one for each job that fits.
  void report(const LaneEvent& event) {
    if (events_.push(event)) ring_event(conductor_event_);
  }
  /// Has the conductor look which workers are to be called (io::shm::WorkerSession::call_wanted).
  void report_calls() { ring_event(conductor_event_); }
  int wake_fd() const { return wake_.get(); }

 private:
  SpscRing<LaneCommand> commands_{64};
  SpscRing<LaneEvent> events_{8192};
  Fd wake_;
  std::atomic<uint32_t> answered_{0};
  int conductor_event_ = -1;
};

}  // namespace ina::switchd
