#include "operations/reproducible.h"

#include <algorithm>
#include <array>
#include <vector>

namespace ina::client {

using scheduler::BlockTable;
using scheduler::Buffer;
using scheduler::Compute;
using scheduler::Operate;
using scheduler::Schedule;

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

/// The layout of a chunk's scratch memory, in bytes from its start.
struct Layout {
  explicit Layout(uint64_t chunk_elements)
      : fixed(round_up(2 * blocks_of(chunk_elements) + kMaxTag)),
        classes(fixed + round_up(chunk_elements * sizeof(int32_t))),
        bytes(classes + round_up(chunk_elements * sizeof(int32_t))) {}
  uint64_t fixed;
  uint64_t classes;
  uint64_t bytes;

 private:
  static uint64_t round_up(uint64_t bytes) { return (bytes + 63) / 64 * 64; }
};

/// Adds the stages of one tensor.
class Planner {
 public:
  Planner(const OperationSpec& spec, std::array<uint32_t, 3> kernels, uint32_t slot_bytes)
      : collective_(spec.collective),
        blocks_(spec.blocks.get()),
        elements_(spec.elements),
        chunk_elements_(Reproducible::chunk_elements(elements_)),
        chunks_((elements_ + chunk_elements_ - 1) / chunk_elements_),
        tag_(tag_of(spec)),
        kernels_(kernels),
        slot_bytes_(slot_bytes),
        layout_(chunk_elements_) {}

  Schedule plan() {
    schedule_.set_scratch_bytes(std::min(chunks_, Reproducible::kSlots) * layout_.bytes);
    add_exponents(0);
    for (uint64_t chunk = 0; chunk < chunks_; ++chunk) {
      if (chunk + 1 < chunks_) add_exponents(chunk + 1);
      add_values(chunk);
    }
    return std::move(schedule_);
  }

 private:
  uint64_t elements_of(uint64_t chunk) const {
    return std::min(chunk_elements_, elements_ - chunk * chunk_elements_);
  }
  Operate operate(uint64_t chunk, DType dtype, Op op, uint64_t elements, uint64_t offset) const {
    const Buffer buffer{Buffer::Place::kScratch,
                        chunk % Reproducible::kSlots * layout_.bytes + offset};
    return {.dtype = dtype, .op = op, .elements = elements, .send = buffer, .receive = buffer};
  }
  // When there is scratch memory for it, but for a tensor's third and later chunks only when it is
  // nearly their turn: finding exponents takes time that V could be on its way.
  void add_exponents(uint64_t chunk) {
    std::vector<Schedule::Stage> after;
    if (chunk >= 2) after.push_back(exponents_[chunk - 2]);
    if (chunk >= Reproducible::kSlots) after.push_back(finish_[chunk - Reproducible::kSlots]);
    const Schedule::Stage kernel = schedule_.add(Compute{kernels_[0], chunk}, after);
    exponents_.push_back(schedule_.add(
        operate(chunk, DType::kInt8, Op::kMax, 2 * blocks_of(elements_of(chunk)) + tag_, 0),
        {kernel}));
  }
  // V and S have the two numbers after their kernel's.
  void add_values(uint64_t chunk) {
    const Schedule::Stage kernel = schedule_.add(Compute{kernels_[1], chunk}, {exponents_[chunk]});
    const uint64_t elements = elements_of(chunk);
    Operate sum = operate(chunk, DType::kInt32, Op::kSum, elements, layout_.fixed);
    sum.collective = collective_;
    sum.blocks = blocks_in(chunk);
    const Schedule::Stage fixed = schedule_.add(sum, {kernel});
    const Schedule::Stage classes =
        schedule_.add(operate(chunk, DType::kInt32, Op::kBor, elements, layout_.classes), {kernel});
    finish_.push_back(schedule_.add(Compute{kernels_[2], chunk}, {fixed, classes}));
  }

  /// In place within the chunk's scratch memory.
  std::shared_ptr<const BlockTable> blocks_in(uint64_t chunk) const {
    if (!blocks_) return nullptr;
    const uint64_t first = chunk * chunk_elements_;
    const uint64_t end = first + elements_of(chunk);
    std::vector<scheduler::Block> parts;
    for (const scheduler::Block& block : blocks_->blocks()) {
      const uint64_t from = std::max(first, block.send_offset);
      const uint64_t to = std::min(end, block.send_offset + block.elements);
      if (from >= to) continue;
      scheduler::Block part = block;
      part.elements = to - from;
      part.send_offset = part.receive_offset = from - first;
      parts.push_back(part);
    }
    return std::make_shared<const BlockTable>(
        parts, elements_per_fragment(collective_, DType::kInt32, slot_bytes_),
        blocks_->fingerprint());
  }

  const Collective collective_;
  const BlockTable* const blocks_;
  const uint64_t elements_;
  const uint64_t chunk_elements_;
  const uint64_t chunks_;
  const uint64_t tag_;
  const std::array<uint32_t, 3> kernels_;
  const uint32_t slot_bytes_;
  const Layout layout_;
  std::vector<Schedule::Stage> exponents_, finish_;  ///< by chunk
  Schedule schedule_;
};

}  // namespace

Reproducible::Reproducible(Executor& executor, const Job& job)
    : executor_(executor), job_(job), headroom_(headroom_bits(job.workers)) {}

bool Reproducible::handles(const OperationSpec& spec) {
  return spec.collective != Collective::kBarrier && !is_moved(spec.collective) &&
         has_fixed_point(spec.dtype) && (spec.op == Op::kSum || spec.op == Op::kAvg);
}

uint64_t Reproducible::chunk_elements(uint64_t elements) {
  const uint64_t quarter = blocks_of((elements + 3) / 4) * kBlockElements;
  return std::clamp(quarter, kMinChunkElements, kMaxChunkElements);
}

Operation* Reproducible::start(const OperationSpec& spec, Nanos now) {
  return executor_.start(schedule_for(spec), spec, this, Executor::Handle::kKept, now);
}

std::shared_ptr<const Schedule> Reproducible::schedule_for(const OperationSpec& spec) {
  const uint64_t tag = tag_of(spec);
  auto plan = std::ranges::find_if(plans_, [&](const Plan& one) {
    return one.elements == spec.elements && one.tag == tag && one.collective == spec.collective &&
           one.blocks == spec.blocks;
  });
  if (plan == plans_.end()) {
    auto schedule = std::make_shared<const Schedule>(
        Planner(spec, {kExponents, kValues, kFinish}, job_.slot_bytes).plan());
    if (plans_.size() == kMostPlans) plans_.pop_back();
    plans_.push_front({spec.elements, tag, spec.collective, spec.blocks, std::move(schedule)});
    plan = plans_.begin();
  }
  plans_.splice(plans_.begin(), plans_, plan);
  return plan->schedule;
}

// ---- kernels

Reproducible::Chunk Reproducible::chunk_of(const Executor::Frame& frame, uint64_t index) {
  const uint64_t size = chunk_elements(frame.spec().elements);
  const Layout layout(size);
  std::byte* const scratch = frame.scratch() + index % kSlots * layout.bytes;
  Chunk chunk;
  chunk.first = index * size;
  chunk.elements = static_cast<size_t>(std::min(size, frame.spec().elements - chunk.first));
  chunk.exponents = reinterpret_cast<int8_t*>(scratch);
  chunk.specials = chunk.exponents + blocks_of(chunk.elements);
  chunk.fixed = reinterpret_cast<int32_t*>(scratch + layout.fixed);
  chunk.classes = reinterpret_cast<int32_t*>(scratch + layout.classes);
  return chunk;
}

void Reproducible::run(const Compute& compute, const Executor::Frame& frame) {
  const Chunk chunk = chunk_of(frame, compute.argument);
  switch (compute.kernel) {
    case kExponents:
      return prepare_exponents(frame, chunk);
    case kValues:
      return prepare_values(frame, chunk);
    default:
      return finish(frame, chunk);
  }
}

void Reproducible::prepare_exponents(const Executor::Frame& frame, const Chunk& chunk) {
  const OperationSpec& spec = frame.spec();
  block_exponents(spec.dtype, spec.send + chunk.first * wire_bytes(spec.dtype), chunk.elements,
                  chunk.exponents, chunk.specials);
  std::fill_n(chunk.specials + blocks_of(chunk.elements), tag_of(spec), int8_t{0});
}

void Reproducible::prepare_values(const Executor::Frame& frame, const Chunk& chunk) {
  const OperationSpec& spec = frame.spec();
  const std::byte* const values = spec.send + chunk.first * wire_bytes(spec.dtype);
  quantise(spec.dtype, values, chunk.elements, chunk.exponents, headroom_, chunk.fixed);
  size_t count = 0;
  for (size_t block = 0; block < blocks_of(chunk.elements); ++block) {
    if (chunk.specials[block] == 0) continue;
    const size_t elements = elements_of_block(block, chunk.elements);
    classify(spec.dtype, values + block * kBlockElements * wire_bytes(spec.dtype), elements,
             chunk.classes + count);
    count += elements;
  }
  const Schedule::Stage classes = frame.stage() + 2;
  if (count != 0)
    frame.set_elements(classes, count);
  else
    frame.skip(classes);
}

/// Writes this rank's part of the chunk.
void Reproducible::finish(const Executor::Frame& frame, const Chunk& chunk) {
  const OperationSpec& spec = frame.spec();
  const size_t width = wire_bytes(spec.dtype);
  if (!spec.blocks)
    return finish_part(frame, chunk, 0, chunk.elements, spec.recv + chunk.first * width);
  for (const scheduler::Block& block : spec.blocks->blocks()) {
    if (block.receiver != 1 + value(job_.rank)) continue;
    const uint64_t from = std::max<uint64_t>(chunk.first, block.send_offset);
    const uint64_t to =
        std::min<uint64_t>(chunk.first + chunk.elements, block.send_offset + block.elements);
    if (from < to)
      finish_part(frame, chunk, from - chunk.first, to - from,
                  spec.recv + (block.receive_offset + from - block.send_offset) * width);
  }
}

/// `elements` of the chunk from its `first` on, to `values`.
void Reproducible::finish_part(const Executor::Frame& frame, const Chunk& chunk, uint64_t first,
                               uint64_t elements, std::byte* values) {
  const DType dtype = frame.spec().dtype;
  const uint64_t end = first + elements;
  const auto for_each_special = [&](auto&& call) {
    const int32_t* classes = chunk.classes;
    for (size_t block = 0; block < blocks_of(chunk.elements); ++block) {
      if (chunk.specials[block] == 0) continue;
      const uint64_t begins = block * kBlockElements;
      const size_t size = elements_of_block(block, chunk.elements);
      const uint64_t from = std::max(first, begins), to = std::min(end, begins + size);
      if (from < to) call(from, classes + (from - begins), to - from);
      classes += size;
    }
  };

  // First out of the sum, so that a NaN's finite companions do not count as an overflow.
  for_each_special([&](uint64_t from, const int32_t* classes, size_t count) {
    clear_specials(classes, count, chunk.fixed + from);
  });
  const uint32_t divisor = frame.spec().op == Op::kAvg ? job_.workers : 1;
  // The rest of a block that it begins within has an exponent of its own.
  const uint64_t head =
      std::min(elements, (kBlockElements - first % kBlockElements) % kBlockElements);
  bool overflowed = false;
  const auto convert = [&](uint64_t from, uint64_t count) {
    if (count != 0 &&
        dequantise(dtype, chunk.fixed + from, count, chunk.exponents + from / kBlockElements,
                   headroom_, divisor, values + (from - first) * wire_bytes(dtype)))
      overflowed = true;
  };
  convert(first, head);
  convert(first + head, elements - head);
  if (overflowed) ++overflows_;
  for_each_special([&](uint64_t from, const int32_t* classes, size_t count) {
    put_specials(dtype, classes, count, values + (from - first) * wire_bytes(dtype));
  });
}

}  // namespace ina::client
