// The planning problem, and the costs of operations.
#pragma once

#include <cstdint>

#include "plans/redistribution/layout.h"

namespace ina::redistribution {

/// A linear model of the transport and the memory: an operation takes
///   alpha + messages * message + bytes / bandwidth + copied / copying
/// where messages and bytes are those of the busiest rank, in the direction with more of them, and
/// copied are the bytes that a rank brings into another order before and after. The
/// defaults are of a software switch on 10 Gb/s links; they are assumptions, not measurements.
struct CostModel {
  double operation_us = 20;        ///< alpha: from the start of an operation to its first byte
  double message_us = 1;           ///< for each peer to which a rank sends
  double bytes_per_us = 1250;      ///< beta: of a rank's link, each direction
  double copied_bytes_per_us = 0;  ///< of a rank's memory; 0: copies take no time

  double time_us(uint64_t messages, double bytes) const {
    return operation_us + static_cast<double>(messages) * message_us + bytes / bytes_per_us;
  }
  double copies_us(double bytes) const {
    return copied_bytes_per_us > 0 ? bytes / copied_bytes_per_us : 0;
  }
  bool operator==(const CostModel&) const = default;
};

/// The messages of a rank that gathers in a group. Where all ranks gather, the switch copies what
/// each sends once.
inline uint32_t gather_messages(uint64_t group, uint32_t ranks) {
  return group == ranks ? 1 : static_cast<uint32_t>(group) - 1;
}

struct Problem {
  Mesh mesh;
  Shape shape;  ///< of the whole array
  uint32_t element_bytes = 4;
  Layout from;
  Layout to;
  CostModel costs;
  uint64_t limit_bytes = 0;  ///< of the buffers of a rank, source and target included; 0: none

  uint64_t source_elements() const { return elements_of(tile_shape(mesh, from, shape)); }
  uint64_t target_elements() const { return elements_of(tile_shape(mesh, to, shape)); }
};

/// Error: layouts that do not fit the mesh and the shape, no elements or too many of them, or costs
/// that are none.
Expected<void> check_problem(const Problem& problem);

}  // namespace ina::redistribution
