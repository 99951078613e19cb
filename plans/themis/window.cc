#include "plans/themis/window.h"

#include <algorithm>

namespace ina::themis {
namespace {

/// A tenth of a second. More would not fit into 64 bits as often as the largest collective waits.
constexpr Picos kMostStallPs = 100'000'000'000;

/// Until a rank knows of results that are not its own. The switch keeps those of an all-to-all
/// until the rank's next turn to receive.
Picos joined_ps(const Stage& stage) {
  return stage.phase == Phase::kAllToAll ? stage.first_ps : 0;
}

/// From the begin of sending until results are back: to the switch, and from it.
Picos round_trip_ps(const Stage& stage) {
  return 2 * stage.first_ps + stage.latency_ps + joined_ps(stage);
}

}  // namespace

/// When `fragment` of it is back, of more than one.
Picos Window::Run::back_ps(uint64_t fragment) const {
  const Picos each_ps = (last_ps - first_ps) / static_cast<Picos>(fragments - 1);
  return first_ps + static_cast<Picos>(fragment) * each_ps;
}

void Window::clear() {
  unused_ = most_;
  runs_.clear();
  oldest_ = 0;
  places_.clear();
  back_ps_ = busy_ps_ = 0;
}

Window::Sending Window::send(const Stage& stage, Picos ready_ps) {
  if (!limits() || stage.fragments == 0) return {ready_ps, 0};
  const Picos each_ps = stage.fragment_ps;
  Sending sending{take_places(0, stage.fragments, ready_ps, each_ps), 0};
  // The stage does not wait for the place of its closing fragment, which goes much later.
  if (stage.close_ps != 0)
    take_places(stage.fragments, stage.fragments + 1, sending.start_ps, each_ps);
  if (stage.fragments > most_) {
    const auto laps = static_cast<Picos>((stage.fragments - 1) / most_);
    const Picos lap_ps = static_cast<Picos>(most_) * each_ps;
    sending.stalled_ps = laps * std::clamp<Picos>(round_trip_ps(stage) - lap_ps, 0, kMostStallPs);
  }
  return sending;
}

/// Gives places to fragments `from` to `to` of a stage, which are sent `each_ps` apart. Begin of
/// the stage so that every one of them has its place in time.
Picos Window::take_places(uint64_t from, uint64_t to, Picos start_ps, Picos each_ps) {
  const auto after_ps = [&](uint64_t fragments) { return static_cast<Picos>(fragments) * each_ps; };
  const uint64_t never_used = std::min(to - from, unused_);
  unused_ -= never_used;
  from += never_used;
  while (from < to && oldest_ < runs_.size()) {
    Run& run = runs_[oldest_];
    if (run.is_closing) settle_closing(run, start_ps, start_ps + after_ps(from));
    const uint64_t taken = std::min(run.fragments, to - from);
    const bool is_part = taken < run.fragments;
    const Picos last_ps = is_part ? run.back_ps(taken - 1) : run.last_ps;
    start_ps = take_place(run.first_ps, after_ps(from), start_ps);
    if (taken > 1) start_ps = take_place(last_ps, after_ps(from + taken - 1), start_ps);
    from += taken;
    if (is_part) run.first_ps = run.back_ps(taken);
    run.fragments -= taken;
    if (!is_part) ++oldest_;
  }
  return start_ps;
}

/// The place of a fragment that is back at `free_ps`, for one that is sent `after_ps` the begin.
Picos Window::take_place(Picos free_ps, Picos after_ps, Picos start_ps) {
  back_ps_ = std::max(back_ps_, free_ps);
  places_.push_back({back_ps_, start_ps + after_ps});
  return std::max(start_ps, back_ps_ - after_ps);
}

/// A closing fragment waits behind the frames that found places before it could be sent, as far as
/// they are on the ring by then. `sent_ps`: when a stage that begins at `start_ps` has sent all
/// that do not need the closing fragment's place.
void Window::settle_closing(Run& run, Picos start_ps, Picos sent_ps) const {
  const Picos ready_ps = run.first_ps;
  for (auto place = places_.rbegin(); place != places_.rend() && place->free_ps > ready_ps; ++place)
    sent_ps = place->sent_ps;
  if (start_ps > std::max(ready_ps, busy_ps_)) sent_ps = busy_ps_;  // the link idles before it
  run.first_ps = run.last_ps + std::clamp<Picos>(sent_ps - ready_ps, 0, ring_ps_);
}

void Window::sent(const Stage& stage, const Operation& operation) {
  if (!limits() || stage.fragments == 0) return;
  const Picos first_ps = std::max(operation.tx_start_ps + stage.first_ps, operation.rx_start_ps) +
                         stage.latency_ps + joined_ps(stage);
  Run run{.fragments = stage.fragments,
          .first_ps = std::min(first_ps, operation.end_ps),
          .last_ps = operation.end_ps};
  if (run.fragments > most_) {
    run.first_ps = run.back_ps(run.fragments - most_);
    run.fragments = most_;
  }
  runs_.push_back(run);
  if (stage.close_ps != 0)
    runs_.push_back({.fragments = 1,
                     .first_ps = operation.end_ps,
                     .last_ps = operation.end_ps + stage.close_ps,
                     .is_closing = true});
  busy_ps_ = operation.tx_end_ps;
}

}  // namespace ina::themis
