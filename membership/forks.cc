#include "membership/forks.h"

#include <pthread.h>

namespace ina::membership {

Forks& Forks::instance() {
  static Forks& forks = *new Forks;  // forks may come as the process ends
  static const int once =
      ::pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                       [] { instance().after_fork_in_child(); });
  (void)once;
  return forks;
}

void Forks::add(ForkAware& parent) {
  const std::lock_guard lock(mutex_);
  parents_.push_back(&parent);
}

void Forks::remove(ForkAware& parent) {
  const std::lock_guard lock(mutex_);
  std::erase(parents_, &parent);
}

/// The lock is the parent's, taken before the fork.
void Forks::after_fork_in_child() {
  generation_.fetch_add(1);
  for (ForkAware* const parent : parents_) parent->close_in_child();
  parents_.clear();
  mutex_.unlock();
}

}  // namespace ina::membership
