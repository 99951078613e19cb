// All lanes, as the conductor reaches them: by commands.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <cassert>
#include <memory>
#include <vector>

#include "switchd/lane.h"

namespace ina::switchd {

class Lanes {
 public:
  using Commands = std::vector<std::unique_ptr<LaneCommand>>;

  explicit Lanes(std::vector<LaneLink*> lanes) : lanes_(std::move(lanes)) {}

  uint32_t count() const { return static_cast<uint32_t>(lanes_.size()); }
  auto begin() const { return lanes_.begin(); }
  auto end() const { return lanes_.end(); }
  /// Their threads run from now on. Commands posted before would be waited for without end.
  void set_running() { running_ = true; }

  /// Has every lane carry out a command of this kind, each a copy that `prepare(command, lane)` has
  /// completed, and waits for them.
  template <class Prepare>
  Commands run(LaneCommand::Kind kind, Prepare&& prepare) {
    assert(running_);
    Commands commands;
    // All of them before the first is posted: a lane must not work on one that memory ran out
    // after.
    for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
      commands.push_back(std::make_unique<LaneCommand>());
      commands.back()->kind = kind;
      prepare(*commands.back(), lane);
    }
    for (uint32_t lane = 0; lane < lanes_.size(); ++lane) lanes_[lane]->post(*commands[lane]);
    for (auto& command : commands)
      for (int polls = 0; !command->done.load(std::memory_order_acquire); ++polls) {
        if (polls < 100)
          ::sched_yield();
        else
          ::usleep(100);
      }
    return commands;
  }

 private:
  const std::vector<LaneLink*> lanes_;
  bool running_ = false;
};

}  // namespace ina::switchd
