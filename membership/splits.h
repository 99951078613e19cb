// A channel's requests to split it into groups (ina_split). All workers of a job or group ask the
// switch, which makes a job for each colour. See docs/protocol.md, "Groups".
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "membership/callers.h"
#include "membership/group_offer.h"
#include "membership/presence.h"
#include "membership/switch_connection.h"

namespace ina::membership {

class Splits {
 public:
  using Answer = GroupOffer;

  /// `channel`: of the connection. All must outlive it.
  Splits(SwitchConnection& connection, uint32_t channel, const Presence& presence, Callers& callers)
      : connection_(connection), channel_(channel), presence_(presence), callers_(callers) {}

  /// Held during a split: one at a time. Taken first.
  std::unique_lock<std::mutex> one_at_a_time() { return std::unique_lock(splitting_mutex_); }
  /// Waits until all have asked. Nothing: the time has passed, or the job has failed.
  std::optional<Answer> ask(int32_t colour, int32_t key, Nanos timeout_ns);

  // For the thread that reads the connection.
  /// `losses`: how many connections to a switch were lost before.
  void on_split(const answer::Split& split, uint64_t losses);
  /// The switch has gone. Under the lock of Callers.
  void go_away() { sent_ = false; }
  /// The job runs again. `furthest`: how many splits of the worker that was furthest the old switch
  /// had answered.
  void ask_again(uint64_t furthest);
  /// How many were answered. Under the lock of Callers.
  uint32_t answered() const { return answered_; }

 private:
  SwitchConnection& connection_;
  const uint32_t channel_;
  const Presence& presence_;
  Callers& callers_;

  std::mutex splitting_mutex_;
  // Under the lock of Callers.
  std::optional<request::Split> asked_;  ///< until it is answered
  bool sent_ = false;                    ///< on this connection
  std::optional<Answer> answer_;
  uint32_t answered_ = 0;
};

}  // namespace ina::membership
