// The processor time of the jobs of one owner: while others have jobs, only so many of an owner's
// threads work at once, and take turns, so that many jobs of one owner leave the others' their
// cores.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace ina::psd {

/// Of one owner.
class CoreShare {
 public:
  /// Held by a thread while it works. Waits for its turn, behind all that waited before.
  class Turn {
   public:
    explicit Turn(CoreShare& share) : share_(share) { share_.take(); }
    ~Turn() { share_.give(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    CoreShare& share_;
  };

  /// How many turns there may be at once.
  void set_most(uint32_t most);
  /// How many threads wait for one.
  size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return waiters_.size();
  }

 private:
  struct Waiter {
    std::condition_variable granted_event;
    bool granted = false;
  };
  void take();
  void give();
  void grant();

  mutable std::mutex mutex_;
  std::deque<Waiter*> waiters_;
  uint32_t most_ = UINT32_MAX;
  uint32_t taken_ = 0;
};

/// Of all owners. An owner alone has all cores; with others, half of them.
class CoreShares {
 public:
  explicit CoreShares(uint32_t cores) : cores_(cores) {}

  /// To be kept while the owner has a job.
  std::shared_ptr<CoreShare> of(const std::string& owner);
  /// Owners may have gone.
  void look();

 private:
  uint32_t cores_;
  std::map<std::string, std::weak_ptr<CoreShare>> of_;
};

}  // namespace ina::psd
