// What those that wait at a member look at: has it begun, and is its switch there?
#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "membership/callers.h"
#include "wire/types.h"

namespace ina::membership {

/// Written by the thread that reads the control connection, and before there is one by the joining
/// thread.
class Presence {
 public:
  /// `callers`: outlives it.
  explicit Presence(const Callers& callers) : callers_(callers) {}

  // From any thread.
  /// All workers have joined.
  bool is_live() const { return live_.load(); }
  /// The switch is gone, and not back yet.
  bool is_away(std::memory_order order = std::memory_order_seq_cst) const {
    return away_.load(order);
  }
  /// The ranks for which the switch waits, in words; empty: it is not known to wait for any.
  std::string others_missing() const {
    const auto state = callers_.lock();
    return others_missing_;
  }
  /// Why nothing goes on, in words; empty if the switch is there. `url`: of the switch.
  std::string away_text(const std::string& url, Nanos now) const;

  void go_live() { live_ = true; }
  /// The connection broke. Under the lock of `callers`.
  void go_away(Nanos now) {
    if (!is_away()) away_since_ = now;
    others_missing_.clear();
    away_ = true;
  }
  /// Under the lock of `callers`.
  void come_back() { away_ = false; }
  /// The time to come back starts anew. `others_missing`: as others_missing().
  void wait_anew(Nanos now, std::string others_missing) {
    const auto state = callers_.lock();
    away_since_ = now;
    others_missing_ = std::move(others_missing);
  }
  /// When it began to wait for the switch. By the thread that writes it.
  Nanos away_since() const { return away_since_; }
  void set_others_missing(std::string others_missing) {
    const auto state = callers_.lock();
    others_missing_ = std::move(others_missing);
  }

 private:
  const Callers& callers_;
  std::atomic<bool> live_{false};
  std::atomic<bool> away_{false};
  std::string others_missing_;  ///< under the lock of `callers`
  Nanos away_since_ = 0;        ///< under it, too; its writer reads it without
};

}  // namespace ina::membership
