#include "plugins/python/binding/elements.h"

#include <string>
#include <utility>

namespace ina::python {

void require(const char* what, size_t found, size_t wanted) {
  if (found != wanted)
    throw py::value_error(std::string(what) + " has " + std::to_string(found) + " elements, not " +
                          std::to_string(wanted));
}

ina_dtype summed(const Array& array, GivenType given) {
  const auto dtype = given ? std::optional(static_cast<ina_dtype>(*given)) : array.dtype();
  if (!dtype)
    throw py::value_error(
        "elements of this type cannot be reduced; bfloat16 is an array of uint16 with "
        "dtype=ina.DType.BFLOAT16");
  if (ina_dtype_size(*dtype) != array.item_bytes())
    throw py::value_error("elements have " + std::to_string(array.item_bytes()) + " bytes, dtype " +
                          std::to_string(ina_dtype_size(*dtype)));
  return *dtype;
}

Elements moved(const Array& array) {
  if (const auto dtype = array.dtype()) return {*dtype, 1};
  const size_t bytes = array.item_bytes();
  if (bytes % 8 == 0) return {INA_INT64, bytes / 8};
  if (bytes % 4 == 0) return {INA_INT32, bytes / 4};
  return {INA_UINT8, bytes};
}

size_t count_of(const Array& array) {
  return array.bytes() / array.item_bytes();
}

void require_alike(const Array& send, const Array& recv) {
  if (send.exists() && recv.exists() && send.item_bytes() != recv.item_bytes())
    throw py::value_error("send and recv have elements of different sizes");
}

std::vector<Array> both(Array a, Array b) {
  std::vector<Array> arrays;
  arrays.push_back(std::move(a));
  arrays.push_back(std::move(b));
  return arrays;
}

}  // namespace ina::python
