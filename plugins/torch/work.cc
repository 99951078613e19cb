#include "plugins/torch/work.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <ATen/ThreadLocalState.h>
#include <ATen/core/ivalue.h>

#include "plugins/torch/dispatcher.h"
#include "plugins/torch/watcher.h"

namespace ina::plugin {

using c10::ivalue::Future;

WorkIna::WorkIna(int rank, c10d::OpType type, const char* title,
                 const std::vector<at::Tensor>& inputs,
                 std::vector<std::vector<at::Tensor>> outputs, std::shared_ptr<Operation> operation,
                 void (*check)())
    : Work(rank, type, title, inputs),
      outputs_(std::move(outputs)),
      operation_(std::move(operation)),
      check_(check) {}

void WorkIna::watch(const c10::intrusive_ptr<WorkIna>& work) {
  // Only with a profiler is there anything to tell.
  if (!work->recordFunctionEndCallback_) return;
  work->operation_->before_end([work](const std::exception_ptr& error) { work->finish(error); });
}

bool WorkIna::isCompleted() {
  return operation_->done();
}

bool WorkIna::isSuccess() const {
  return operation_->done() && !operation_->error();
}

std::exception_ptr WorkIna::exception() const {
  return operation_->error();
}

int WorkIna::sourceRank() const {
  return source_ ? source_->load() : Work::sourceRank();
}

bool WorkIna::wait(std::chrono::milliseconds timeout) {
  const auto limit = timeout > kNoTimeout ? std::make_optional(timeout) : std::nullopt;
  if (!operation_->wait(limit, check_))
    throw std::runtime_error("Operation timed out after " + std::to_string(timeout.count()) +
                             " ms; it still runs");
  waited_ = true;
  operation_->throw_error(check_);
  return true;
}

std::vector<at::Tensor> WorkIna::result() {
  TORCH_CHECK(operation_->done(), "Work needs to be completed before calling result()");
  TORCH_CHECK(outputs_.size() <= 1, "work result does not support list of lists, use .getFuture()");
  return outputs_.empty() ? std::vector<at::Tensor>() : outputs_.front();
}

c10::IValue WorkIna::value() const {
  if (outputs_.size() > 1) return outputs_;
  return outputs_.empty() ? std::vector<at::Tensor>() : outputs_.front();
}

c10::intrusive_ptr<Future> WorkIna::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
  if (outputs_.size() > 1) type = c10::ListType::create(type);
  future_ = c10::make_intrusive<Future>(std::move(type));
  complete_future();
  if (!operation_->done()) Watcher::of_process().watch(operation_->deadline(), operation_);
  return future_;
}

/// When the operation has ended. Continuations see PyTorch's thread-local state of this thread.
/// They run here only if this thread knows of the end: on another rank it may come later, and what
/// they start must be of the same depth on all ranks.
void WorkIna::complete_future() {
  std::function<void()> complete =
      at::wrapPropagateTLSState([future = future_, operation = operation_, value = value()] {
        try {
          operation->throw_error(nullptr);
        } catch (...) {
          return future->setError(std::current_exception());
        }
        future->markCompleted(value);
      });
  if (waited_) return complete();
  if (order_) return order_->add(operation_, std::move(complete));
  operation_->when_done(
      [complete = std::move(complete)] { Dispatcher::for_continuations().run(complete); });
}

}  // namespace ina::plugin
