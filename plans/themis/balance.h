// The scheduler of "Themis: A Network Bandwidth-Aware Collective Scheduling Policy for Distributed
// Training of DL Models" (Rashidi et al., ISCA 2022), algorithm 1. Each chunk takes the dimensions
// in the order of the load that earlier chunks have put on them.
#pragma once

#include <cstdint>
#include <vector>

#include "plans/themis/chunks.h"
#include "plans/themis/plan.h"

namespace ina::themis {

/// The chunks that may go through an aggregating switch.
enum class InNetwork : uint8_t {
  kNever,
  kByLoad,  ///< of each chunk, where that leaves its dimension less loaded
  kAlways,
};

/// Gives chunks their ways, one after another. Loads are times of sending and of receiving in
/// each dimension, apart; the larger one counts. Of an all-reduce the fixed latencies count
/// whole, and half of its bytes, which point to point are its reduce-scatter: as in the
/// paper.
class Balancer {
 public:
  Balancer(const Topology& topology, InNetwork in_network);

  /// A collective begins: loads start from its fixed latencies, or from their last values with
  /// these added (`carry_loads`).
  void begin(Collective collective, bool carry_loads);
  /// The way of the next chunk, with the dimensions in the paper's order. It counts as loaded.
  Way next(uint64_t chunk_bytes);
  /// The way of the next chunk, with the order given. It counts as loaded.
  Way next_in_order(uint64_t chunk_bytes, std::vector<uint8_t> order);

  Picos load_ps(size_t dimension) const;

 private:
  struct Cost {
    Picos tx_ps = 0;
    Picos rx_ps = 0;
  };

  std::vector<uint8_t> order_of_loads(uint64_t held_bytes) const;
  bool is_even(uint64_t held_bytes) const;
  bool prefers_network(uint8_t dimension, bool is_last, uint64_t held_bytes) const;
  Cost cost_of(uint8_t dimension, bool in_network, bool is_last, uint64_t held_bytes) const;

  const Topology& topology_;
  InNetwork in_network_;
  Collective collective_ = Collective::kAllReduce;
  std::vector<Cost> loads_;
};

}  // namespace ina::themis
