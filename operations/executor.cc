#include "operations/executor.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "wire/rules.h"

namespace ina::client {

using scheduler::Buffer;
using scheduler::Compute;
using scheduler::Copy;
using scheduler::Operate;
using scheduler::Schedule;

// ---- scratch memory

namespace {

// Schedules of that many need no other memory than those before them.
constexpr size_t kFewStages = 16;
constexpr size_t kAlignment = 64;
constexpr size_t round_up(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

uint32_t first_channel(const Schedule& schedule) {
  for (Schedule::Stage stage = 0; stage < schedule.size(); ++stage)
    if (const auto* operate = std::get_if<Operate>(&schedule.work(stage))) return operate->channel;
  return 0;
}

}  // namespace

void ScratchPool::provide(size_t bytes) {
  bool waits = false;
  for (const Block& block : blocks_) {
    if (block.bytes < bytes) continue;
    if (!block.used) return;
    waits = true;
  }
  if (waits && total_bytes_ + bytes > limit_bytes_) return;
  make_room(bytes);
  blocks_.reserve(blocks_.size() + 1);
  Block block{nullptr, round_up(bytes)};
  block.memory.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, block.bytes)));
  if (!block.memory) throw std::bad_alloc();
  total_bytes_ += block.bytes;
  blocks_.push_back(std::move(block));
}

/// Free blocks are too small, or they would have been taken.
void ScratchPool::make_room(size_t bytes) {
  std::erase_if(blocks_, [&](const Block& block) {
    if (block.used || total_bytes_ + bytes <= limit_bytes_) return false;
    total_bytes_ -= block.bytes;
    return true;
  });
}

std::byte* ScratchPool::take(size_t bytes) {
  Block* best = nullptr;
  for (Block& block : blocks_)
    if (!block.used && block.bytes >= bytes && (!best || block.bytes < best->bytes)) best = &block;
  if (!best) return nullptr;
  best->used = true;
  return best->memory.get();
}

void ScratchPool::give_back(const std::byte* memory) {
  std::ranges::find(blocks_, memory, [](const Block& block) { return block.memory.get(); })->used =
      false;
}

// ---- a schedule that runs

struct Executor::Frame::State {
  static constexpr uint64_t kSkipped = UINT64_MAX;
  Operation* operation = nullptr;
  uint64_t elements = 0;                                ///< of the operation; or kSkipped
  std::shared_ptr<const scheduler::BlockTable> blocks;  ///< of the operation
  uint32_t channel = 0;                                 ///< of the operation
  uint32_t awaits = 0;
  bool received = false;
  bool ended = false;
};

class Executor::Run final : public Operation, public OperationListener {
 public:
  explicit Run(Executor& executor) : executor_(executor) {}
  void received(Operation& operation) override { executor_.received(*this, operation.spec.stage); }
  void completed(Operation& operation) override {
    executor_.completed(*this, operation.spec.stage);
  }

  const std::byte* to_send(const Buffer& buffer) const {
    return buffer.place == Buffer::Place::kSend
               ? inside(pairs[buffer.pair].send, buffer.offset_bytes)
               : to_receive(buffer);
  }
  std::byte* to_receive(const Buffer& buffer) const {
    return inside(buffer.place == Buffer::Place::kReceive ? pairs[buffer.pair].recv : scratch,
                  buffer.offset_bytes);
  }
  /// A buffer that this rank has no use for may be missing: its places are nullptr.
  template <class Byte>
  static Byte* inside(Byte* base, uint64_t offset_bytes) {
    return base ? base + offset_bytes : nullptr;
  }

  std::shared_ptr<const Schedule> schedule;  ///< while it is somebody's
  Kernels* kernels = nullptr;
  std::vector<Frame::State> stages;
  std::vector<scheduler::BufferPair> pairs;
  std::byte* scratch = nullptr;
  uint32_t channel = 0;  ///< channel of its first operation
  Handle handle{};

 private:
  Executor& executor_;
};

void Executor::Frame::set_elements(Schedule::Stage stage, uint64_t elements) const {
  stages_[stage].elements = elements;
}

void Executor::Frame::set_blocks(Schedule::Stage stage,
                                 std::shared_ptr<const scheduler::BlockTable> blocks) const {
  stages_[stage].elements = blocks->elements();
  stages_[stage].blocks = std::move(blocks);
}

void Executor::Frame::skip(Schedule::Stage stage) const {
  stages_[stage].elements = State::kSkipped;
}

Executor::Executor(std::span<Channel* const> channels, size_t scratch_limit_bytes) {
  for (Channel* const channel : channels)
    channels_.push_back({channel, ScratchPool(scratch_limit_bytes), {}});
}

Executor::~Executor() = default;

// ---- the start

Operation* Executor::start(std::shared_ptr<const Schedule> schedule, const OperationSpec& spec,
                           Kernels* kernels, Handle handle, Nanos now,
                           std::span<const scheduler::BufferPair> pairs) {
  while (!spent_.empty()) {
    recycle(*spent_.back());
    spent_.pop_back();
  }
  Run& run = new_run(std::move(schedule), std::max<size_t>(pairs.size(), 1));
  run.spec = spec;
  if (pairs.empty())
    run.pairs.assign(1, {spec.send, spec.recv});
  else
    run.pairs.assign(pairs.begin(), pairs.end());
  run.spec.owner = this;
  run.fragments = run.schedule->size();
  run.complete = 0;
  run.started = now;
  run.done.store(false, std::memory_order_relaxed);
  run.kernels = kernels;
  run.handle = handle;
  submit(run, now);
  if (run.schedule->scratch_bytes() == 0) {
    begin(run);
  } else {
    channels_[run.channel].waiting.push_back(&run);
    begin_waiting(channels_[run.channel]);
  }
  go_on();
  return &run;
}

/// All memory that it may need, so that nothing fails later.
Executor::Run& Executor::new_run(std::shared_ptr<const Schedule> schedule, size_t pairs) {
  const uint32_t channel = first_channel(*schedule);
  if (schedule->scratch_bytes() != 0) channels_[channel].scratch.provide(schedule->scratch_bytes());
  if (spare_.empty()) {
    const size_t count = runs_.size() + 1;
    spare_.reserve(count);
    spent_.reserve(count);
    for (ChannelState& one : channels_) one.waiting.reserve(count);
    runs_.push_back(std::make_unique<Run>(*this));
    spare_.push_back(runs_.back().get());
  }
  Run& run = *spare_.back();
  run.stages.reserve(kFewStages);
  run.stages.assign(schedule->size(), {});
  run.pairs.reserve(pairs);
  size_t stages = 0;
  for (const auto& other : runs_) stages += other->stages.capacity();
  ready_.reserve(stages);
  spare_.pop_back();
  for (Schedule::Stage stage = 0; stage < schedule->size(); ++stage)
    run.stages[stage].awaits = schedule->awaits(stage);
  run.channel = channel;
  run.schedule = std::move(schedule);
  return run;
}

void Executor::submit(Run& run, Nanos now) {
  bool first = true;
  for (Schedule::Stage stage = 0; stage < run.schedule->size(); ++stage) {
    const auto* operate = std::get_if<Operate>(&run.schedule->work(stage));
    if (!operate) continue;
    OperationSpec spec;
    spec.elements = operate->elements;
    spec.dtype = operate->dtype;
    spec.op = operate->op;
    spec.collective = operate->collective;
    spec.fused = operate->fused;
    spec.blocks = operate->blocks;
    spec.held = true;
    spec.listener = &run;
    spec.stage = stage;
    Frame::State& state = run.stages[stage];
    state.elements = operate->elements;
    state.blocks = operate->blocks;
    state.channel = operate->channel;
    state.operation = channels_[operate->channel].channel->submit_held(spec, now);
    if (std::exchange(first, false)) run.number = state.operation->number;
  }
}

/// Its stages that wait for nothing are ready.
void Executor::begin(Run& run) {
  for (Schedule::Stage stage = 0; stage < run.schedule->size(); ++stage)
    if (run.stages[stage].awaits == 0) ready_.push_back({&run, stage});
}

// ---- from stage to stage

void Executor::received(Run& run, Schedule::Stage stage) {
  Frame::State& state = run.stages[stage];
  if (stopped_ || state.ended || std::exchange(state.received, true)) return;
  ++counters_.receipts;
  tell(run, stage, Schedule::Event::kReceived);
  go_on();
}

void Executor::completed(Run& run, Schedule::Stage stage) {
  if (stopped_) return;
  ++counters_.operations;
  if (run.stages[stage].ended) return;  // skipped
  end(run, stage);
  go_on();
}

/// In the order in which they became ready. Not recursive: a stage that ends adds to the list.
void Executor::go_on() {
  for (size_t next = 0; next < ready_.size() && !stopped_; ++next)
    perform(*ready_[next].run, ready_[next].stage);
  ready_.clear();
}

void Executor::perform(Run& run, Schedule::Stage stage) {
  Frame::State& state = run.stages[stage];
  const Schedule::Work& work = run.schedule->work(stage);
  if (const auto* operate = std::get_if<Operate>(&work)) {
    Channel& channel = *channels_[state.channel].channel;
    if (state.elements != Frame::State::kSkipped)
      return channel.let_go(state.operation, run.to_send(operate->send),
                            run.to_receive(operate->receive), state.elements,
                            std::move(state.blocks));
    channel.skip(state.operation);
  } else if (const auto* compute = std::get_if<Compute>(&work)) {
    run.kernels->run(*compute, Frame(run.spec, run.pairs, run.scratch, stage, run.stages));
    if (stopped_) return;  // by the kernel: not even a run whose last stage it was has ended
  } else {
    const auto& copy = std::get<Copy>(work);
    if (copy.bytes != 0) std::memcpy(run.to_receive(copy.to), run.to_send(copy.from), copy.bytes);
  }
  end(run, stage);
}

void Executor::tell(Run& run, Schedule::Stage stage, Schedule::Event event) {
  run.schedule->for_each_dependent(stage, event, [&](Schedule::Stage dependent) {
    const uint32_t left = --run.stages[dependent].awaits;
    const bool is_first = left + 1 == run.schedule->awaits(dependent);
    if (rule(Rule::kStageOrder) ? left == 0 : is_first) ready_.push_back({&run, dependent});
  });
}

/// An operation that reports no bytes of this rank counts as received when it ends.
void Executor::end(Run& run, Schedule::Stage stage) {
  Frame::State& state = run.stages[stage];
  state.ended = true;
  if (!std::exchange(state.received, true)) tell(run, stage, Schedule::Event::kReceived);
  tell(run, stage, Schedule::Event::kEnded);
  if (++run.complete == run.fragments) finish(run);
}

void Executor::finish(Run& run) {
  ++counters_.schedules;
  if (run.handle == Handle::kForgotten) spent_.push_back(&run);
  run.done.store(true, std::memory_order_release);
  if (!run.scratch) return;
  ChannelState& of = channels_[run.channel];
  of.scratch.give_back(std::exchange(run.scratch, nullptr));
  begin_waiting(of);
}

void Executor::begin_waiting(ChannelState& of) {
  while (!of.waiting.empty()) {
    Run& run = *of.waiting.front();
    run.scratch = of.scratch.take(run.schedule->scratch_bytes());
    if (!run.scratch) return;
    of.waiting.erase(of.waiting.begin());
    begin(run);
  }
}

// ---- the end

bool Executor::release(Operation* operation) {
  if (operation->spec.owner != this) return false;
  if (!operation->done.load(std::memory_order_relaxed)) stop();
  recycle(static_cast<Run&>(*operation));
  return true;
}

/// Not from completed(): the engine is not done with its operation then.
void Executor::recycle(Run& run) {
  for (const Frame::State& state : run.stages)
    if (state.operation) channels_[state.channel].channel->forget(state.operation);
  run.schedule = nullptr;
  run.spec.owner = nullptr;
  run.spec.blocks = nullptr;
  spare_.push_back(&run);
}

}  // namespace ina::client
