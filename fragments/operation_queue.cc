#include "fragments/operation_queue.h"

#include <algorithm>

namespace ina::client {

OperationQueue::OperationQueue(Flow& flow) : flow_(flow) {
  received_.reserve(flow.config.window);
  finished_.reserve(flow.config.window);
}

/// Many at once: how many groups of small operations are under way at a time is chance, and a
/// program that has run for a while shall not allocate.
void OperationQueue::more() {
  constexpr size_t kBlock = 32;
  storage_.push_back(std::make_unique<Operation[]>(kBlock));
  spare_.reserve(storage_.size() * kBlock);
  for (size_t i = 0; i < kBlock; ++i) spare_.push_back(&storage_.back()[i]);
}

Operation* OperationQueue::submit(const OperationSpec& spec, Nanos now) {
  if (spare_.empty()) more();
  Operation* operation = spare_.back();
  spare_.pop_back();
  priority_.started(now, running_.size());
  operation->spec = spec;
  operation->number = submitted_++;
  operation->cut(flow_.config.slot_bytes, flow_.config.rank);
  operation->sent = 0;
  operation->complete = 0;
  operation->started = now;
  operation->priority = std::min(priority_.priority(now), flow_.config.rules.priority_max);
  flow_.counters.priority = operation->priority;
  operation->placed = false;
  operation->done.store(false, std::memory_order_relaxed);
  running_.push_back(operation);
  return operation;
}

void OperationQueue::release(Operation* operation) {
  operation->spec.blocks = nullptr;
  spare_.push_back(operation);
}

void OperationQueue::finish(Nanos now) {
  for (Operation* operation : received_)
    if (operation->spec.listener) operation->spec.listener->received(*operation);
  received_.clear();
  // A listener may complete further operations.
  for (size_t i = 0; i < finished_.size(); ++i) {
    Operation* operation = finished_[i];
    std::erase(running_, operation);
    if (operation->closes) flow_.ring.forget(*operation);
    priority_.finished(now, running_.size());
    ++flow_.counters.operations;
    if (operation->spec.listener) operation->spec.listener->completed(*operation);
    operation->done.store(true, std::memory_order_release);
  }
  finished_.clear();
}

void OperationQueue::forget_targets() {
  for (Operation* operation : running_) operation->spec.target = 0;
}

}  // namespace ina::client
