#include "bench/perf/process_cpu.h"

#include <time.h>

namespace ina::perf {

std::optional<int64_t> process_cpu_ns(pid_t pid) {
  // Threads that have ended are included; /proc/PID/stat would count in hundredths of a second.
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0)
    return std::nullopt;
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

}  // namespace ina::perf
