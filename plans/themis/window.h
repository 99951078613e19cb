// The window of a dimension whose switch carries plans out: so many fragments of all ranks of a
// group together may be under way (docs/protocol.md, rule C1).
//
// Fragments are numbered in the order of operations, the closing one of each among them. A rank
// sends fragment s once it has the results of all fragments up to s - W. So a fragment takes the
// place of the one that is W before it, and gets it when that one and all before have come back.
#pragma once

#include <cstdint>
#include <vector>

#include "plans/themis/plan.h"

namespace ina::themis {

class Window {
 public:
  struct Sending {
    Picos start_ps = 0;
    Picos stalled_ps = 0;  ///< meanwhile, because its own fragments are still under way
  };

  /// `fragments`: W, or 0: there is no limit. `ring_ps`: how long a rank sends what it has put on
  /// the ring of its link, which a closing fragment does not overtake.
  Window(uint32_t fragments, Picos ring_ps) : most_(fragments), ring_ps_(ring_ps) { clear(); }

  bool limits() const { return most_ != 0; }
  void clear();

  /// Sends a stage that may begin at `ready_ps`, after those sent before it.
  Sending send(const Stage& stage, Picos ready_ps);
  /// The times of what was sent last.
  void sent(const Stage& stage, const Operation& operation);

 private:
  /// Fragments whose results come evenly spread, or a closing one.
  struct Run {
    Picos back_ps(uint64_t fragment) const;
    uint64_t fragments = 0;
    Picos first_ps = 0;  ///< when the first one is back. A closing one: when ranks can send it
    Picos last_ps = 0;   ///< when the last one is. A closing one: if it waits for no other frames
    bool is_closing = false;
  };
  /// From `free_ps` on there was a place for fragments that were not sent before `sent_ps`.
  struct Place {
    Picos free_ps = 0;
    Picos sent_ps = 0;
  };

  Picos take_places(uint64_t from, uint64_t to, Picos start_ps, Picos each_ps);
  Picos take_place(Picos free_ps, Picos after_ps, Picos start_ps);
  void settle_closing(Run& run, Picos start_ps, Picos sent_ps) const;

  uint64_t most_;
  Picos ring_ps_;
  uint64_t unused_ = 0;  ///< places that no fragment has had
  std::vector<Run> runs_;
  size_t oldest_ = 0;  ///< of runs_ whose places nobody took
  std::vector<Place> places_;
  Picos back_ps_ = 0;  ///< all before the oldest are
  Picos busy_ps_ = 0;  ///< until then ranks send what was sent last
};

}  // namespace ina::themis
