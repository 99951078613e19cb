// Futexes on memory shared between processes. Waiting works on a read-only mapping, so that a
// waiter needs no write access to the word that wakes it.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <ctime>

#include "wire/types.h"

namespace ina::io::shm {

/// Sleeps while *word == expected, at most `timeout_ns`; may return early.
inline void futex_wait(const std::atomic<uint32_t>* word, uint32_t expected, Nanos timeout_ns) {
  const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  ::syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

/// Wakes one: a doorbell has one owner, and others who wait on it must not cost the waker more.
inline void futex_wake(const std::atomic<uint32_t>* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace ina::io::shm
