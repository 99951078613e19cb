// The window of a dimension whose switch carries plans out: so many fragments of all ranks of a
// group together may be under way.
//
// The model of docs/protocol.md's rule C1. Fragments are numbered in the order of operations, and a
// rank sends fragment s only when it has all results up to s - W. So a fragment stands in the
// window from the time at which it is sent until its result, and those of all before it, are back.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/themis/topology.h"

namespace ina::themis {

class Window {
 public:
  /// 0: there is no limit.
  explicit Window(uint32_t fragments) : most_(fragments), free_(fragments) {}

  bool limits() const { return most_ != 0; }
  void clear();

  /// Gives places to an operation's next `fragments`, which leave `each_ps` apart. When the first
  /// one may leave so that all others find a place in time, at `ready_ps` or later. Those that
  /// take the place of fragments of the same operation are not looked at: lapped_ps().
  Picos admit(Picos ready_ps, uint64_t fragments, Picos each_ps);
  /// How long sending takes if each fragment comes back after `trip_ps`.
  Picos lapped_ps(uint64_t fragments, Picos each_ps, Picos trip_ps) const;
  /// Results of the fragments that were admitted last come back in this time.
  void settle(uint64_t fragments, Picos first_ps, Picos last_ps);

 private:
  /// Fragments with their results' times, which are evenly spread.
  struct Run {
    uint64_t fragments = 0;
    Picos first_ps = 0;
    Picos last_ps = 0;
    Picos each_ps() const {
      return fragments > 1 ? (last_ps - first_ps) / static_cast<Picos>(fragments - 1) : 0;
    }
  };

  uint64_t most_;
  uint64_t free_;  ///< places that no fragment has had yet
  std::vector<Run> runs_;
  size_t oldest_ = 0;  ///< of runs_, whose places were not given on yet
  Picos latest_ps_ = 0;
};

}  // namespace ina::themis
