// Collectives through the dimensions of a network.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include <ina/ina.h>

#include "plugins/python/binding/context.h"
#include "plugins/python/binding/elements.h"

namespace ina::python {

/// An ina_hierarchy that calls of any thread use. What it starts it gives as Request of its
/// context. Throws py::value_error for arrays that do not fit, and ina::Exception.
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

  using Started = std::unique_ptr<Request>;
  using Scheduler = std::optional<std::string>;
  Started allreduce(const py::object& send, const py::object& recv, int op, GivenType dtype,
                    const Scheduler& scheduler, uint32_t chunks) const;
  Started reduce_scatter(const py::object& send, const py::object& recv, int op, GivenType dtype,
                         const Scheduler& scheduler, uint32_t chunks) const;
  Started all_gather(const py::object& send, const py::object& recv, const Scheduler& scheduler,
                     uint32_t chunks) const;
  Started all_to_all(const py::object& send, const py::object& recv, const Scheduler& scheduler,
                     uint32_t chunks) const;

 private:
  using Begin = std::function<int(ina_hierarchy*, const ina_hierarchical_options*, ina_request**)>;
  Started start(const Begin& begin, const Scheduler& scheduler, uint32_t chunks,
                std::vector<Array> arrays) const;

  const Context context_;
  const size_t ranks_;
  mutable std::shared_mutex mutex_;
  ina_hierarchy* hierarchy_ = nullptr;
};

}  // namespace ina::python
