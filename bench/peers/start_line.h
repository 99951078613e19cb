// A barrier of the harness's own, the same for every library: the clock of an operation starts when
// the last rank has arrived here.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <functional>

namespace ina::peers {

int64_t now_ns();

/// Shared by the ranks of one competitor, in a file of zeros that the orchestrator makes.
struct StartLineArea {
  alignas(64) std::atomic<uint32_t> arrived;  ///< all ranks write
  alignas(64) std::atomic<uint32_t> turn;     ///< number of the start; the last to arrive writes
  std::atomic<int64_t> start_ns;              ///< of `turn`; the last to arrive writes
};

class StartLine {
 public:
  /// Ranks spin for a while where each can have a core, and yield at once where not.
  StartLine(StartLineArea& area, int ranks, int cores)
      : area_(area), ranks_(static_cast<uint32_t>(ranks)), spins_(ranks > cores ? 0 : 2000) {}

  /// Returns when all have arrived: the moment at which the last one did. `stalled` is called from
  /// time to time after a few milliseconds, too late to be seen in the figures.
  int64_t wait(const std::function<void()>& stalled) {
    const uint32_t turn = area_.turn.load(std::memory_order_acquire);
    if (area_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_) {
      const int64_t start = now_ns();
      area_.arrived.store(0, std::memory_order_relaxed);
      area_.start_ns.store(start, std::memory_order_relaxed);
      area_.turn.store(turn + 1, std::memory_order_release);
      return start;
    }
    for (uint64_t polls = 0; area_.turn.load(std::memory_order_acquire) == turn; ++polls) {
      if (polls < spins_)
        __builtin_ia32_pause();
      else
        ::sched_yield();
      if (polls % 8192 == 8191) stalled();
    }
    // The next start needs this rank, so the value is still of this turn.
    return area_.start_ns.load(std::memory_order_relaxed);
  }

 private:
  StartLineArea& area_;
  uint32_t ranks_;
  uint64_t spins_;
};

}  // namespace ina::peers
