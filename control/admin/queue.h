// The queue by which other threads ask the conductor: those of the HTTP server and of DPDK's
// telemetry.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>

#include "common/fd.h"
#include "common/json/json.h"
#include "wire/types.h"

namespace ina::admin {

enum class Question : uint8_t {
  kStatus,  ///< as `inactl status --json` prints it
  /// The status without the fragments that jobs wait for, which take a lane long to find: to be
  /// asked often.
  kCounters,
  kSlots,  ///< control::request::GetSlots
};

/// Nothing: too many ask at once, the switch stops, or it did not get round to it in time.
using Answer = std::optional<nlohmann::json>;

/// Questions on their way to the conductor. The thread that asks waits; the conductor never does.
class Queue {
 public:
  /// More are turned away: somebody asks faster than the switch can answer.
  static constexpr size_t kMaxWaiting = 64;

  Queue();

  /// From any thread but the conductor's. Waits at most `timeout_ns`; a question that the conductor
  /// has not begun with by then is forgotten.
  Answer ask(Question question, Nanos timeout_ns);

  // The conductor's side.
  /// Readable when something waits.
  int event_fd() const { return event_.get(); }
  using Handler = std::function<Answer(Question)>;
  /// Answers what waits.
  void serve(const Handler& handler);
  /// Turns away waiting questions and all later ones.
  void close();

 private:
  struct Call {
    Question question{};
    std::promise<Answer> answer;
  };

  Fd event_;
  std::mutex mutex_;  ///< of the following
  std::deque<std::shared_ptr<Call>> waiting_;
  bool closed_ = false;
};

}  // namespace ina::admin
