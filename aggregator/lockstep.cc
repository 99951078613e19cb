#include "aggregator/lockstep.h"

#include <algorithm>

namespace ina::aggregator {

namespace {

// Nothing is said before each worker has done so much.
constexpr double kEvidenceWindows = 4;
// Messages of help get lost where they overrun links; that costs time-outs, which no rate shows.
constexpr double kToleratedOneIn = 32;
// The play is no more exact than this.
constexpr double kAsGood = 1.01;

}  // namespace

Lockstep::Lockstep(uint32_t workers, uint64_t window, Nanos step, Nanos horizon)
    : workers_(workers),
      window_(window),
      step_(std::max<Nanos>(1, step)),
      horizon_(std::max<Nanos>(1, horizon)) {}

void Lockstep::begin(std::span<const Seq> progress, const Help& help, Nanos now) {
  looked_at_ = now;
  help_before_ = help;
  low_ = std::ranges::min(progress).value;
  for (uint32_t i = 0; i < workers_; ++i) {
    before_[i] = progress[i];
    would_be_[i] = std::min(progress[i].value, low_ + window_);
  }
  done_ = would_have_ = parked_ = messages_ = asked_ = 0;
}

void Lockstep::look(std::span<const Seq> progress, const Help& help, Nanos now) {
  const Nanos span = now - looked_at_;
  if (span < step_) return;
  looked_at_ = now;
  const double kept = std::max(0.0, 1 - static_cast<double>(span) / static_cast<double>(horizon_));
  uint64_t done = 0;
  uint64_t low = UINT64_MAX;
  for (uint32_t i = 0; i < workers_; ++i) {
    const uint64_t own = progress[i] - before_[i];
    before_[i] = progress[i];
    done += own;
    would_be_[i] += own;
    low = std::min(low, would_be_[i]);
  }
  for (uint64_t& at : std::span(would_be_).first(workers_)) at = std::min(at, low + window_);
  done_ = done_ * kept + static_cast<double>(done);
  would_have_ = would_have_ * kept + static_cast<double>(low - low_);
  parked_ = parked_ * kept + static_cast<double>(help.parked - help_before_.parked);
  messages_ = messages_ * kept + static_cast<double>(help.messages - help_before_.messages);
  asked_ = asked_ * kept + static_cast<double>(help.asked - help_before_.asked);
  low_ = low;
  help_before_ = help;
}

bool Lockstep::pays() const {
  const double each = done_ / workers_;
  if (parked_ == 0 || each < kEvidenceWindows * static_cast<double>(window_)) return true;
  if (asked_ * kToleratedOneIn > messages_) return false;
  // A result goes to each worker, a message of help to one.
  return each * kAsGood > would_have_ * (1 + messages_ / done_);
}

}  // namespace ina::aggregator
