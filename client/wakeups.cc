#include "client/wakeups.h"

#include <sys/eventfd.h>

#include <cerrno>

#include "common/system_text.h"

namespace ina::client {

Wakeups::Wakeups()
    : kick_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      hurry_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Result<void> Wakeups::check() const {
  if (kick_event_ && hurry_event_) return {};
  return tl::unexpected(system_error("cannot create an eventfd", EMFILE));
}

void Wakeups::kick() {
  if (kicked_.exchange(true)) return;
  ring_event(kick_event_.get());
  const std::lock_guard lock(asleep_mutex_);
  if (asleep_in_) asleep_in_->wake();
}

void Wakeups::kick_at_once() {
  kick();
  if (!left_to_callers_.load()) return;
  ring_event(hurry_event_.get());
}

void Wakeups::drain() {
  drain_event(kick_event_.get());
  kicked_ = false;
}

void Wakeups::sleeps_in(Link* link) {
  const std::lock_guard lock(asleep_mutex_);
  asleep_in_ = link;
}

void Wakeups::close_in_child() {
  kick_event_.reset();
  hurry_event_.reset();
}

}  // namespace ina::client
