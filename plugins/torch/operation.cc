#include "plugins/torch/operation.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ina/ina.hpp>

#include "plugins/torch/dispatcher.h"

namespace ina::plugin {

namespace {

constexpr milliseconds kBetweenChecks{100};

}  // namespace

Operation::Operation(OperationPlan plan)
    : plan_(std::move(plan)), deadline_(Clock::now() + plan_.timeout) {}

void Operation::start(std::shared_ptr<Job> job,
                      const std::function<int(ina_context*, ina_request**)>& begin) {
  {
    const std::lock_guard lock(mutex_);
    job_ = job;
  }
  // The library's until it has ended.
  auto self = std::make_unique<std::shared_ptr<Operation>>(shared_from_this());
  job->start(begin, &Operation::ended, self.get());
  [[maybe_unused]] const auto* given = self.release();
}

void Operation::ended(void* user, int status) {
  const std::unique_ptr<std::shared_ptr<Operation>> self(
      static_cast<std::shared_ptr<Operation>*>(user));
  (*self)->finish(status);
}

void Operation::finish(int status) {
  if (status == INA_OK) return end(nullptr);
  std::string text = std::string(plan_.name) + ": ";
  bool given_up = false;
  {
    const std::lock_guard lock(mutex_);
    given_up = given_up_;
  }
  if (given_up)
    text += "the group's timeout of " + std::to_string(plan_.timeout.count()) + " ms has passed" +
            plan_.advice + ": ";
  end(std::make_exception_ptr(Exception(status, text + job_->last_error())));
}

void Operation::end(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (continuations_.empty() && !plan_.deliver && !last_) {
      set_done(std::move(error));
      return;
    }
  }
  Dispatcher::of_process().run([self = shared_from_this(), error] { self->settle(error); });
}

void Operation::settle(std::exception_ptr error) {
  if (!error && plan_.deliver) {
    try {
      plan_.deliver();
    } catch (...) {
      error = std::current_exception();
    }
  }
  if (last_) std::exchange(last_, nullptr)(error);
  std::vector<std::function<void()>> next;
  {
    const std::lock_guard lock(mutex_);
    set_done(std::move(error));
    next.swap(continuations_);
  }
  for (const auto& continuation : next) continuation();
}

/// With the mutex.
void Operation::set_done(std::exception_ptr error) {
  error_ = std::move(error);
  done_ = true;
  plan_.held.clear();
  plan_.deliver = nullptr;
  kept_.reset();
  changed_.notify_all();
}

bool Operation::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

std::exception_ptr Operation::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

bool Operation::wait(std::optional<milliseconds> limit, void (*check)()) {
  const auto end = limit ? Clock::now() + *limit : deadline_;
  std::unique_lock lock(mutex_);
  while (!done_) {
    const auto now = Clock::now();
    if (now >= end && limit) return false;
    if (now >= end) {
      lock.unlock();
      give_up();
      lock.lock();
    }
    const auto next = now + kBetweenChecks;
    changed_.wait_until(lock, now >= end ? next : std::min(end, next), [&] { return done_; });
    if (done_ || !check) continue;
    lock.unlock();
    check();
    lock.lock();
  }
  return true;
}

void Operation::give_up() {
  {
    const std::lock_guard lock(mutex_);
    if (done_ || std::exchange(given_up_, true)) return;
  }
  if (plan_.abandon && plan_.abandon()) return;
  std::shared_ptr<Job> job;
  {
    const std::lock_guard lock(mutex_);
    job = job_;
  }
  if (job) job->give_up();
}

void Operation::when_done(std::function<void()> next) {
  {
    const std::lock_guard lock(mutex_);
    if (!done_) {
      continuations_.push_back(std::move(next));
      return;
    }
  }
  next();
}

}  // namespace ina::plugin
