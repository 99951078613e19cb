// `inactl top`: the rates of a switch each second, from two of its statuses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/json/json.h"

namespace ina::cli {

/// Rates are per second, of the time between the statuses.
struct Top {
  struct Lane {
    uint64_t lane = 0;
    double busy = 0;  ///< share of the time, 0..1
    double packets = 0;
  };
  /// Frames for others than the switch.
  struct Transit {
    std::string link;  ///< now
    double forwarded = 0;
    double forwarded_bytes = 0;  ///< flooded ones included
    double flooded = 0;
    double sent_bytes = 0;  ///< of other ports
    double lost = 0;        ///< of other ports
    double learned = 0;     ///< addresses
    double moved = 0;       ///< addresses that were at another port
  };
  struct Port {
    std::string name;
    double rx_bytes = 0;
    double tx_bytes = 0;
    double drops = 0;
    std::optional<Transit> transit;  ///< of one that forwards
  };
  struct Job {
    std::string name;  ///< as inactl takes it
    std::string state;
    uint64_t joined = 0;
    uint64_t world_size = 0;
    double fragments = 0;  ///< completed
    double bytes = 0;      ///< of these, at most: slots that are not full count as full
    double offload = 0;    ///< share of contributions that were added in a slot; 0: there were none
    double preempted = 0;
    uint64_t slots_held = 0;            ///< now
    std::vector<uint64_t> waiting_for;  ///< ranks, now
  };
  double seconds = 0;
  std::string policy;
  uint64_t slots = 0;
  uint64_t slots_used = 0;  ///< now
  double aggregator_drops = 0;
  std::vector<Lane> lanes;
  std::vector<Port> ports;
  std::vector<Job> jobs;  ///< the busiest first
};

/// `before` and `now`: of one switch, in this order. Counters missing in one of them count as 0.
Top top(const nlohmann::json& before, const nlohmann::json& now);

/// Tables for a terminal of `width` columns, or of any (0). At most `most_jobs` jobs; a line says
/// how many are left out.
std::string format_top(const Top& top, size_t most_jobs, size_t width = 0);

nlohmann::json top_json(const Top& top);

}  // namespace ina::cli
