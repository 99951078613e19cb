// The limit on one thread's time that one source may take. Knows no clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

#include "wire/types.h"

namespace ina::control {

/// Time spent for a source counts as its debt, which goes down by a share of the time that passes.
/// Above a bound the source waits, with all its requests and connections. The table is bounded:
/// sources for which it has no room share an entry.
class WorkBudget {
 public:
  struct Limits {
    Nanos burst_ns = 10'000'000;
    uint32_t one_in = 4;  ///< share of the time: a fourth
    size_t sources = 4096;
  };

  WorkBudget() : WorkBudget(Limits{}) {}
  explicit WorkBudget(const Limits& limits) : limits_(limits) {}

  void charge(uint64_t source, Nanos spent, Nanos now) {
    Debt& debt = at(source, now);
    debt.ns += spent;
  }
  /// When the source may be served again; not after `now`: at once.
  Nanos free_at(uint64_t source, Nanos now) {
    auto found = debts_.find(source);
    if (found == debts_.end() && debts_.size() >= limits_.sources) found = debts_.find(kOthers);
    if (found == debts_.end()) return now;
    settle(found->second, now);
    return now + std::max<Nanos>(0, found->second.ns - limits_.burst_ns) * limits_.one_in;
  }
  size_t size() const { return debts_.size(); }

 private:
  static constexpr uint64_t kOthers = UINT64_MAX;
  struct Debt {
    Nanos ns = 0;
    Nanos settled = 0;
  };

  void settle(Debt& debt, Nanos now) const {
    debt.ns = std::max<Nanos>(0, debt.ns - (now - debt.settled) / limits_.one_in);
    debt.settled = now;
  }
  Debt& at(uint64_t source, Nanos now) {
    if (!debts_.contains(source) && debts_.size() + 1 >= limits_.sources) {
      for (auto entry = debts_.begin(); entry != debts_.end();) {
        settle(entry->second, now);
        entry = entry->second.ns == 0 ? debts_.erase(entry) : std::next(entry);
      }
      if (debts_.size() + 1 >= limits_.sources) source = kOthers;
    }
    Debt& debt = debts_.try_emplace(source, Debt{0, now}).first->second;
    settle(debt, now);
    return debt;
  }

  Limits limits_;
  std::map<uint64_t, Debt> debts_;
};

}  // namespace ina::control
