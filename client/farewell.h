// How a channel is left: what is under way ends, the switch hears of it, and all wait for the
// others.
#pragma once

#include <atomic>
#include <string>

#include "client/explanations.h"
#include "client/link.h"
#include "client/operations.h"
#include "client/progress.h"
#include "client/settings.h"
#include "membership/callers.h"
#include "membership/switch_connection.h"

namespace ina::client {

class Farewell {
 public:
  /// `channel`: of the connection. All must outlive it.
  Farewell(const Settings& settings, membership::SwitchConnection& connection, uint32_t channel,
           Link& link, Operations& operations, membership::Callers& callers, Progress& progress,
           Explanations& explanations)
      : settings_(settings),
        connection_(connection),
        channel_(channel),
        link_(link),
        operations_(operations),
        callers_(callers),
        progress_(progress),
        explanations_(explanations) {}

  // For the caller who leaves.
  /// Waits for what is under way: its buffers are the caller's once the context is left. Returns
  /// what did not end in time, or nothing.
  std::string drain(Nanos deadline);
  /// Says goodbye once nothing is under way. If the switch is away, the background thread says it
  /// once it is back.
  void say();
  /// Until all have left, the job has failed, or the time has come. Returns whether all have left.
  bool await_others(Nanos deadline);
  /// `running` did not end in `waited_ns`: the others hear why. Returns the status.
  int leave_early(const std::string& running, Nanos waited_ns);
  /// A group does drain() and say() when its job is left.
  std::string leave_with_job(Nanos deadline);
  /// The switch knows, or knew, of it. From any thread.
  bool ever_said() const { return ever_said_.load(); }

  // On the background thread.
  /// All have left.
  void on_left();
  /// Another switch is there, which must hear it, too.
  void say_again() {
    if (leaving_.load()) send();
  }

 private:
  void send();

  const Settings& settings_;
  membership::SwitchConnection& connection_;
  const uint32_t channel_;
  Link& link_;
  Operations& operations_;
  membership::Callers& callers_;
  Progress& progress_;
  Explanations& explanations_;

  bool left_ = false;  ///< all have; under the lock of Callers
  std::atomic<bool> leaving_{false};
  std::atomic<bool> ever_said_{false};
};

}  // namespace ina::client
