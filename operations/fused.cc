#include "operations/fused.h"

#include <algorithm>
#include <cstring>

namespace ina::client {

namespace {

constexpr uint64_t kHashStart = 0xcbf29ce484222325;  // FNV-1a

uint64_t add_to_hash(uint64_t hash, uint64_t value) {
  for (int byte = 0; byte < 8; ++byte, value >>= 8) hash = (hash ^ (value & 0xff)) * 0x100000001b3;
  return hash;
}

uint16_t fold(uint64_t hash) {
  return static_cast<uint16_t>(hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48);
}

uint64_t bytes_of(const OperationSpec& spec) {
  return spec.elements * wire_bytes(spec.dtype);
}

constexpr size_t kStages = 3;  // of a bucket: gather, sum, scatter

}  // namespace

Fused::Fused(Executor& executor, size_t coalesce_bytes)
    : executor_(executor), coalesce_bytes_(coalesce_bytes) {}

// ---- collecting

Operation* Fused::collect(const OperationSpec& spec, bool fusable, Nanos now) {
  if (capacity_bytes() == 0 || ended_) return nullptr;
  const uint64_t bytes = bytes_of(spec);
  if (!fusable || bytes >= kLargeBytes || bytes > capacity_bytes()) {
    if (!in_group_) submit_collected(now);
    return nullptr;
  }
  const auto found = std::find_if(open_.begin(), open_.end(), [&](const Bucket* bucket) {
    return bucket->dtype == spec.dtype && bucket->op == spec.op;
  });
  Bucket* bucket = found == open_.end() ? nullptr : *found;
  const auto bytes_with_it = [&] {
    return (bucket->elements + spec.elements) * wire_bytes(spec.dtype);
  };
  if (bucket && (bytes_with_it() > capacity_bytes() || bucket->tensors == kMaxTensors)) {
    submit(*bucket, now);
    bucket = nullptr;
  } else if (!bucket && !in_group_) {
    submit_collected(now);
  }
  Tensor* tensor = new_tensor(spec, now);
  if (!bucket) bucket = open_bucket(spec);
  spare_tensors_.pop_back();
  (bucket->last ? bucket->last->next : bucket->first) = tensor;
  bucket->last = tensor;
  ++bucket->tensors;
  bucket->elements += spec.elements;
  bucket->sizes_hash = add_to_hash(bucket->sizes_hash, spec.elements);
  if (bucket->elements * wire_bytes(spec.dtype) == capacity_bytes()) submit(*bucket, now);
  return tensor;
}

/// Leaves it among the spare ones.
Fused::Tensor* Fused::new_tensor(const OperationSpec& spec, Nanos now) {
  if (spare_tensors_.empty()) {
    spare_tensors_.reserve(tensors_.size() + 1);
    tensors_.push_back(std::make_unique<Tensor>());
    spare_tensors_.push_back(tensors_.back().get());
  }
  Tensor* tensor = spare_tensors_.back();
  tensor->spec = spec;
  tensor->spec.owner = this;
  tensor->fragments = 1;
  tensor->complete = 0;
  tensor->started = now;
  tensor->done.store(false, std::memory_order_relaxed);
  tensor->next = nullptr;
  tensor->collected = true;
  return tensor;
}

Fused::Bucket* Fused::open_bucket(const OperationSpec& spec) {
  if (spare_buckets_.empty()) {
    const size_t count = buckets_.size() + 1;
    open_.reserve(count);
    spare_buckets_.reserve(count);
    auto bucket = std::make_unique<Bucket>();
    bucket->scratch =
        std::make_unique_for_overwrite<std::byte[]>(std::max(kGroupBytes, coalesce_bytes_));
    bucket->schedule = std::make_shared<scheduler::Schedule>();
    bucket->schedule->reserve(kStages, kStages);
    bucket->index = buckets_.size();
    buckets_.push_back(std::move(bucket));
    spare_buckets_.push_back(buckets_.back().get());
  }
  Bucket* bucket = spare_buckets_.back();
  spare_buckets_.pop_back();
  bucket->dtype = spec.dtype;
  bucket->op = spec.op;
  bucket->first = bucket->last = nullptr;
  bucket->tensors = 0;
  bucket->elements = 0;
  bucket->sizes_hash = kHashStart;
  open_.push_back(bucket);
  return bucket;
}

void Fused::start_group(Nanos now) {
  submit_collected(now);
  in_group_ = true;
}

void Fused::end_group(Nanos now) {
  submit_collected(now);
  in_group_ = false;
}

void Fused::submit_collected(Nanos now) {
  // Once the job has ended, tensors of open buckets may be gone.
  while (!ended_ && !open_.empty()) submit(*open_.front(), now);
}

/// One operation for a bucket. A tensor that is alone needs no copies.
void Fused::submit(Bucket& bucket, Nanos now) {
  OperationSpec spec = bucket.first->spec;
  const scheduler::Operate operate{
      .dtype = bucket.dtype,
      .op = bucket.op,
      .elements = bucket.elements,
      .send = {scheduler::Buffer::Place::kSend},
      .receive = {scheduler::Buffer::Place::kReceive},
      .fused = bucket.tensors == 1
                   ? 0
                   : wire::fused_bits(bucket.elements, bucket.tensors, fold(bucket.sizes_hash))};
  scheduler::Schedule& schedule = *bucket.schedule;
  schedule.clear();
  if (bucket.tensors > 1) {
    spec.send = spec.recv = bucket.scratch.get();
    schedule.add(scheduler::Compute{kGather, bucket.index});
    schedule.add(operate, {0});
  } else {
    schedule.add(operate);
  }
  schedule.add(scheduler::Compute{kScatter, bucket.index}, {schedule.size() - 1});
  std::erase(open_, &bucket);
  const Operation* whole =
      executor_.start(bucket.schedule, spec, this, Executor::Handle::kForgotten, now);
  for (Tensor* tensor = bucket.first; tensor; tensor = tensor->next) {
    tensor->number = whole->number;
    tensor->collected = false;
  }
}

// ---- kernels

void Fused::run(const scheduler::Compute& compute, const Executor::Frame&) {
  Bucket& bucket = *buckets_[compute.argument];
  if (compute.kernel == kGather)
    gather(bucket);
  else
    scatter(bucket);
}

void Fused::gather(const Bucket& bucket) {
  std::byte* to = bucket.scratch.get();
  for (const Tensor* tensor = bucket.first; tensor; tensor = tensor->next) {
    const uint64_t bytes = bytes_of(tensor->spec);
    if (bytes != 0) std::memcpy(to, tensor->spec.send, bytes);
    to += bytes;
  }
}

void Fused::scatter(Bucket& bucket) {
  const std::byte* from = bucket.scratch.get();
  for (Tensor *tensor = bucket.first, *next = nullptr; tensor; tensor = next) {
    next = tensor->next;
    const uint64_t bytes = bytes_of(tensor->spec);
    if (bucket.tensors > 1 && bytes != 0) std::memcpy(tensor->spec.recv, from, bytes);
    from += bytes;
    tensor->complete = 1;
    tensor->done.store(true, std::memory_order_release);
  }
  counters_.tensors += bucket.tensors;
  ++counters_.operations;
  spare_buckets_.push_back(&bucket);
}

bool Fused::is_collected(const Operation& operation) const {
  return operation.spec.owner == this && static_cast<const Tensor&>(operation).collected;
}

bool Fused::release(Operation* operation) {
  if (operation->spec.owner != this) return false;
  // A bucket still knows a tensor that is not done.
  if (operation->done.load(std::memory_order_relaxed)) {
    spare_tensors_.push_back(static_cast<Tensor*>(operation));
  } else {
    ended_ = true;
    executor_.stop();
  }
  return true;
}

}  // namespace ina::client
