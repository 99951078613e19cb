#include "plugins/python/binding/hierarchy.h"

#include <algorithm>
#include <utility>

#include <ina/ina.hpp>

namespace ina::python {

namespace {

using Use = Array::Use;

const char* c_string(const std::optional<std::string>& text) {
  return text ? text->c_str() : nullptr;
}

}  // namespace

Hierarchy::Hierarchy(const Context& context, const std::optional<std::string>& topology,
                     const std::optional<std::string>& file,
                     const std::vector<const Context*>& rails)
    : context_(context), ranks_(static_cast<size_t>(context.call(&ina_world_size))) {
  if (topology.has_value() == file.has_value())
    throw py::value_error("a hierarchy needs either topology or topology_file");
  // A lock is taken once, however many dimensions use a context.
  std::vector<Joined*> used{&context.joined()};
  std::vector<size_t> places;
  for (const Context* rail : rails) {
    const auto found = std::find(used.begin(), used.end(), &rail->joined());
    places.push_back(static_cast<size_t>(found - used.begin()));
    if (found == used.end()) used.push_back(&rail->joined());
  }
  Joined::call_all(used, [&](const std::vector<ina_context*>& contexts) {
    std::vector<ina_context*> raw;
    for (const size_t place : places) raw.push_back(contexts[place]);
    ina_hierarchy_config config{};
    config.struct_size = sizeof config;
    config.topology = c_string(topology);
    config.topology_file = c_string(file);
    config.rails = raw.empty() ? nullptr : raw.data();
    config.rail_count = raw.size();
    return ina_hierarchy_create(contexts.front(), &config, &hierarchy_);
  });
}

Hierarchy::~Hierarchy() {
  if (!hierarchy_) return;
  const py::gil_scoped_release no_gil;
  ina_hierarchy_free(hierarchy_, 0);
}

void Hierarchy::close(double timeout_s) {
  const py::gil_scoped_release no_gil;
  const std::lock_guard lock(mutex_);
  ina_hierarchy* const own = std::exchange(hierarchy_, nullptr);
  if (!own) return;
  if (const int status = ina_hierarchy_free(own, static_cast<int64_t>(timeout_s * 1e6)); status < 0)
    throw Exception(status, ina_last_error(nullptr));
}

bool Hierarchy::closed() const {
  const py::gil_scoped_release no_gil;
  const std::shared_lock lock(mutex_);
  return hierarchy_ == nullptr;
}

Hierarchy::Started Hierarchy::start(const Begin& begin, const Scheduler& scheduler, uint32_t chunks,
                                    std::vector<Array> arrays) const {
  const ina_hierarchical_options options{sizeof(ina_hierarchical_options), c_string(scheduler),
                                         chunks};
  return context_.start(
      [&](ina_context*, ina_request** request) {
        const std::shared_lock lock(mutex_);
        if (!hierarchy_) throw Exception(INA_ERR_INVALID, "the hierarchy is closed");
        return begin(hierarchy_, &options, request);
      },
      std::move(arrays));
}

Hierarchy::Started Hierarchy::allreduce(const py::object& send, const py::object& recv, int op,
                                        GivenType given, const Scheduler& scheduler,
                                        uint32_t chunks) const {
  Array from("send", send, Use::kRead), to("recv", recv, Use::kWrite);
  require_alike(from, to);
  require("recv", count_of(to), count_of(from));
  const ina_dtype dtype = summed(from, given);
  const auto begin = [dtype, op, in = from.data(), out = to.data(), count = count_of(from)](
                         ina_hierarchy* h, const ina_hierarchical_options* options,
                         ina_request** request) {
    return ina_hierarchical_allreduce_async(h, in, out, count, dtype, static_cast<ina_op>(op),
                                            options, request);
  };
  return start(begin, scheduler, chunks, both(std::move(from), std::move(to)));
}

Hierarchy::Started Hierarchy::reduce_scatter(const py::object& send, const py::object& recv, int op,
                                             GivenType given, const Scheduler& scheduler,
                                             uint32_t chunks) const {
  Array from("send", send, Use::kRead), to("recv", recv, Use::kWrite);
  require_alike(from, to);
  require("send", count_of(from), count_of(to) * ranks_);
  const ina_dtype dtype = summed(from, given);
  const auto begin = [dtype, op, in = from.data(), out = to.data(), count = count_of(to)](
                         ina_hierarchy* h, const ina_hierarchical_options* options,
                         ina_request** request) {
    return ina_hierarchical_reduce_scatter_async(h, in, out, count, dtype, static_cast<ina_op>(op),
                                                 options, request);
  };
  return start(begin, scheduler, chunks, both(std::move(from), std::move(to)));
}

Hierarchy::Started Hierarchy::all_gather(const py::object& send, const py::object& recv,
                                         const Scheduler& scheduler, uint32_t chunks) const {
  Array from("send", send, Use::kRead), to("recv", recv, Use::kWrite);
  require_alike(from, to);
  require("recv", count_of(to), count_of(from) * ranks_);
  const auto begin =
      [elements = moved(from), in = from.data(), out = to.data(), count = count_of(from)](
          ina_hierarchy* h, const ina_hierarchical_options* options, ina_request** request) {
        return ina_hierarchical_all_gather_async(h, in, out, count * elements.units, elements.dtype,
                                                 options, request);
      };
  return start(begin, scheduler, chunks, both(std::move(from), std::move(to)));
}

Hierarchy::Started Hierarchy::all_to_all(const py::object& send, const py::object& recv,
                                         const Scheduler& scheduler, uint32_t chunks) const {
  Array from("send", send, Use::kRead), to("recv", recv, Use::kWrite);
  require_alike(from, to);
  require("recv", count_of(to), count_of(from));
  require("send", count_of(from), count_of(from) / ranks_ * ranks_);
  const auto begin =
      [elements = moved(from), in = from.data(), out = to.data(), count = count_of(from) / ranks_](
          ina_hierarchy* h, const ina_hierarchical_options* options, ina_request** request) {
        return ina_hierarchical_all_to_all_async(h, in, out, count * elements.units, elements.dtype,
                                                 options, request);
      };
  return start(begin, scheduler, chunks, both(std::move(from), std::move(to)));
}

}  // namespace ina::python
