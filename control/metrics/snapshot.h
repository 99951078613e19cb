// One of the conductor's answers as JSON, shared by all clients over HTTP.
#pragma once

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>

#include "control/admin/queue.h"

namespace ina::metrics {

/// How long the conductor may take.
inline constexpr Nanos kAnswerNs = 2'000'000'000;

/// Asks again when a client asks and the last answer is old. That is four times a second at most,
/// and less often where an answer takes the conductor long, so that it costs a tenth of its time.
class Snapshot {
 public:
  static constexpr Nanos kFreshNs = 250'000'000;

  using Clock = Nanos (*)();

  /// `queue` must outlive it.
  Snapshot(admin::Queue& queue, admin::Question question, Clock clock)
      : queue_(queue), question_(question), clock_(clock) {}

  /// The answer and "schema" (common/json_schema.h). Nothing: the conductor did not answer in time;
  /// those who come soon after are told so without a wait. From any thread.
  std::optional<std::string> text();

  /// How long an answer that took `took` serves.
  static Nanos fresh_for(Nanos took) { return std::max(kFreshNs, 9 * took); }

 private:
  admin::Queue& queue_;
  const admin::Question question_;
  const Clock clock_;
  std::mutex mutex_;  ///< of the following
  std::optional<std::string> text_;
  Nanos fresh_until_ = 0;
};

}  // namespace ina::metrics
