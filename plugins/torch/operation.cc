#include "plugins/torch/operation.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ina/ina.hpp>

#include "plugins/torch/dispatcher.h"
#include "plugins/torch/interpreter.h"

namespace ina::plugin {

namespace {

constexpr milliseconds kBetweenChecks{100};

/// Nothing ever destroys `things`.
template <class Things>
void leave_alone(Things things) {
  [[maybe_unused]] const auto* left = new Things(std::move(things));
}

}  // namespace

Operation::Operation(OperationPlan plan)
    : plan_(std::move(plan)), deadline_(Clock::now() + std::min(plan_.timeout, kLongest)) {}

void Operation::start(std::shared_ptr<Job> job,
                      const std::function<int(ina_context*, ina_request**)>& begin) {
  {
    const std::lock_guard lock(mutex_);
    job_ = job;
  }
  // The library's until it has ended.
  auto self = std::make_unique<std::shared_ptr<Operation>>(shared_from_this());
  job->start(begin, &Operation::ended, self.get());
  job->began(weak_from_this());
  [[maybe_unused]] const auto* given = self.release();
}

void Operation::ended(void* user, int status) {
  const std::unique_ptr<std::shared_ptr<Operation>> self(
      static_cast<std::shared_ptr<Operation>*>(user));
  (*self)->finish(status);
}

void Operation::finish(int status) {
  if (status == INA_OK) return end(nullptr);
  job_->fail();
  std::string text = std::string(plan_.name) + ": ";
  bool given_up = false;
  {
    const std::lock_guard lock(mutex_);
    given_up = given_up_;
    status_ = status;
  }
  if (given_up)
    text += "the group's timeout of " + std::to_string(plan_.timeout.count()) + " ms has passed" +
            plan_.advice + ": ";
  end(std::make_exception_ptr(Exception(status, text + job_->last_error())));
}

void Operation::end(std::exception_ptr error) {
  if (!plan_.deliver && !last_) return conclude(std::move(error));
  Dispatcher::for_deliveries().run([self = shared_from_this(), error] { self->deliver(error); });
}

void Operation::deliver(std::exception_ptr error) {
  if (!error && plan_.deliver) {
    try {
      plan_.deliver();
    } catch (...) {
      error = std::current_exception();
    }
  }
  if (last_) std::exchange(last_, nullptr)(error);
  conclude(std::move(error));
}

/// Tensors of Python's are given back with its lock, which no thread gets any more at its end.
void Operation::release_memory() {
  if (python_ends()) {
    leave_alone(std::move(plan_.held));
    leave_alone(std::move(plan_.deliver));
  }
  plan_.held.clear();
  plan_.deliver = nullptr;
  kept_.reset();
}

void Operation::conclude(std::exception_ptr error) {
  release_memory();
  std::vector<std::function<void()>> next;
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    done_ = true;
    next.swap(continuations_);
    changed_.notify_all();
  }
  if (python_ends()) return leave_alone(std::move(next));
  for (const auto& continuation : next) continuation();
}

bool Operation::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

std::exception_ptr Operation::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Operation::throw_error(void (*check)()) const {
  std::shared_ptr<Job> job;
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = error_;
    if (status_ == INA_ERR_PEER_LOST) job = job_;
  }
  if (!error) return;
  if (job) job->await_first_cause(check);
  std::rethrow_exception(error);
}

bool Operation::wait(std::optional<milliseconds> limit, void (*check)()) {
  const auto end = limit ? Clock::now() + std::min(*limit, kLongest) : deadline_;
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

void wait_for_running(const Job& job, std::optional<milliseconds> limit, void (*check)()) {
  const auto end = limit ? Clock::now() + *limit : Clock::time_point::max();
  for (const auto& operation : job.running()) {
    if (operation->deadline() <= end)
      operation->wait(std::nullopt, check);
    else
      operation->wait(
          std::max(milliseconds(0), std::chrono::ceil<milliseconds>(end - Clock::now())), check);
  }
}

}  // namespace ina::plugin
