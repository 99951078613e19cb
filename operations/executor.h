// Runs Schedules (plans/schedule.h) on engines. Pure; under the context's lock.
//
// All operations of a schedule are submitted at its start, held, so that a channel has them in the
// same order on all ranks. Each is let go when the stages that it waits for have ended, or have
// given this rank its bytes where the schedule says that this is enough. Kernels and copies run in
// the thread that drives the engine. Scratch memory is bounded over all schedules: one for which
// none is left waits for its turn, with its operations held.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fragments/engine.h"
#include "plans/schedule.h"

namespace ina::client {

/// The part of an engine that the executor needs.
class Channel {
 public:
  virtual ~Channel() = default;
  /// Submits an operation that waits to be let go, as do later ones.
  virtual Operation* submit_held(const OperationSpec& spec, Nanos now) = 0;
  /// Lets it go; where its bytes lie, how many elements it has and their blocks replace the
  /// specification's.
  virtual void let_go(Operation* operation, const std::byte* send, std::byte* recv,
                      uint64_t elements, std::shared_ptr<const scheduler::BlockTable> blocks) = 0;
  /// Drops it from the order, which all ranks must decide alike; from a listener only. Its end may
  /// be told or not.
  virtual void skip(Operation* operation) = 0;
  /// Has no more use for it: it has completed, was skipped, or the job has ended.
  virtual void forget(Operation* operation) = 0;
};

class EngineChannel final : public Channel {
 public:
  /// `engine` must outlive it.
  explicit EngineChannel(Engine& engine) : engine_(engine) {}
  Operation* submit_held(const OperationSpec& spec, Nanos now) override {
    return engine_.submit(spec, now);
  }
  void let_go(Operation* operation, const std::byte* send, std::byte* recv, uint64_t elements,
              std::shared_ptr<const scheduler::BlockTable> blocks) override {
    operation->spec.recv = recv;
    operation->spec.blocks = std::move(blocks);
    engine_.release_hold(operation, send, elements);
  }
  void skip(Operation* operation) override {
    engine_.release_hold(operation, operation->spec.send, 0, true);
  }
  void forget(Operation* operation) override { engine_.release(operation); }

 private:
  Engine& engine_;
};

/// Scratch memory of schedules that run, in blocks that are used again.
class ScratchPool {
 public:
  explicit ScratchPool(size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  /// Makes sure that a block of that size is there, or will be when those before are done. The
  /// limit is exceeded by a block that is larger than it. Throws std::bad_alloc.
  void provide(size_t bytes);
  /// nullptr: none is free.
  std::byte* take(size_t bytes);
  void give_back(const std::byte* memory);
  size_t total_bytes() const { return total_bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct Block {
    std::unique_ptr<std::byte[], Free> memory;
    size_t bytes = 0;
    bool used = false;
  };
  void make_room(size_t bytes);

  const size_t limit_bytes_;
  size_t total_bytes_ = 0;
  std::vector<Block> blocks_;
};

struct ExecutorCounters {
  uint64_t schedules = 0;  ///< run to their end
  uint64_t operations =
      0;  ///< of the engines, of which they were made; that were told to have ended
  uint64_t receipts =
      0;  ///< operations that were told to have given all bytes, and not to have ended
};

class Executor final {
 public:
  /// The arguments of a kernel: the caller's operation, the scratch memory, and later stages.
  class Frame {
   public:
    const OperationSpec& spec() const { return spec_; }
    const scheduler::BufferPair& buffers(uint32_t pair) const { return pairs_[pair]; }
    std::byte* scratch() const { return scratch_; }
    /// The stage of the kernel itself.
    scheduler::Schedule::Stage stage() const { return stage_; }
    /// Sets the elements of an operation that waits for this kernel.
    void set_elements(scheduler::Schedule::Stage stage, uint64_t elements) const;
    /// Sets the blocks of an operation that waits for this kernel, and with them its elements.
    void set_blocks(scheduler::Schedule::Stage stage,
                    std::shared_ptr<const scheduler::BlockTable> blocks) const;
    /// Skips an operation that waits for this kernel: it counts as ended. All ranks must decide
    /// alike, and the kernel must itself wait for an operation.
    void skip(scheduler::Schedule::Stage stage) const;

   private:
    friend class Executor;
    struct State;
    Frame(const OperationSpec& spec, std::span<const scheduler::BufferPair> pairs,
          std::byte* scratch, scheduler::Schedule::Stage stage, std::span<State> stages)
        : spec_(spec), pairs_(pairs), scratch_(scratch), stage_(stage), stages_(stages) {}
    const OperationSpec& spec_;
    std::span<const scheduler::BufferPair> pairs_;
    std::byte* scratch_;
    scheduler::Schedule::Stage stage_;
    std::span<State> stages_;
  };

  /// The kernels that a schedule names.
  class Kernels {
   public:
    virtual ~Kernels() = default;
    virtual void run(const scheduler::Compute& compute, const Frame& frame) = 0;
  };

  enum class Handle : uint8_t {
    kKept,      ///< until release()
    kForgotten  ///< the caller learns of the end by its kernels
  };

  /// `channels`: of which a schedule's stages name the index; they must outlive it. The limit is
  /// that of each channel.
  Executor(std::span<Channel* const> channels, size_t scratch_limit_bytes);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Starts a schedule. `kernels` (nullptr: it has none) must outlive it. `spec` has the caller's
  /// buffers; kernels are shown it. `pairs`: all pairs of buffers, where the schedule names
  /// several; none: those of `spec`. Throws std::bad_alloc before anything is submitted. The
  /// result's `fragments` and `complete` count stages.
  Operation* start(std::shared_ptr<const scheduler::Schedule> schedule, const OperationSpec& spec,
                   Kernels* kernels, Handle handle, Nanos now,
                   std::span<const scheduler::BufferPair> pairs = {});
  /// Returns false if the operation is not one of start()'s. If it is not done, stop() is implied.
  bool release(Operation* operation);
  /// The job has ended: nothing goes on any more, and no memory of a caller is touched.
  void stop() { stopped_ = true; }

  const ExecutorCounters& counters() const { return counters_; }

 private:
  class Run;
  struct Ready {
    Run* run;
    scheduler::Schedule::Stage stage;
  };

  struct ChannelState {
    Channel* channel;
    ScratchPool scratch;
    std::vector<Run*> waiting;  ///< for scratch memory, in the order of their start
  };

  Run& new_run(std::shared_ptr<const scheduler::Schedule> schedule, size_t pairs);
  void submit(Run& run, Nanos now);
  void begin_waiting(ChannelState& of);
  void begin(Run& run);
  void received(Run& run, scheduler::Schedule::Stage stage);
  void completed(Run& run, scheduler::Schedule::Stage stage);
  void go_on();
  void perform(Run& run, scheduler::Schedule::Stage stage);
  void tell(Run& run, scheduler::Schedule::Stage stage, scheduler::Schedule::Event event);
  void end(Run& run, scheduler::Schedule::Stage stage);
  void finish(Run& run);
  void recycle(Run& run);

  std::vector<ChannelState> channels_;
  std::vector<std::unique_ptr<Run>> runs_;
  std::vector<Run*> spare_;
  std::vector<Run*> spent_;  ///< forgotten ones that are done; their operations are not yet
  std::vector<Ready> ready_;
  bool stopped_ = false;
  ExecutorCounters counters_;
};

}  // namespace ina::client
