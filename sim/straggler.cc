#include "sim/straggler.h"

#include <algorithm>
#include <cmath>

namespace ina::sim {

Pace::Segment Pace::segment_at(Nanos time) {
  switch (spec_.pattern) {
    case Pattern::kPermanent:
      return {INT64_MAX, rank_ == 0 ? 1 / spec_.factor : 1};
    case Pattern::kRotating: {
      const Nanos turn = (time + spec_.phase_ns) / spec_.period_ns;
      return {(turn + 1) * spec_.period_ns - spec_.phase_ns,
              turn % workers_ == rank_ ? 1 / spec_.factor : 1};
    }
    case Pattern::kRandom: {
      const auto wait = [this](double mean_ns) {
        const double uniform = static_cast<double>((random_() >> 11) + 1) * 0x1p-53;
        return std::max<Nanos>(1, static_cast<Nanos>(-mean_ns * std::log(uniform)));
      };
      const auto stop_ns = static_cast<double>(spec_.period_ns);
      if (stops_.empty()) stops_.push_back(0);
      while (stops_.back() <= time)
        stops_.push_back(stops_.back() + wait(stops_.size() % 2 == 0
                                                  ? stop_ns
                                                  : stop_ns * (1 - spec_.stopped) / spec_.stopped));
      const auto next = std::ranges::upper_bound(stops_, time);
      const bool runs = (next - stops_.begin()) % 2 == 1;
      return {*next, runs ? 1.0 : 0.0};
    }
    default:
      return {INT64_MAX, 1};
  }
}

Nanos Pace::finish(Nanos start, Nanos work_ns, uint64_t fragments) {
  if (steady()) return start + work_ns;
  auto left = static_cast<double>(work_ns);
  if (spec_.pattern == Pattern::kShares) {
    const bool slow = fragments / spec_.share_fragments % workers_ == rank_;
    return start + static_cast<Nanos>(slow ? left * spec_.factor : left);
  }
  for (Nanos time = start;;) {
    const Segment segment = segment_at(time);
    const double needed = segment.speed > 0 ? left / segment.speed : INFINITY;
    if (segment.end == INT64_MAX || needed <= static_cast<double>(segment.end - time))
      return time + static_cast<Nanos>(needed);
    left -= static_cast<double>(segment.end - time) * segment.speed;
    time = segment.end;
  }
}

}  // namespace ina::sim
