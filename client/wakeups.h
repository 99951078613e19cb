// How other threads wake a session's background thread, which sleeps in poll(), or in the transport
// of a link that it drives.
#pragma once

#include <poll.h>

#include <atomic>
#include <mutex>

#include "client/link.h"
#include "common/event_fd.h"
#include "common/fd.h"
#include "common/result.h"

namespace ina::client {

/// From any thread, unless it says otherwise.
class Wakeups {
 public:
  Wakeups();

  /// Fails if there were no descriptors for it.
  Result<void> check() const;
  /// Has the thread look after operations under way.
  void kick();
  /// kick(), for operations that no caller waits for meanwhile.
  void kick_at_once();

  // On the background thread.
  /// Can be read after kick(), until drain().
  int fd() const { return kick_event_.get(); }
  void drain();
  /// The link in whose transport it sleeps, while it does; nullptr: none.
  void sleeps_in(Link* link);
  /// Leaves fresh operations to callers who are about to wait for them: sleeps for `timeout_ms`, or
  /// until `control` is ready, or kick_at_once() was called. Not at all if `unattended()`: there
  /// are operations that no thread waits for.
  template <class Unattended>
  void leave_to_callers(const pollfd& control, int timeout_ms, Unattended unattended);

  /// In a forked child.
  void close_in_child();

 private:
  Fd kick_event_;
  std::atomic<bool> kicked_{false};
  Fd hurry_event_;  ///< ends leave_to_callers()
  std::atomic<bool> left_to_callers_{false};
  std::mutex asleep_mutex_;    ///< taken last
  Link* asleep_in_ = nullptr;  ///< under asleep_mutex_
};

template <class Unattended>
void Wakeups::leave_to_callers(const pollfd& control, int timeout_ms, Unattended unattended) {
  left_to_callers_ = true;
  pollfd fds[2] = {control, {hurry_event_.get(), POLLIN, 0}};
  if (!unattended()) ::poll(fds, 2, timeout_ms);
  left_to_callers_ = false;
  if (fds[1].revents != 0) drain_event(hurry_event_.get());
}

}  // namespace ina::client
