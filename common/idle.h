// The idle strategy of a polling loop: spin, yield or sleep.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string_view>

#include "common/clock.h"
#include "wire/named.h"
#include "wire/types.h"

namespace ina {

enum class IdleMode : uint8_t { kAuto, kSpin, kYield, kBackoff, kInterrupt };
inline constexpr Names<IdleMode, 5> kIdleModeNames = {{{"auto", IdleMode::kAuto},
                                                       {"spin", IdleMode::kSpin},
                                                       {"yield", IdleMode::kYield},
                                                       {"backoff", IdleMode::kBackoff},
                                                       {"interrupt", IdleMode::kInterrupt}}};

/// Says after each empty poll what to do next; the caller does the sleeping, since only it knows
/// what wakes it. Reset by work. Worth keeping from one wait to the next: it remembers whether
/// others want the core.
class IdleStrategy {
 public:
  static constexpr Nanos kMaxSleepNs = 20'000'000;
  /// For a loop that nothing wakes, and whose sleep so delays what comes next by its whole length.
  static constexpr Nanos kUnwakeableSpinNs = 2'000'000;
  enum class Step { kPolled, kSleep };
  /// Gives the core to whoever wants it, and returns the time once this thread runs again.
  using Yield = Nanos (*)();

  /// `spin_ns`: of kAuto, how long an empty loop goes on while nobody else wants the core.
  explicit IdleStrategy(IdleMode mode, Nanos spin_ns = 0, Yield yield = &yield_core)
      : mode_(mode), spin_ns_(spin_ns), yield_(yield) {}

  void reset() { empty_polls_ = 0; }

  /// `now`: time after the empty poll. Spins or yields itself; kSleep: sleep until woken, at most
  /// sleep_ns().
  Step idle(Nanos now) {
    if (++empty_polls_ == 1) empty_since_ = now;
    switch (mode_) {
      case IdleMode::kSpin:
        relax();
        return Step::kPolled;
      case IdleMode::kYield:
        yield_();
        return Step::kPolled;
      case IdleMode::kInterrupt:
        return Step::kSleep;
      case IdleMode::kAuto:
      case IdleMode::kBackoff:
        break;
    }
    if (!crowded_ && empty_polls_ <= kSpins) {
      relax();
      return Step::kPolled;
    }
    const Nanos empty_ns = now - empty_since_;
    if ((empty_polls_ <= kSpins + kYields && empty_ns < kYieldNs) ||
        (!crowded_ && mode_ == IdleMode::kAuto && empty_ns < spin_ns_)) {
      // Back at once: nobody else wanted the core, so spinning is better than asking the kernel.
      crowded_ = yield_() - now > kSwitchNs;
      return Step::kPolled;
    }
    return Step::kSleep;
  }

  Nanos sleep_ns() const {
    if (mode_ != IdleMode::kBackoff) return kMaxSleepNs;
    const uint32_t beyond = (empty_polls_ - kSpins) / 4;
    return beyond >= 14 ? kMaxSleepNs : Nanos{1000} << beyond;
  }

 private:
  // On a machine with more processes than cores a spin only delays the process that has the work,
  // so there is no spin after a yield that let another process run. Yields make N workers on a core
  // as fast as one.
  static constexpr uint32_t kSpins = 20;
  static constexpr uint32_t kYields = 200;
  // A yield that comes back late gave the core to a process that computes. A thread that sleeps is
  // woken ahead of such processes, one that yields queues behind them.
  static constexpr Nanos kYieldNs = 200'000;
  /// A yield takes half a microsecond, one with a switch to another process and back three.
  static constexpr Nanos kSwitchNs = 1'200;

  static void relax() { __builtin_ia32_pause(); }
  static Nanos yield_core() {
    ::sched_yield();
    return now_ns();
  }

  IdleMode mode_;
  Nanos spin_ns_;
  Yield yield_;
  uint32_t empty_polls_ = 0;
  bool crowded_ = false;  ///< the last yield let somebody else run
  Nanos empty_since_ = 0;
};

}  // namespace ina
