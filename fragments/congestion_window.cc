#include "fragments/congestion_window.h"

namespace ina::client {

namespace {

constexpr uint32_t kLeastForCongestion = 4;
// No smaller window where packets are lost, but not in queues.
constexpr uint32_t kLeastWithoutQueues = 32;
constexpr uint64_t kFewLostPercent = 2;

}  // namespace

CongestionWindow::CongestionWindow(const WindowConfig& config)
    : most_(config.most * kWindowUnit),
      least_(share_of(kLeastForCongestion, config.workers) * kWindowUnit),
      least_without_queues_(share_of(kLeastWithoutQueues, config.workers) * kWindowUnit),
      window_(config.first != 0 ? std::min(most_, config.first * kWindowUnit) : most_),
      eager_(config.first != 0 ? kWindowUnit : 0) {}

/// A loss need not mean congestion, unless round trips say so, too, as in TCP Veno (Fu and Liew,
/// 2003, section III-A). Round trips are long where hosts are busy, too, so that few losses do not
/// count, as in BBR (draft-cardwell-ccwg-bbr, section 2.7, LossThresh).
void CongestionWindow::lost(Seq seq, Seq next, const RoundTrip& rtt) {
  lost_share_ += (kWindowUnit - lost_share_) / kLossSamples;
  const bool overrun = rtt.in_queues() && lost_share_ >= kWindowUnit / 100 * kFewLostPercent;
  reduce(seq, next, overrun ? least_ : least_without_queues_);
}

/// What limits a worker may be its own link, or its operations. Then the network may hold less than
/// the window, which would show only when others begin to send (RFC 7661).
void CongestionWindow::end_round(Seq next, uint32_t in_flight) {
  grows_ = is_window_used(window_, most_in_flight_);
  most_in_flight_ = in_flight;
  round_end_ = next;
}

void CongestionWindow::reduce(Seq seq, Seq next, uint64_t least) {
  eager_ = 0;
  if (seq < recovery_end_) return;
  window_ = std::max(std::min(least, most_), window_ / 2);
  recovery_end_ = next;
}

}  // namespace ina::client
