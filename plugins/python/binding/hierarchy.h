// Collectives through the dimensions of a network.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <vector>

#include <ina/ina.h>

#include "plugins/python/binding/context.h"
#include "plugins/python/binding/elements.h"

namespace ina::python {

/// An ina_hierarchy that calls of any thread use. Each operation that it starts is given as a
/// Request of its context. Throws py::value_error for arrays that do not fit, and ina::Exception.
class Hierarchy {
 public:
  /// One of `topology` (YAML) and `file`. `rails`: for each dimension a context of the same ranks;
  /// none: `context` for all.
  Hierarchy(const Context& context, const std::optional<std::string>& topology,
            const std::optional<std::string>& file, const std::vector<const Context*>& rails);
  Hierarchy(const Hierarchy&) = delete;
  Hierarchy& operator=(const Hierarchy&) = delete;
  ~Hierarchy();

  /// ina_hierarchy_free; again: nothing.
  void close(double timeout_s);
  bool closed() const;

  /// Name of the collective ("allreduce"), send, recv, operation and type of sums.
  using Call = std::tuple<std::string, py::object, py::object, int, GivenType>;
  /// One collective, or a group of several (ina_hierarchical_group).
  std::unique_ptr<Request> start(const std::vector<Call>& calls,
                                 const std::optional<std::string>& scheduler,
                                 uint32_t chunks) const;
  /// The topology with measured rates and latencies, as YAML.
  std::string calibrate() const;

 private:
  template <class Function>
  int call(Function&& function) const;

  const Context context_;
  const size_t ranks_;
  mutable std::shared_mutex mutex_;
  ina_hierarchy* hierarchy_ = nullptr;
};

}  // namespace ina::python
