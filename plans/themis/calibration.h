// A dimension's rates and latency from measured times, and a topology as the YAML that planners
// read. Pure: client/calibration.h measures.
#pragma once

#include <cstdint>
#include <string>

#include "plans/themis/topology.h"

namespace ina::themis {

/// Times of one dimension's collectives, all its groups at once. Of the slowest rank.
struct DimensionTimes {
  /// The times of vectors of two sizes.
  struct Pair {
    int64_t smaller_ns = 0;
    int64_t larger_ns = 0;
  };
  int64_t least_ns = 0;  ///< of an all-reduce of one element
  uint64_t smaller_bytes = 0;
  uint64_t larger_bytes = 0;
  Pair all_reduce, reduce_scatter, all_gather;
};

/// Bits a second, from the time of the larger vector beyond that of the smaller one. If it takes no
/// longer, which is noise, from its whole time.
uint64_t measured_bits_per_s(const DimensionTimes& times, const DimensionTimes::Pair& pair);

/// The dimension as a switch that aggregates. Its rate is that of all-gathers, which add nothing
/// up; where sums are slower, the switch's aggregation limits them. Its step takes as long as the
/// least all-reduce. Within what a topology may have.
Dimension calibrated(Dimension dimension, const DimensionTimes& times);

/// As plans/themis/text/topology_file.h reads it again, but that rates are rounded to six digits.
std::string to_yaml(const Topology& topology);

}  // namespace ina::themis
