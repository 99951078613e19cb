#include "operations/redistributions.h"

#include <algorithm>
#include <cstring>

#include "operations/plan_hashes.h"

namespace ina::client {

using redistribution::Execution;
using redistribution::Plan;

/// A plan that was used, and the kernels of its schedule.
class Redistributions::Known final : public Executor::Kernels {
 public:
  Known(Redistributions& all, const std::shared_ptr<const Plan>& its_plan)
      : plan(its_plan), execution(its_plan, all.job_), all_(all) {}

  void run(const scheduler::Compute& compute, const Executor::Frame& frame) override {
    switch (compute.kernel) {
      case Execution::kTell: {
        const uint64_t hash = plan->hash();
        std::memcpy(frame.scratch() + execution.hash_offset(), &hash, sizeof(hash));
        break;
      }
      case Execution::kAgree:
        all_.agree(*plan, frame.scratch());
        break;
      default:
        execution.work(compute.argument, frame.spec().recv);
    }
  }

  const std::shared_ptr<const Plan> plan;
  const Execution execution;
  size_t running = 0;

 private:
  Redistributions& all_;
};

Redistributions::Redistributions(Executor& executor, const redistribution::Job& job)
    : executor_(executor), job_(job) {}

Redistributions::~Redistributions() = default;

Operation* Redistributions::start(const std::shared_ptr<const Plan>& plan, std::byte* buffer,
                                  Nanos now) {
  Known& known = this->known(plan);
  running_.reserve(running_.size() + 1);
  OperationSpec spec;
  spec.send = spec.recv = buffer;
  spec.elements = plan->problem().source_elements() * plan->problem().element_bytes;
  spec.dtype = DType::kUInt8;
  spec.collective = Collective::kAllToAll;
  Operation* const operation =
      executor_.start(known.execution.schedule(), spec, &known, Executor::Handle::kKept, now);
  ++known.running;
  running_.push_back({operation, &known});
  return operation;
}

Redistributions::Known& Redistributions::known(const std::shared_ptr<const Plan>& plan) {
  auto found = std::ranges::find(known_, plan, [](const auto& one) { return one->plan; });
  if (found == known_.end()) {
    known_.push_front(std::make_unique<Known>(*this, plan));
    found = known_.begin();
    const auto oldest = std::find_if(known_.rbegin(), std::prev(known_.rend()),
                                     [](const auto& one) { return one->running == 0; });
    if (known_.size() > kMostKept && oldest != std::prev(known_.rend()))
      known_.erase(std::next(oldest).base());
  }
  known_.splice(known_.begin(), known_, found);
  return **known_.begin();
}

bool Redistributions::release(Operation* operation) {
  const auto found = std::ranges::find(running_, operation, &Running::operation);
  if (found == running_.end()) return false;
  Known& known = *found->known;
  running_.erase(found);
  executor_.release(operation);
  --known.running;
  return true;
}

/// Names the ranks of the first plan that is not rank 0's.
void Redistributions::agree(const Plan& plan, const std::byte* hashes) {
  disagreement_ = disagreement_text(hashes, plan.problem().mesh.ranks(), "the redistribution");
  if (!disagreement_.empty()) executor_.stop();
}

}  // namespace ina::client
