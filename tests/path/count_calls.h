// Counts calls that the packet path must not make: allocations, locks and system calls, for each
// role of thread, while armed. Linked into an executable, it stands in front of the C library's
// malloc family and pthread locks, for the executable and all its libraries (operator new
// included). System calls are seen by a seccomp filter on one thread, which any user may install.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace ina::path {

enum class Role : uint8_t { kOther, kLane, kClient };

/// The calling thread's role from now on; kOther is not counted.
void set_role(Role role);

struct Counts {
  uint64_t allocations = 0;   ///< and calls that give memory back
  uint64_t locks = 0;         ///< mutexes, rwlocks, condition variables
  uint64_t system_calls = 0;  ///< other than those that read a clock or wake somebody who sleeps
  uint64_t wake_ups = 0;      ///< system calls to that end
  long last_system_call = -1;
};

/// From here on, or until here, calls of threads with a role are counted.
void arm();
void disarm();
/// Since arm(), over all threads of a role.
Counts counts_of(Role role);
/// Where the first allocation of a role came from, or lock of a lane, to standard error; nothing if
/// none.
void print_first_call(Role role);

/// Has each system call of a running thread of this process counted, from its return until the
/// thread's end. They are carried out as always, only more slowly. False, with errno, if the kernel
/// does not let it.
bool trap_system_calls(pid_t thread);

}  // namespace ina::path
