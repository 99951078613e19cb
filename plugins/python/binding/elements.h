// The requirements of collectives on their arrays.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <ina/ina.h>

#include "plugins/python/binding/array.h"

namespace ina::python {

/// The type of an array's elements, where their format does not say it (bfloat16).
using GivenType = std::optional<int>;

/// How elements travel: one is `units` of libina's.
struct Elements {
  ina_dtype dtype;
  size_t units;
};

// All throw py::value_error.
void require(const char* what, size_t found, size_t wanted);
void require_alike(const Array& send, const Array& recv);
/// The type of elements that libina adds.
ina_dtype summed(const Array& array, GivenType given);
/// Any type moves.
Elements moved(const Array& array);
size_t count_of(const Array& array);

std::vector<Array> both(Array a, Array b);

}  // namespace ina::python
