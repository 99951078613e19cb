// The events by which others end the conductor's sleep: signal handlers, other threads, lanes.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>

#include "common/event_fd.h"
#include "common/fd.h"

namespace ina::switchd {

/// An eventfd that stays rung until it is drained.
class ConductorEvent {
 public:
  int fd() const { return event_.get(); }
  /// From any thread or signal handler.
  void ring() { ring_event(event_.get()); }
  void drain() { drain_event(event_.get()); }
  bool is_rung() const {
    pollfd polled{event_.get(), POLLIN, 0};
    return ::poll(&polled, 1, 0) > 0;
  }

 private:
  Fd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

struct ConductorEvents {
  ConductorEvent stop;     ///< never drained: a switch that is to stop does not start again
  ConductorEvent reload;   ///< the configuration is to be read again
  ConductorEvent lanes;    ///< one has something to tell
  ConductorEvent uplinks;  ///< the switch above has said something, or is gone
};

}  // namespace ina::switchd
