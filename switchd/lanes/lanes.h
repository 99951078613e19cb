// All lanes, as the conductor reaches them: by commands.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "common/result.h"
#include "switchd/lanes/lane_link.h"

namespace ina::switchd {

class Lanes {
 public:
  /// One command for each lane, by lane.
  template <class Command>
  using Commands = std::vector<Posted<Command>>;

  explicit Lanes(std::vector<LaneLink*> lanes) : lanes_(std::move(lanes)) {}

  uint32_t count() const { return static_cast<uint32_t>(lanes_.size()); }
  auto begin() const { return lanes_.begin(); }
  auto end() const { return lanes_.end(); }
  /// Their threads run from now on. Commands posted before would be waited for without end.
  void set_running() { running_ = true; }

  /// Has every lane carry out this command, and waits for them.
  template <class Command>
  Commands<Command> run(const Command& command) {
    return run_each([&](uint32_t) { return command; });
  }
  /// run(), for a command that a lane may refuse. Error: the refusal of one.
  template <class Command>
  Result<void> run_all(const Command& command) {
    return run_each_all([&](uint32_t) { return command; });
  }
  /// run_each(), likewise.
  template <class Make>
  Result<void> run_each_all(Make&& make) {
    for (const auto& answered : run_each(make))
      if (!answered.error.empty()) return fail(INA_ERR_REFUSED, answered.error);
    return {};
  }
  /// Has every lane carry out the command that `make(lane)` returns, and waits for them.
  template <class Make, class Command = std::invoke_result_t<Make, uint32_t>>
  Commands<Command> run_each(Make&& make) {
    assert(running_);
    Commands<Command> commands(lanes_.size());
    // All of them before the first is posted: a lane must not work on one that memory ran out
    // after.
    for (uint32_t lane = 0; lane < lanes_.size(); ++lane)
      static_cast<Command&>(commands[lane]) = make(lane);
    for (uint32_t lane = 0; lane < lanes_.size(); ++lane) lanes_[lane]->post(&commands[lane]);
    for (uint32_t lane = 0; lane < lanes_.size(); ++lane) wait(*lanes_[lane], commands[lane].done);
    return commands;
  }

 private:
  static void wait(const LaneLink& lane, const std::atomic<bool>& done) {
    for (;;) {
      const uint32_t answered = lane.answered();
      if (done.load(std::memory_order_acquire)) return;
      lane.wait_for_answer(answered);
    }
  }

  const std::vector<LaneLink*> lanes_;
  bool running_ = false;
};

}  // namespace ina::switchd
