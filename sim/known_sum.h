// Contributions whose sum is known: base + rank * slope.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ina::sim {

inline uint32_t base_of(uint32_t operation, size_t element) {
  return static_cast<uint32_t>(element) * 2654435761u + operation * 40503u;
}
inline uint32_t slope_of(size_t element) {
  return static_cast<uint32_t>(element) | 1;
}
inline int32_t contribution(uint32_t operation, size_t element, uint32_t rank) {
  return static_cast<int32_t>(base_of(operation, element) + rank * slope_of(element));
}
/// Of the ranks from 0 to `ranks` - 1.
inline int32_t known_sum(uint32_t operation, size_t element, uint32_t ranks) {
  return static_cast<int32_t>(ranks * base_of(operation, element) +
                              ranks * (ranks - 1) / 2 * slope_of(element));
}

}  // namespace ina::sim
