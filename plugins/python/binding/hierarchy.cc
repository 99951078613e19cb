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

/// Throws py::value_error where the arrays do not fit each other and so many ranks.
ina_hierarchical_call call_of(const Hierarchy::Call& call, const Array& from, const Array& to,
                              size_t ranks) {
  const auto& [name, send, recv, op, given] = call;
  require_alike(from, to);
  ina_hierarchical_call made{};
  made.send = from.data();
  made.recv = to.data();
  made.op = static_cast<ina_op>(op);
  const size_t in = count_of(from), out = count_of(to);
  const bool is_sum = name == "allreduce" || name == "reduce_scatter";
  if (name == "allreduce") {
    made.collective = INA_HIERARCHICAL_ALLREDUCE;
    made.count = in;
    require("recv", out, in);
  } else if (name == "reduce_scatter") {
    made.collective = INA_HIERARCHICAL_REDUCE_SCATTER;
    made.count = out;
    require("send", in, out * ranks);
  } else if (name == "all_gather") {
    made.collective = INA_HIERARCHICAL_ALL_GATHER;
    made.count = in;
    require("recv", out, in * ranks);
  } else if (name == "all_to_all") {
    made.collective = INA_HIERARCHICAL_ALL_TO_ALL;
    made.count = in / ranks;
    require("recv", out, in);
    require("send", in, made.count * ranks);
  } else {
    throw py::value_error("'" + name + "' is no hierarchical collective");
  }
  const Elements elements = is_sum ? Elements{summed(from, given), 1} : moved(from);
  made.dtype = elements.dtype;
  made.count *= elements.units;
  return made;
}

/// So that its errors have its name.
int start_alone(ina_hierarchy* h, const ina_hierarchical_call& call,
                const ina_hierarchical_options* options, ina_request** request) {
  const auto& [collective, send, recv, count, dtype, op] = call;
  switch (collective) {
    case INA_HIERARCHICAL_ALLREDUCE:
      return ina_hierarchical_allreduce_async(h, send, recv, count, dtype, op, options, request);
    case INA_HIERARCHICAL_REDUCE_SCATTER:
      return ina_hierarchical_reduce_scatter_async(h, send, recv, count, dtype, op, options,
                                                   request);
    case INA_HIERARCHICAL_ALL_GATHER:
      return ina_hierarchical_all_gather_async(h, send, recv, count, dtype, options, request);
    default:
      return ina_hierarchical_all_to_all_async(h, send, recv, count, dtype, options, request);
  }
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

template <class Function>
int Hierarchy::call(Function&& function) const {
  const std::shared_lock lock(mutex_);
  if (!hierarchy_) throw Exception(INA_ERR_INVALID, "the hierarchy is closed");
  return function(hierarchy_);
}

std::unique_ptr<Request> Hierarchy::start(const std::vector<Call>& calls,
                                          const std::optional<std::string>& scheduler,
                                          uint32_t chunks) const {
  const ina_hierarchical_options options{sizeof(ina_hierarchical_options), c_string(scheduler),
                                         chunks};
  std::vector<Array> arrays;
  std::vector<ina_hierarchical_call> raw;
  for (const Call& call : calls) {
    Array from("send", std::get<1>(call), Use::kRead), to("recv", std::get<2>(call), Use::kWrite);
    raw.push_back(call_of(call, from, to, ranks_));
    arrays.push_back(std::move(from));
    arrays.push_back(std::move(to));
  }
  return context_.start(
      [&](ina_context*, ina_request** request) {
        return call([&](ina_hierarchy* h) {
          return raw.size() == 1
                     ? start_alone(h, raw.front(), &options, request)
                     : ina_hierarchical_group_async(h, raw.data(), raw.size(), &options, request);
        });
      },
      std::move(arrays));
}

std::string Hierarchy::calibrate() const {
  std::string yaml;
  context_.call([&](ina_context*) {
    return call([&](ina_hierarchy* h) {
      const char* text = nullptr;
      const int status = ina_hierarchy_calibrate(h, &text);
      if (status == INA_OK) yaml = text;
      return status;
    });
  });
  return yaml;
}

}  // namespace ina::python
