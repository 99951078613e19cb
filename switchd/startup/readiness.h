// `ina-switchd --self-test`: whether this machine is ready for a switch with a configuration, and
// the changes that it needs. Beyond obstacles to a start (switchd/startup/preflight.h) the
// self-test finds properties that limit the switch's speed or number of workers.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.h"
#include "switchd/startup/host_facts.h"
#include "switchd/startup/preflight.h"

namespace ina::switchd {

/// The state of one check. The verdict is the worst state of all checks.
enum class Readiness {
  kReady,
  kImprove,  ///< the switch serves, but slower than this machine could, or fewer workers
  kMissing,  ///< the switch does not start, or a port does not work
};
std::string_view readiness_name(Readiness readiness);

struct SelfTestRow {
  std::string check;
  Readiness state = Readiness::kReady;
  std::string found;                 ///< on one line
  std::vector<std::string> changes;  ///< steps to take: whole sentences; none where it is ready

  void improve(std::string change) { add(Readiness::kImprove, std::move(change)); }
  void missing(std::string change) { add(Readiness::kMissing, std::move(change)); }

 private:
  void add(Readiness at_least, std::string change) {
    state = std::max(state, at_least);
    changes.push_back(std::move(change));
  }
};

struct SelfTest {
  std::vector<SelfTestRow> rows;
  std::vector<std::string> not_checked;  ///< of the preflight
  Readiness verdict() const;
};

SelfTest self_test(const config::Config& config, const Machine& machine, const HostFacts& facts);

/// A table, the steps to take, and the verdict in a sentence.
std::string format_self_test(const SelfTest& result);

/// {"version": 1, "verdict", "ready", "checks": [{"check", "state", "found", "change": []}],
/// "not_checked": []}
nlohmann::json self_test_json(const SelfTest& result);

}  // namespace ina::switchd
