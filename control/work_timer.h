// How long one thread worked for somebody.
#pragma once

#include <sys/resource.h>

#include <ctime>

#include "common/clock.h"
#include "wire/types.h"

namespace ina::control {

/// Processor time of the calling thread.
inline Nanos thread_cpu_ns() {
  timespec spent{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return Nanos{spent.tv_sec} * 1'000'000'000 + spent.tv_nsec;
}

/// The time since its beginning, with time in which the thread was blocked, because that is time of
/// its work, too. Where other threads took the core in between it is processor time: on a busy
/// machine nobody is charged for the work of others.
class WorkTimer {
 public:
  Nanos spent_ns() const {
    return preemptions() == preemptions_ ? now_ns() - began_ : thread_cpu_ns() - cpu_;
  }
  Nanos began_ns() const { return began_; }

 private:
  static long preemptions() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
  }
  long preemptions_ = preemptions();
  Nanos cpu_ = thread_cpu_ns();
  Nanos began_ = now_ns();
};

}  // namespace ina::control
