// The CPUs that this process may use.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <thread>
#include <vector>

namespace ina {

namespace detail {

/// The CPUs of the calling thread.
inline std::vector<uint32_t> cpus_of_thread() {
  std::vector<uint32_t> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

}  // namespace detail

/// Where the kernel places threads that are bound to no CPU, ascending. CPUs that are isolated
/// (isolcpus=) are not among them.
inline std::vector<uint32_t> cpus_of_process() {
  return detail::cpus_of_thread();
}

/// The CPUs of `wanted` (ascending) to which threads of this process can be bound: they exist, and
/// its control group allows them.
inline std::vector<uint32_t> bindable_cpus(const std::vector<uint32_t>& wanted) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const uint32_t cpu : wanted)
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  std::vector<uint32_t> bound;
  // The kernel cuts a set down to the CPUs that it allows; a thread of its own tries.
  std::thread([&] {
    if (::sched_setaffinity(0, sizeof(set), &set) == 0) bound = detail::cpus_of_thread();
  }).join();
  return bound;
}

}  // namespace ina
