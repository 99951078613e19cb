#include "client/hierarchy_operations.h"

#include <algorithm>

#include "client/context_channel.h"
#include "client/hierarchical_call.h"
#include "common/clock.h"
#include "operations/plan_hashes.h"

namespace ina::client {

namespace {

// Scratch memory of all plans that are under way; one that needs more has the more.
constexpr size_t kScratchBytes = size_t{64} << 20;

}  // namespace

HierarchyOperations::HierarchyOperations(const themis::Topology& topology,
                                         const std::vector<std::shared_ptr<Context>>& contexts,
                                         uint32_t rank, uint32_t ranks)
    : ranks_(ranks),
      plans_(topology, contexts, rank, [this](const std::byte* hashes) { agree(hashes); }) {
  std::vector<Channel*> channels;
  for (const auto& one : contexts) {
    channels_.push_back(std::make_unique<ContextChannel>(*one, inbox_));
    channels.push_back(channels_.back().get());
  }
  executor_ = std::make_unique<Executor>(channels, kScratchBytes);
}

HierarchyOperations::~HierarchyOperations() = default;

Result<Operation*> HierarchyOperations::start(const PlanKey& key,
                                              std::span<const scheduler::BufferPair> pairs) {
  const std::lock_guard lock(mutex_);
  const auto plan = plans_.get(key);
  if (!plan) return tl::unexpected(plan.error());
  const auto& schedule = (*plan)->execution->schedule();
  running_.reserve(running_.size() + 1);
  inbox_.reserve(stages_ + schedule->size());
  OperationSpec spec;
  spec.elements = key.requests.front().bytes / key.requests.front().element_bytes;
  spec.dtype = key.elements.front().dtype;
  spec.op = key.elements.front().op;
  spec.collective = flat(key.requests.front().collective);
  Operation* const operation =
      executor_->start(schedule, spec, plan->get(), Executor::Handle::kKept, now_ns(), pairs);
  running_.push_back({operation, *plan});
  stages_ += schedule->size();
  count_.fetch_add(1);
  return operation;
}

/// Under mutex_.
void HierarchyOperations::agree(const std::byte* hashes) {
  disagreement_ = disagreement_text(hashes, ranks_, "the hierarchical collective");
  if (disagreement_.empty()) return;
  disagree_ = true;
  executor_->stop();
}

std::string HierarchyOperations::disagreement() {
  if (!disagree_.load()) return {};
  const std::lock_guard lock(mutex_);
  return disagreement_;
}

bool HierarchyOperations::take_in() {
  if (!inbox_.has_mail()) return false;
  const std::lock_guard lock(mutex_);
  inbox_.deliver();
  return true;
}

void HierarchyOperations::release(Operation* operation) {
  const std::lock_guard lock(mutex_);
  drop(operation);
}

/// Under mutex_.
void HierarchyOperations::drop(Operation* operation) {
  const auto found = std::ranges::find(running_, operation, &Running::operation);
  stages_ -= found->plan->execution->schedule()->size();
  executor_->release(operation);
  running_.erase(found);
  count_.fetch_sub(1);
}

void HierarchyOperations::stop() {
  const std::lock_guard lock(mutex_);
  executor_->stop();
}

bool HierarchyOperations::is_busy() {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(running_, [](const Running& running) {
    return !running.operation->done.load(std::memory_order_acquire);
  });
}

std::string HierarchyOperations::describe(const Operation* operation) {
  const std::lock_guard lock(mutex_);
  const OperationSpec& spec = operation->spec;
  const auto running = std::ranges::find(running_, operation, &Running::operation);
  std::string text;
  if (const size_t all = running->plan->key.requests.size(); all > 1)
    text += "group of " + std::to_string(all) + ", the first a ";
  return text + std::string(name(spec.collective)) + " of " + std::to_string(spec.elements) + " " +
         std::string(name(spec.dtype)) + ": " + std::to_string(operation->complete) + " of " +
         std::to_string(operation->fragments) + " stages complete";
}

void HierarchyOperations::add_callback(const Callback& callback) {
  const std::lock_guard lock(mutex_);
  callbacks_.push_back(callback);
  has_callbacks_ = true;
}

std::vector<HierarchyOperations::Callback> HierarchyOperations::take_due_callbacks(bool failed) {
  const std::lock_guard lock(mutex_);
  std::vector<Callback> due;
  std::erase_if(callbacks_, [&](const Callback& callback) {
    const bool done = callback.operation->done.load(std::memory_order_acquire);
    if (!done && !failed) return false;
    due.push_back(callback);
    drop(callback.operation);
    if (!done) due.back().operation = nullptr;
    return true;
  });
  has_callbacks_ = !callbacks_.empty();
  return due;
}

}  // namespace ina::client
