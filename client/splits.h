// A channel's requests to split it into groups (ina_split). All workers of a job or group ask the
// switch, which makes a job for each colour. See docs/protocol.md, "Groups".
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "client/callers.h"
#include "client/group_offer.h"
#include "client/progress.h"
#include "client/session.h"

namespace ina::client {

class Splits {
 public:
  using Answer = GroupOffer;

  /// `channel`: of the session. All must outlive it.
  Splits(Session& session, uint32_t channel, const Progress& progress, Callers& callers)
      : session_(session), channel_(channel), progress_(progress), callers_(callers) {}

  /// Held during a split: one at a time. Taken first.
  std::unique_lock<std::mutex> one_at_a_time() { return std::unique_lock(splitting_mutex_); }
  /// Waits until all have asked. Nothing: the time has passed, or the job has failed.
  std::optional<Answer> ask(int32_t colour, int32_t key, Nanos timeout_ns);

  // On the background thread.
  void on_split(const answer::Split& split);
  /// The switch has gone. Under the lock of Callers.
  void go_away() { sent_ = false; }
  /// The job runs again. `furthest`: how many splits of the worker that was furthest the old switch
  /// had answered.
  void ask_again(uint64_t furthest);
  /// How many were answered. Under the lock of Callers.
  uint32_t answered() const { return answered_; }

 private:
  Session& session_;
  const uint32_t channel_;
  const Progress& progress_;
  Callers& callers_;

  std::mutex splitting_mutex_;
  // Under the lock of Callers.
  std::optional<request::Split> asked_;  ///< until it is answered
  bool sent_ = false;                    ///< on this connection
  std::optional<Answer> answer_;
  uint32_t answered_ = 0;
};

}  // namespace ina::client
