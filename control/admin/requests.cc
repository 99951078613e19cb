#include "control/admin/requests.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/event_fd.h"

namespace ina::admin {

namespace {

tl::unexpected<Error> unavailable(std::string text) {
  return tl::unexpected(Error{Error::Code::kUnavailable, std::move(text)});
}

constexpr const char* kStopping = "the switch is being stopped";

}  // namespace

Queue::Queue() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Answer Queue::ask(Request request, std::string who, Nanos timeout_ns) {
  auto call = std::make_shared<Call>();
  call->request = std::move(request);
  call->who = std::move(who);
  std::future<Answer> answer = call->answer.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return unavailable(kStopping);
    if (waiting_.size() >= kMaxWaiting)
      return tl::unexpected(Error{Error::Code::kBusy,
                                  "the switch is busy: it has " + std::to_string(waiting_.size()) +
                                      " requests to answer already; try again"});
    waiting_.push_back(call);
  }
  ring_event(event_.get());
  if (answer.wait_for(std::chrono::nanoseconds(timeout_ns)) == std::future_status::ready)
    return answer.get();
  {
    const std::lock_guard lock(mutex_);
    if (std::erase(waiting_, call) != 0)
      return tl::unexpected(Error{Error::Code::kTimeout,
                                  "the switch did not get round to it in time, and nothing "
                                  "was done"});
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
    call->answer.set_value(handler(call->request, call->who));
    lock.lock();
  }
}

void Queue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& call : waiting_) call->answer.set_value(unavailable(kStopping));
  waiting_.clear();
}

}  // namespace ina::admin
