// A thread that serves jobs of one owner in turn, and sleeps until one of them has something. One
// thread for many jobs, so that an owner with many jobs has no more threads that want a core, and
// the packet loop wakes one thread and not many.
#pragma once

#include <linux/futex.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <semaphore>
#include <thread>
#include <vector>

#include "common/idle.h"
#include "programs/psd/fair_mutex.h"
#include "programs/psd/job_server.h"

namespace ina::psd {

class ServingLoop {
 public:
  /// One thread can wait for so many doorbells, and for its own.
  static constexpr size_t kMostJobs = FUTEX_WAITV_MAX - 1;

  /// The thread holds `core` while it works. Throws std::system_error if there is no thread.
  ServingLoop(IdleMode mode, std::shared_ptr<FairMutex> core);
  ~ServingLoop();

  /// A job that must stay until it is removed, or the loop destroyed. By one thread.
  void add(JobServer& job);
  void remove(JobServer& job);
  /// By the same thread.
  size_t jobs() const { return jobs_.size(); }
  bool is_full() const;
  bool serves(const JobServer& job) const;
  const FairMutex* core() const { return core_.get(); }

 private:
  struct Served {
    JobServer* job;
    /// Set: nothing has come while it is unchanged.
    std::optional<client::ShmTransport::Doorbell> doorbell{};
  };

  void run();
  bool work();
  std::unique_lock<FairMutex> interrupt();
  static bool serve(Served& served);
  void sleep(Nanos longest_ns);
  size_t prepare_sleep(Nanos& longest_ns);
  void call();
  JobServer* alone() const;

  const IdleMode mode_;
  const std::shared_ptr<FairMutex> core_;
  std::vector<Served> jobs_;  ///< changed while core_ is held
  size_t next_ = 0;           ///< of jobs_, the one whose turn it is
  std::array<struct futex_waitv, FUTEX_WAITV_MAX> waits_{};
  std::atomic<uint32_t> calls_{0};   ///< the jobs have changed, or the loop is to end
  std::atomic<bool> wanted_{false};  ///< the jobs are to change
  std::atomic<bool> stopping_{false};
  std::binary_semaphore ended_{0};
  std::thread thread_;
};

}  // namespace ina::psd
