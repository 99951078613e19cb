#include "plugins/torch/in_use.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "plugins/torch/buffers.h"

namespace ina::plugin {

namespace {

const void* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

std::shared_ptr<Operation> running(const std::weak_ptr<Operation>& operation) {
  auto alive = operation.lock();
  return alive && !alive->done() ? alive : nullptr;
}

}  // namespace

void InUse::await(const Uses& uses, void (*check)()) {
  const auto next = [&]() -> std::shared_ptr<Operation> {
    const std::lock_guard lock(mutex_);
    for (const at::Tensor& tensor : uses.writes)
      if (auto found = find_conflict(tensor, true)) return found;
    for (const at::Tensor& tensor : uses.reads)
      if (auto found = find_conflict(tensor, false)) return found;
    return nullptr;
  };
  while (const auto operation = next()) operation->wait(std::nullopt, check);
}

/// With the mutex.
std::shared_ptr<Operation> InUse::find_conflict(const at::Tensor& tensor, bool writes) {
  if (tensor.numel() == 0) return nullptr;
  const auto [begin, end] = extent(tensor);
  const auto [first, last] = ranges_.equal_range(storage_of(tensor));
  for (auto range = first; range != last; ++range) {
    const Range& used = range->second;
    if (begin >= used.end || used.begin >= end || !(writes || used.written)) continue;
    if (auto found = running(used.operation)) return found;
  }
  return nullptr;
}

void InUse::add(const Uses& uses, const std::shared_ptr<Operation>& operation) {
  const std::lock_guard lock(mutex_);
  if (ranges_.size() >= prune_at_) prune();
  for (const at::Tensor& tensor : uses.reads) add(tensor, false, operation);
  for (const at::Tensor& tensor : uses.writes) add(tensor, true, operation);
}

void InUse::add(const at::Tensor& tensor, bool written,
                const std::shared_ptr<Operation>& operation) {
  if (tensor.numel() == 0) return;
  const auto [begin, end] = extent(tensor);
  ranges_.emplace(storage_of(tensor), Range{begin, end, written, operation});
}

void InUse::prune() {
  std::erase_if(ranges_, [](const auto& entry) { return !running(entry.second.operation); });
  prune_at_ = std::max<size_t>(64, 2 * ranges_.size());
}

}  // namespace ina::plugin
