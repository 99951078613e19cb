// Iterations of training: computation and the collectives that wait for it, one after the other.
//
// The model: a processor computes at 234 TFLOP/s (312, the peak of an A100 in 16 bits, at 75 %).
// All communication is exposed: gradients are summed once the backward pass is over, activations
// and embeddings where the next layer waits for them. Bytes are those of the Themis paper's
// workloads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plans/themis/planner.h"

namespace ina::bench {

/// Collectives that run at the same time.
struct Exchange {
  std::vector<themis::Request> requests{};
  /// Among whom: all; those of a model-parallel group; those of the same place in all groups.
  enum class Among : uint8_t { kAll, kGroup, kAcrossGroups } among = Among::kAll;
  uint32_t times = 1;
};

struct Workload {
  std::string name{};
  std::string assumptions{};
  double flops = 0;  ///< of one participant in an iteration
  std::vector<Exchange> exchanges{};
  double published_speedup = 0;        ///< mean over the topologies (ISCA version)
  double published_first_speedup = 0;  ///< that of the first version's abstract
};

/// ResNet-50, GNMT, DLRM, and one layer of Transformer-1T.
std::vector<Workload> workloads();

inline constexpr double kFlopsPerS = 234e12;
/// Participants that hold one copy of Transformer-1T together.
inline constexpr uint32_t kModelParallel = 128;

/// Two halves of a topology: the first has `participants`, of the first dimensions; one that has to
/// be cut is in both.
struct Halves {
  themis::Topology group;
  themis::Topology across;
};
Halves split(const themis::Topology& topology, uint32_t participants);

/// The time of an iteration's exchanges, in seconds.
double communication_s(const Workload& workload, const themis::Topology& topology,
                       const themis::PlanOptions& options);

}  // namespace ina::bench
