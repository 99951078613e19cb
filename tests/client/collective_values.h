// Elements that tell which rank sent them to which, for tests of collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ina/ina.hpp"

namespace ina::test {

/// Element `i` that `source` has for `receiver`.
template <class T>
T value_of(int source, int receiver, size_t i) {
  return static_cast<T>(
      static_cast<int>(
          (i * 7 + static_cast<size_t>(source) * 13 + static_cast<size_t>(receiver) * 29) % 11) -
      5);
}
template <class T>
std::vector<T> values(int source, int receiver, size_t count) {
  std::vector<T> made(count);
  for (size_t i = 0; i < count; ++i) made[i] = value_of<T>(source, receiver, i);
  return made;
}

/// Bit patterns, which are compared and moved, not added.
template <class T>
T bits(int value) {
  return static_cast<T>(value);
}
template <>
inline bfloat16 value_of<bfloat16>(int source, int receiver, size_t i) {
  return bits<bfloat16>(
      static_cast<int>((i * 31 + static_cast<size_t>(source * 7 + receiver)) % 65521));
}

}  // namespace ina::test
