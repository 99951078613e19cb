// Python's buffers as libina's.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include <ina/ina.h>
#include <pybind11/pybind11.h>

#include "plugins/python/binding/results.h"

namespace ina::python {

namespace py = pybind11;

/// An object's memory, C-contiguous, by the buffer protocol; the object cannot resize or free it as
/// long as this lives. Made and destroyed with the GIL.
class Array {
 public:
  enum class Use { kRead, kWrite };
  Array() = default;
  /// Throws py::value_error naming `argument`. None: no memory and no elements. `results`: of the
  /// context that uses the array. Arrays in these result buffers are read-only for Python alone.
  Array(const char* argument, const py::object& object, Use use, const Results* results = nullptr);
  Array(Array&& other) noexcept;
  Array& operator=(Array&& other) noexcept;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array();

  bool exists() const { return held_; }
  void* data() const { return held_ ? data_ : nullptr; }
  size_t bytes() const { return held_ ? static_cast<size_t>(view_.len) : 0; }
  size_t item_bytes() const { return held_ ? static_cast<size_t>(view_.itemsize) : 1; }
  /// libina's type of the elements; none if it has no such type.
  std::optional<ina_dtype> dtype() const;
  /// The operation has ended well, and has written here: shows its result. Any thread. False if
  /// there is no memory for it.
  bool deliver() const;

 private:
  bool acquire(const py::object& object, int flags);
  bool lies_in(const Results& results, Use use);
  void release();

  Py_buffer view_{};
  bool held_ = false;
  void* data_ = nullptr;            ///< for the library
  std::shared_ptr<Result> result_;  ///< in which the array lies
  bool written_ = false;            ///< by the operation, in result_
};

}  // namespace ina::python
