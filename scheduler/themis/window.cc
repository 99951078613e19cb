#include "scheduler/themis/window.h"

#include <algorithm>

namespace ina::themis {

void Window::clear() {
  free_ = most_;
  runs_.clear();
  oldest_ = 0;
  latest_ps_ = 0;
}

Picos Window::admit(Picos ready_ps, uint64_t fragments, Picos each_ps) {
  uint64_t passed = std::min(fragments, free_);
  free_ -= passed;
  const auto sent_ps = [&](uint64_t after) { return static_cast<Picos>(after) * each_ps; };
  while (passed < fragments && oldest_ < runs_.size()) {
    Run& run = runs_[oldest_];
    const uint64_t taken = std::min(run.fragments, fragments - passed);
    const Picos step_ps = run.each_ps();
    const Picos last_ps = taken == run.fragments
                              ? run.last_ps
                              : run.first_ps + static_cast<Picos>(taken - 1) * step_ps;
    ready_ps = std::max({ready_ps, run.first_ps - sent_ps(passed),
                         last_ps - sent_ps(passed + taken - 1)});
    passed += taken;
    run.fragments -= taken;
    run.first_ps += static_cast<Picos>(taken) * step_ps;
    if (run.fragments == 0) ++oldest_;
  }
  return ready_ps;
}

Picos Window::lapped_ps(uint64_t fragments, Picos each_ps, Picos trip_ps) const {
  if (fragments == 0) return 0;
  const auto all = static_cast<Picos>(fragments), most = static_cast<Picos>(most_);
  const Picos laps = (all - 1) / most;
  return laps * std::max(trip_ps, most * each_ps) + (all - laps * most) * each_ps;
}

void Window::settle(uint64_t fragments, Picos first_ps, Picos last_ps) {
  if (fragments == 0) return;
  Run run{fragments, std::max(first_ps, latest_ps_), std::max(last_ps, latest_ps_)};
  if (fragments > most_) {
    run.first_ps += static_cast<Picos>(fragments - most_) * run.each_ps();
    run.fragments = most_;
  }
  runs_.push_back(run);
  latest_ps_ = run.last_ps;
}

}  // namespace ina::themis
