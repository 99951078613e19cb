// The handle that PyTorch gives to callers of a collective.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "plugins/torch/continuations.h"
#include "plugins/torch/operation.h"

namespace ina::plugin {

/// As those of Gloo: the future's value is the list of output tensors, or a list of such lists for
/// collectives that give several. Dropped before its end, the operation goes on.
class WorkIna : public c10d::Work {
 public:
  /// `title`: for the profiler, or nullptr. `check`: see Operation::wait.
  WorkIna(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
          std::vector<std::vector<at::Tensor>> outputs, std::shared_ptr<Operation> operation,
          void (*check)());
  /// Tells the profiler of its end. Before its operation is started.
  static void watch(const c10::intrusive_ptr<WorkIna>& work);
  /// Gives a collective the place where its continuations wait for their turn.
  void set_order(std::shared_ptr<Continuations> order) { order_ = std::move(order); }
  /// Null if its continuations need not wait for a turn: on no rank, or for a message.
  std::shared_ptr<Continuations> order() const { return waited_ ? nullptr : order_; }
  /// Where the rank will stand from which it has received; of one that receives from any.
  void set_source(std::shared_ptr<const std::atomic<int>> source) { source_ = std::move(source); }

  const std::shared_ptr<Operation>& operation() const { return operation_; }
  const std::vector<std::vector<at::Tensor>>& outputs() const { return outputs_; }

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  /// Throws the operation's error, or a std::runtime_error when `timeout` has passed (0: the
  /// group's own timeout, after which the job ends for all ranks).
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  c10::IValue value() const;
  void complete_future();

  const std::vector<std::vector<at::Tensor>> outputs_;
  const std::shared_ptr<Operation> operation_;
  void (*const check_)();
  std::shared_ptr<const std::atomic<int>> source_;
  std::shared_ptr<Continuations> order_;
  std::atomic<bool> waited_ = false;  ///< somebody has seen its end
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace ina::plugin
