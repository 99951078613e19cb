// Descriptors of eventfd(2), which are made with EFD_NONBLOCK: one thread rings, another one
// sleeps.
#pragma once

#include <unistd.h>

#include <cstdint>

namespace ina {

/// Wakes the thread that waits for `event`. A full one has been rung already.
inline void ring_event(int event) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event, &one, sizeof(one));
}

/// Makes it quiet again. False: it was.
inline bool drain_event(int event) {
  uint64_t rung;
  return ::read(event, &rung, sizeof(rung)) == sizeof(rung);
}

}  // namespace ina
