// libina's memory as objects of Python.
#pragma once

#include <cstddef>
#include <memory>

#include "plugins/python/binding/context.h"

namespace ina::python {

/// Bytes with the buffer protocol. They live as long as the object, also after its context.
struct Memory {
  std::shared_ptr<void> owner;
  void* data;
  size_t bytes;
  bool read_only;
};

/// Memory that the switch reads in place. Throws ina::Exception.
Memory alloc(const Context& context, size_t bytes);
/// ina_alloc_result. Throws ina::Exception.
Memory alloc_result(const Context& context, size_t bytes);

/// An array in a memory file of its own, which is registered (ina_register) until close().
class Registration {
 public:
  /// Throws py::value_error and ina::Exception.
  Registration(const Context& context, const py::object& array, int memfd);
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration();

  /// Throws ina::Exception where an operation uses the array; it stays registered then. Again:
  /// nothing.
  void close();
  /// Also where the context is.
  bool closed() const;

 private:
  int free_memory();

  std::weak_ptr<Joined> joined_;
  std::unique_ptr<Array> array_;  ///< until it is closed
};

}  // namespace ina::python
