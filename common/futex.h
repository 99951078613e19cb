// Futexes on memory shared between processes. Waiting works on a read-only mapping, so that a
// waiter needs no write access to the word that wakes it.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <span>

#include "wire/types.h"

namespace ina {

/// Sleeps while *word == expected, at most `timeout_ns`; may return early.
inline void futex_wait(const std::atomic<uint32_t>* word, uint32_t expected, Nanos timeout_ns) {
  const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  ::syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

/// Until one of `waits` differs from its expected value, at most `timeout_ns`; may return early.
/// False: this kernel cannot wait for several.
inline bool futex_wait_any(std::span<struct futex_waitv> waits, Nanos timeout_ns) {
  timespec until{};
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  const Nanos end = until.tv_nsec + timeout_ns;
  until.tv_sec += end / 1'000'000'000;
  until.tv_nsec = end % 1'000'000'000;
  return ::syscall(SYS_futex_waitv, waits.data(), waits.size(), 0, &until, CLOCK_MONOTONIC) >= 0 ||
         (errno != ENOSYS && errno != EPERM);
}
inline struct futex_waitv futex_wait_of(const std::atomic<uint32_t>* word, uint32_t expected) {
  struct futex_waitv wait {};
  wait.val = expected;
  wait.uaddr = reinterpret_cast<uintptr_t>(word);
  wait.flags = FUTEX_32;
  return wait;
}

/// Wakes one: a doorbell has one owner, and others who wait on it must not cost the waker more.
inline void futex_wake(const std::atomic<uint32_t>* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace ina
