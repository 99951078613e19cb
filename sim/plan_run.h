// A planned collective over several dimensions, carried out. Each group of a dimension has an
// aggregating switch, and each rank the client's executor and engines. All of them are the
// product's own objects, on ns-3's links with the topology's rates and latencies. The prediction of
// the planner's model stands beside it.
#pragma once

#include <string>
#include <vector>

#include "aggregator/aggregator.h"
#include "plans/themis/planner.h"
#include "sim/fabric.h"

namespace ina::sim {

struct PlanSpec {
  themis::Topology topology;
  themis::Collective collective = themis::Collective::kAllReduce;
  uint64_t bytes = 0;           ///< of the whole vector; rounded up to whole elements of all ranks
  themis::PlanOptions options;  ///< but for element_bytes and in_network
  uint32_t rounds = 2;          ///< one after the other: windows are those of the round before
  uint32_t most_rounds = 0;     ///< further ones, while windows still grow and rounds get faster
  uint32_t fragment_bytes = 8192;  ///< of a payload on the wire
  uint32_t value_bytes = 512;      ///< of these, that are really there; divides fragment_bytes
  uint32_t slots = 2048;           ///< of each switch
  scheduler::PolicyOptions policy{.kind = scheduler::PolicyKind::kEsa};
  uint32_t window = 512;  ///< W
  bool aggregator_window = true;
  bool congestion_window = true;
  uint64_t queue_bytes = 100'000'000;  ///< of a port
  uint64_t ecn_bytes = 0;              ///< a frame that finds more queued is marked; 0: never
  bool express = false;                ///< frames without payload do not wait for those with
  double loss = 0;
  Nanos rto_min_ns = 1'000'000;
  Nanos rto_max_ns = 100'000'000;
  uint64_t seed = 0;
  ns3net::Links links = ns3net::Links::kComputed;
  Nanos limit_ns = 600'000'000'000;
};

/// The time of a plan by models, without simulation of packets.
struct Predictions {
  /// The planner's, by the kinds of the topology: ring, direct, halving-doubling, ina.
  themis::Picos by_kind_ps = 0;
  /// The planner's, with the same order of operations, each of them by an aggregating switch at its
  /// ports' rate. That is how ranks carry it out.
  themis::Picos by_switches_ps = 0;
};

struct PlanRound {
  Nanos agreed_ns = 0;  ///< from the start until the first rank knew that all have the same plan
  Nanos took_ns = 0;    ///< from then on until the last rank was done
};

/// Bytes of one rank, on average, in the last round.
struct DimensionUse {
  uint64_t model_tx_bytes = 0;  ///< by switches
  uint64_t model_rx_bytes = 0;
  double tx_wire_bytes = 0;
  double rx_wire_bytes = 0;
};

struct PlanOutcome {
  std::vector<std::string> violations;  ///< empty: every element was right
  themis::Plan plan;
  Predictions predictions;
  std::vector<PlanRound> rounds;
  std::vector<DimensionUse> dimensions;
  uint64_t elements_checked = 0;
  uint64_t queue_drops = 0, losses = 0, marks = 0;
  uint64_t queries = 0, by_fallback = 0, bypassed = 0, resent = 0;
  uint64_t wire_bytes = 0, frames = 0, events = 0;

  /// By how much the last round took longer than a prediction, as a part of that.
  double beyond(themis::Picos predicted_ps) const;
};

/// Throws std::invalid_argument with a sentence if the specification makes no sense.
PlanOutcome run_plan(const PlanSpec& spec);

/// The plan with the same order, each operation by an aggregating switch.
themis::Plan by_switches(const themis::Plan& plan);

}  // namespace ina::sim
