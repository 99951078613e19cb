#include "membership/callers.h"

#include <utility>

namespace ina::membership {

void Callers::nap(Nanos timeout_ns) {
  std::unique_lock lock(mutex_);
  asleep_.fetch_add(1);
  changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns));
  asleep_.fetch_sub(1);
}

bool Callers::fail(int status, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_.load() != INA_OK) return false;
    failure_text_ = text;
    failed_.store(status);
  }
  changed_.notify_all();
  return true;
}

std::string Callers::failure_text() const {
  const std::lock_guard lock(mutex_);
  return failure_text_;
}

int Callers::report_failure() {
  const std::lock_guard lock(mutex_);
  last_error_ = failure_text_;
  return failed_.load();
}

tl::unexpected<Error> Callers::failure() {
  const std::lock_guard lock(mutex_);
  last_error_ = failure_text_;
  return ina::fail(static_cast<ina_status>(failed_.load()), failure_text_);
}

int Callers::set_error(int status, std::string text) {
  const std::lock_guard lock(mutex_);
  last_error_ = std::move(text);
  return status;
}

std::string Callers::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

}  // namespace ina::membership
