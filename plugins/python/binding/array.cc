#include "plugins/python/binding/array.h"

#include <cstring>
#include <string>
#include <utility>

namespace ina::python {

Array::Array(const char* argument, const py::object& object, Use use, const Results* results) {
  if (object.is_none()) return;
  constexpr int kReading = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT;
  if (results && acquire(object, kReading)) {
    if (lies_in(*results, use)) return;
    release();
  }
  PyErr_Clear();
  if (!acquire(object, kReading | (use == Use::kWrite ? PyBUF_WRITABLE : 0))) {
    py::error_already_set error;
    throw py::value_error(std::string(argument) + " must be C-contiguous memory" +
                          (use == Use::kWrite ? " that can be written" : "") + ": " + error.what());
  }
}

Array::Array(Array&& other) noexcept
    : view_(other.view_),
      held_(std::exchange(other.held_, false)),
      data_(other.data_),
      result_(std::move(other.result_)),
      written_(std::exchange(other.written_, false)) {}

Array& Array::operator=(Array&& other) noexcept {
  if (this == &other) return *this;
  release();
  view_ = other.view_;
  held_ = std::exchange(other.held_, false);
  data_ = other.data_;
  result_ = std::move(other.result_);
  written_ = std::exchange(other.written_, false);
  return *this;
}

Array::~Array() {
  release();
}

bool Array::acquire(const py::object& object, int flags) {
  held_ = PyObject_GetBuffer(object.ptr(), &view_, flags) == 0;
  data_ = view_.buf;
  return held_;
}

bool Array::lies_in(const Results& results, Use use) {
  if (!view_.readonly) return false;
  result_ = results.find(view_.buf);
  if (result_) data_ = result_->target(static_cast<std::byte*>(view_.buf));
  written_ = result_ && use == Use::kWrite;
  return result_ != nullptr;
}

bool Array::deliver() const {
  return !written_ || result_->deliver(static_cast<const std::byte*>(data_), bytes());
}

void Array::release() {
  if (std::exchange(held_, false)) PyBuffer_Release(&view_);
  result_.reset();
}

/// The struct module's letters; of whole numbers the sign and the size decide, as C's types differ.
std::optional<ina_dtype> Array::dtype() const {
  const char* format = view_.format ? view_.format : "B";
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (std::strlen(format) != 1) return std::nullopt;
  if (std::strchr("bhilq", *format)) {
    if (view_.itemsize == 1) return INA_INT8;
    if (view_.itemsize == 4) return INA_INT32;
    if (view_.itemsize == 8) return INA_INT64;
  }
  switch (*format) {
    case 'B':
      return INA_UINT8;
    case '?':
      return INA_BOOL;
    case 'e':
      return INA_FLOAT16;
    case 'f':
      return INA_FLOAT32;
    case 'd':
      return INA_FLOAT64;
    default:
      return std::nullopt;
  }
}

}  // namespace ina::python
