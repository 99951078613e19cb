#include "client/src/reproducible.h"

#include <algorithm>

namespace ina::client {

namespace {

/// Elements that E has beyond its blocks': a number for each data type and operation.
constexpr uint64_t kMaxTag = 5;
uint64_t tag_of(const OperationSpec& spec) {
  const uint64_t dtype = spec.dtype == DType::kFloat32 ? 0 : spec.dtype == DType::kBFloat16 ? 1 : 2;
  return 2 * dtype + (spec.op == Op::kAvg ? 1 : 0);
}

size_t elements_of_block(size_t block, size_t elements) {
  return std::min(kBlockElements, elements - block * kBlockElements);
}

}  // namespace

Reproducible::Reproducible(HeldOperations& operations, uint32_t workers)
    : operations_(operations), workers_(workers), headroom_(headroom_bits(workers)) {}

bool Reproducible::handles(const OperationSpec& spec) {
  return spec.collective == Collective::kAllReduce && has_fixed_point(spec.dtype) &&
         (spec.op == Op::kSum || spec.op == Op::kAvg);
}

uint64_t Reproducible::chunk_elements(uint64_t elements) {
  const uint64_t quarter = blocks_of((elements + 3) / 4) * kBlockElements;
  return std::clamp(quarter, kMinChunkElements, kMaxChunkElements);
}

void Reproducible::allocate_slots() {
  if (!slots_.empty()) return;
  std::vector<Slot> slots(kSlots);
  for (Slot& slot : slots) {
    slot.exponents =
        std::make_unique_for_overwrite<int8_t[]>(2 * blocks_of(kMaxChunkElements) + kMaxTag);
    slot.fixed = std::make_unique_for_overwrite<int32_t[]>(kMaxChunkElements);
    slot.classes = std::make_unique_for_overwrite<int32_t[]>(kMaxChunkElements);
  }
  slots_ = std::move(slots);
}

Operation* Reproducible::start(const OperationSpec& spec, Nanos now) {
  allocate_slots();
  const uint64_t size = chunk_elements(spec.elements);
  const uint64_t count = (spec.elements + size - 1) / size;
  if (spare_.empty()) {
    composites_.reserve(composites_.size() + 1);
    spare_.reserve(composites_.size() + 1);
    spare_.push_back(std::make_unique<Composite>());
  }
  Composite* composite = spare_.back().get();
  composite->parts.reserve(3 * count);
  const uint64_t begin = end();
  chunks_.resize(chunks_.size() + count);
  composites_.push_back(std::move(spare_.back()));
  spare_.pop_back();

  Operation& whole = composite->whole;
  whole.spec = spec;
  whole.fragments = count;
  whole.complete = 0;
  whole.done.store(false, std::memory_order_relaxed);
  whole.started = now;
  for (uint64_t i = 0; i < count; ++i) {
    Chunk& chunk = this->chunk(begin + i);
    chunk.composite = composite;
    chunk.index = i;
    chunk.first = i * size;
    chunk.elements = static_cast<size_t>(std::min(size, spec.elements - chunk.first));
  }
  submit_exponents(begin);
  for (uint64_t i = 0; i < count; ++i) {
    if (i + 1 < count) submit_exponents(begin + i + 1);
    submit_values(begin + i);
  }
  whole.number = composite->parts.front()->number;
  prepare_exponents();
  return &whole;
}

void Reproducible::submit_exponents(uint64_t number) {
  Chunk& chunk = this->chunk(number);
  auto* const buffer = reinterpret_cast<std::byte*>(slot(number).exponents.get());
  OperationSpec part = chunk.composite->whole.spec;
  part.send = part.recv = buffer;
  part.elements = 2 * blocks_of(chunk.elements) + tag_of(chunk.composite->whole.spec);
  part.dtype = DType::kInt8;
  part.op = Op::kMax;
  chunk.exponents = operations_.submit_held(part);
  chunk.composite->parts.push_back(chunk.exponents);
}

void Reproducible::submit_values(uint64_t number) {
  Chunk& chunk = this->chunk(number);
  OperationSpec part = chunk.composite->whole.spec;
  part.send = part.recv = reinterpret_cast<std::byte*>(slot(number).fixed.get());
  part.elements = chunk.elements;
  part.dtype = DType::kInt32;
  part.op = Op::kSum;
  chunk.fixed = operations_.submit_held(part);
  part.send = part.recv = reinterpret_cast<std::byte*>(slot(number).classes.get());
  chunk.classes = operations_.submit_held(part);
  chunk.composite->parts.push_back(chunk.fixed);
  chunk.composite->parts.push_back(chunk.classes);
}

// Lets E go of as many chunks as there is scratch memory for, but of a tensor's third and later
// ones only when it is nearly their turn: finding exponents takes time that V could be on its way.
void Reproducible::prepare_exponents() {
  for (; prepared_ < std::min(end(), first_ + kSlots); ++prepared_) {
    Chunk& chunk = this->chunk(prepared_);
    if (chunk.index >= 2 && prepared_ >= first_ + 2 && !this->chunk(prepared_ - 2).has_exponents)
      return;
    const OperationSpec& spec = chunk.composite->whole.spec;
    const size_t blocks = blocks_of(chunk.elements);
    int8_t* const exponents = slot(prepared_).exponents.get();
    block_exponents(spec.dtype, spec.send + chunk.first * wire_bytes(spec.dtype), chunk.elements,
                    exponents, exponents + blocks);
    std::fill_n(exponents + 2 * blocks, tag_of(spec), int8_t{0});
    operations_.let_go(chunk.exponents, 2 * blocks + tag_of(spec));
  }
}

void Reproducible::prepare_values(uint64_t number) {
  Chunk& chunk = this->chunk(number);
  const Slot& slot = this->slot(number);
  const OperationSpec& spec = chunk.composite->whole.spec;
  const std::byte* const values = spec.send + chunk.first * wire_bytes(spec.dtype);
  const size_t blocks = blocks_of(chunk.elements);
  const int8_t* const specials = slot.exponents.get() + blocks;

  quantise(spec.dtype, values, chunk.elements, slot.exponents.get(), headroom_, slot.fixed.get());
  size_t count = 0;
  for (size_t block = 0; block < blocks; ++block) {
    if (specials[block] == 0) continue;
    const size_t elements = elements_of_block(block, chunk.elements);
    classify(spec.dtype, values + block * kBlockElements * wire_bytes(spec.dtype), elements,
             slot.classes.get() + count);
    count += elements;
  }
  chunk.has_exponents = true;
  operations_.let_go(chunk.fixed, chunk.elements);
  if (count != 0) {
    operations_.let_go(chunk.classes, count);
  } else {
    chunk.has_classes = true;
    operations_.skip(chunk.classes);
  }
}

void Reproducible::finish(uint64_t number) {
  Chunk& chunk = this->chunk(number);
  const Slot& slot = this->slot(number);
  Operation& whole = chunk.composite->whole;
  const DType dtype = whole.spec.dtype;
  std::byte* const values = whole.spec.recv + chunk.first * wire_bytes(dtype);
  const size_t blocks = blocks_of(chunk.elements);
  const int8_t* const specials = slot.exponents.get() + blocks;
  const auto for_each_special = [&](auto&& call) {
    const int32_t* classes = slot.classes.get();
    for (size_t block = 0; block < blocks; ++block) {
      if (specials[block] == 0) continue;
      const size_t elements = elements_of_block(block, chunk.elements);
      call(block * kBlockElements, classes, elements);
      classes += elements;
    }
  };

  // First out of the sum, so that a NaN's finite companions do not count as an overflow.
  for_each_special([&](size_t first, const int32_t* classes, size_t elements) {
    clear_specials(classes, elements, slot.fixed.get() + first);
  });
  const uint32_t divisor = whole.spec.op == Op::kAvg ? workers_ : 1;
  if (dequantise(dtype, slot.fixed.get(), chunk.elements, slot.exponents.get(), headroom_, divisor,
                 values))
    ++counters_.overflows;
  for_each_special([&](size_t first, const int32_t* classes, size_t elements) {
    put_specials(dtype, classes, elements, values + first * wire_bytes(dtype));
  });

  chunk.done = true;
  if (++whole.complete == whole.fragments) {
    ++counters_.operations;
    whole.done.store(true, std::memory_order_release);
  }
  drop_done();
}

/// A deque would allocate as it moves on.
void Reproducible::drop_done() {
  while (done_ < chunks_.size() && chunks_[done_].done) {
    ++done_;
    ++first_;
  }
  if (done_ < chunks_.size() - done_) return;
  chunks_.erase(chunks_.begin(), chunks_.begin() + static_cast<ptrdiff_t>(done_));
  done_ = 0;
}

void Reproducible::completed(Operation& part) {
  if (ended_) return;
  ++counters_.parts;
  for (uint64_t number = first_; number < prepared_; ++number) {
    Chunk& chunk = this->chunk(number);
    if (chunk.done) continue;  // its operations may already serve another
    if (&part == chunk.exponents && !chunk.has_exponents) {
      prepare_values(number);
    } else if (&part == chunk.fixed) {
      chunk.has_fixed = true;
    } else if (&part == chunk.classes) {
      chunk.has_classes = true;
    } else {
      continue;
    }
    if (chunk.has_fixed && chunk.has_classes) finish(number);
    prepare_exponents();
    return;
  }
}

bool Reproducible::release(Operation* operation) {
  const auto found = std::find_if(composites_.begin(), composites_.end(),
                                  [=](const auto& owned) { return &owned->whole == operation; });
  if (found == composites_.end()) return false;
  if (!operation->done.load(std::memory_order_relaxed)) ended_ = true;
  for (Operation* part : (*found)->parts) operations_.forget(part);
  (*found)->parts.clear();
  spare_.push_back(std::move(*found));
  composites_.erase(found);
  return true;
}

}  // namespace ina::client
