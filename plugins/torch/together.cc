#include "plugins/torch/together.h"

#include <exception>
#include <mutex>
#include <utility>

namespace ina::plugin {

namespace {

/// The parts that still run, from any thread.
class Rest {
 public:
  Rest(std::shared_ptr<Operation> whole, size_t parts) : whole_(std::move(whole)), left_(parts) {}

  void ended(const std::exception_ptr& error) {
    {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = error;
      if (--left_ != 0) return;
    }
    whole_->end(error_);
  }

 private:
  const std::shared_ptr<Operation> whole_;
  std::mutex mutex_;
  size_t left_;
  std::exception_ptr error_;
};

}  // namespace

std::shared_ptr<Operation> together(const char* name, std::vector<std::shared_ptr<Operation>> parts,
                                    milliseconds timeout) {
  OperationPlan plan;
  plan.name = name;
  plan.timeout = timeout;
  plan.abandon = [parts] {
    for (const auto& part : parts) part->give_up();
    return true;  // it ends with them
  };
  auto whole = std::make_shared<Operation>(std::move(plan));
  if (parts.empty()) {
    whole->end(nullptr);
    return whole;
  }
  const auto rest = std::make_shared<Rest>(whole, parts.size());
  for (const auto& part : parts)
    part->when_done([rest, operation = part.get()] { rest->ended(operation->error()); });
  return whole;
}

}  // namespace ina::plugin
