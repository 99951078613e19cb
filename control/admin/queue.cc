#include "control/admin/queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/event_fd.h"

namespace ina::admin {

Queue::Queue() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Answer Queue::ask(Question question, Nanos timeout_ns) {
  auto call = std::make_shared<Call>();
  call->question = question;
  std::future<Answer> answer = call->answer.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || waiting_.size() >= kMaxWaiting) return std::nullopt;
    waiting_.push_back(call);
  }
  ring_event(event_.get());
  if (answer.wait_for(std::chrono::nanoseconds(timeout_ns)) == std::future_status::ready)
    return answer.get();
  {
    const std::lock_guard lock(mutex_);
    if (std::erase(waiting_, call) != 0) return std::nullopt;
  }
  return answer.get();  // it has begun, and does not wait for anybody
}

void Queue::serve(const Handler& handler) {
  drain_event(event_.get());
  std::unique_lock lock(mutex_);
  // Callers that ask again at once wait for the next turn, like all others.
  for (size_t left = waiting_.size(); left != 0 && !waiting_.empty(); --left) {
    const std::shared_ptr<Call> call = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    call->answer.set_value(handler(call->question));
    lock.lock();
  }
}

void Queue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& call : waiting_) call->answer.set_value(std::nullopt);
  waiting_.clear();
}

}  // namespace ina::admin
