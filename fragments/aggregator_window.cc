#include "fragments/aggregator_window.h"

#include <algorithm>

namespace ina::client {

namespace {

constexpr uint32_t kLeastForAggregators = 8;
// An array in which something was split is one that splits for so many of the largest windows.
constexpr uint64_t kSplitWindows = 4;

}  // namespace

AggregatorWindow::AggregatorWindow(const WindowConfig& config)
    : most_(config.most * kWindowUnit),
      ahead_(config.ahead != 0 ? std::min(most_, config.ahead * kWindowUnit) : most_),
      least_(share_of(kLeastForAggregators, config.workers) * kWindowUnit),
      window_(config.first_aggregators != 0
                  ? std::min(most_, config.first_aggregators * kWindowUnit)
                  : most_),
      only_if_used_(config.ahead != 0),
      distances_(config.distances) {}

void AggregatorWindow::whole(Seq seq, uint32_t in_flight, const RoundTrip& rtt) {
  if (seq >= recovery_end_) contended_ = false;
  grow(in_flight, rtt);
}

void AggregatorWindow::grow(uint32_t in_flight, const RoundTrip& rtt) {
  if (window_ == most_) return;
  if ((was_split_ || only_if_used_) && !is_window_used(window_, in_flight)) return;
  const bool needed = only_distance(rtt);
  const bool lossy = losing_ && !rtt.in_queues();
  if (window_ >= ahead_ && !needed && !lossy) return;
  uint64_t step = was_split_ ? kWindowUnit * kWindowUnit / window_ : kWindowUnit;
  if (needed) step = kWindowUnit / 2;
  window_ = std::min(most_, window_ + step);
}

void AggregatorWindow::split(Seq seq, Seq next, uint32_t in_flight, const RoundTrip& rtt) {
  // Slots are held by what is lost, which a smaller window would not change.
  if (losing_) return whole(seq, in_flight, rtt);
  was_split_ = true;
  splits_end_ = std::max(splits_end_, seq + kSplitWindows * (most_ / kWindowUnit));
  if (only_distance(rtt)) return grow(in_flight, rtt);
  contended_ = true;
  if (seq < recovery_end_) return;
  window_ = std::max(std::min(least_, most_), window_ / 4 * 3);
  recovery_end_ = next;
}

}  // namespace ina::client
