// ina._ina: the extension on which the package is built.
#include <array>
#include <exception>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <ina/ina.hpp>

#include "plugins/python/binding/collectives.h"
#include "plugins/python/binding/hierarchy.h"
#include "plugins/python/binding/memory.h"
#include "plugins/python/binding/stats.h"

namespace ina::python {

namespace {

/// Raises ina.Error for exceptions of the library.
void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Exception& error) {
    const py::object raise = py::module_::import("ina._errors").attr("make");
    const py::object made = raise(error.status(), ina_status_name(error.status()), error.what());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  }
}

py::dict stats_of(const Context& context) {
  ina_stats s{};
  s.struct_size = sizeof s;
  context.call([&](ina_context* c) { return ina_get_stats(c, &s); });
  return stats_dict(s);
}

py::dict facts_of(const Plan& plan) {
  const ina_plan_facts f = plan.facts();
  using namespace py::literals;
  return py::dict("buffer_bytes"_a = f.buffer_bytes, "source_bytes"_a = f.source_bytes,
                  "target_bytes"_a = f.target_bytes, "sent_bytes"_a = f.sent_bytes,
                  "hash"_a = f.hash, "predicted_us"_a = f.predicted_us, "steps"_a = f.steps,
                  "pieces"_a = f.pieces);
}

void set_hints(const Context& context, uint32_t layer, uint32_t layers,
               uint64_t remaining_iterations) {
  const ina_hints hints{sizeof(ina_hints), layer, layers, remaining_iterations};
  context.call([&](ina_context* c) { return ina_set_hints(c, &hints); });
}

Costs measure_costs(const Context& context) {
  ina_costs costs{sizeof(ina_costs), 0, 0, 0, 0};
  context.call([&](ina_context* c) { return ina_measure_costs(c, &costs); });
  return {costs.alpha_us, costs.message_us, costs.gbps, costs.copy_gbps};
}

void define_context(py::module_& module) {
  py::class_<Context>(module, "Context")
      .def_static("join", &Context::join)
      .def("split", &Context::split)
      .def("create_group", &Context::create_group)
      .def("close", [](const Context& c, double timeout_s) { c.joined().close(timeout_s); })
      .def("closed", [](const Context& c) { return c.joined().closed(); })
      .def("completion_fd", [](const Context& c) { return c.joined().completion_fd(); })
      .def("rank", [](const Context& c) { return c.call(&ina_rank); })
      .def("world_size", [](const Context& c) { return c.call(&ina_world_size); })
      .def("stats", &stats_of)
      .def("overflowed",
           [](const Context& c, bool clear) {
             return c.call([&](ina_context* raw) { return ina_overflowed(raw, clear); }) != 0;
           })
      .def("set_hints", &set_hints)
      .def("reset_hints",
           [](const Context& c) {
             c.call([](ina_context* raw) { return ina_set_hints(raw, nullptr); });
           })
      .def("allreduce", &allreduce)
      .def("reduce", &reduce)
      .def("reduce_scatter", &reduce_scatter)
      .def("broadcast", &broadcast)
      .def("all_gather", &all_gather)
      .def("gather", &gather)
      .def("scatter", &scatter)
      .def("all_to_all", &all_to_all)
      .def("permute", &permute)
      .def("send_receive", &send_receive)
      .def("barrier", &barrier)
      .def("redistribute", &redistribute)
      .def("alloc", &alloc)
      .def("alloc_result", &alloc_result)
      .def("measure_costs", &measure_costs);
}

void define_hierarchy(py::module_& module) {
  py::class_<Hierarchy>(module, "Hierarchy")
      .def(py::init<const Context&, const std::optional<std::string>&,
                    const std::optional<std::string>&, const std::vector<const Context*>&>())
      .def("close", &Hierarchy::close)
      .def("closed", &Hierarchy::closed)
      .def("start", &Hierarchy::start)
      .def("calibrate", &Hierarchy::calibrate);
}

void define_memory(py::module_& module) {
  py::class_<Memory>(module, "Memory", py::buffer_protocol()).def_buffer([](const Memory& memory) {
    return py::buffer_info(static_cast<uint8_t*>(memory.data),
                           static_cast<py::ssize_t>(memory.bytes), memory.read_only);
  });
  py::class_<Registration>(module, "Registration")
      .def(py::init<const Context&, const py::object&, int>())
      .def("close", &Registration::close)
      .def("closed", &Registration::closed);
}

}  // namespace

PYBIND11_MODULE(_ina, module) {
  py::register_exception_translator(&translate);
  define_context(module);
  define_hierarchy(module);
  define_memory(module);
  py::class_<Request>(module, "Request")
      .def("test", &Request::test)
      .def("wait", &Request::wait)
      .def("finish", &Request::finish)
      .def("expire", &Request::expire)
      .def("timeout_s", &Request::timeout_s);
  py::class_<Plan>(module, "Plan")
      .def(py::init([](const std::string& mesh, const std::vector<size_t>& shape,
                       const std::string& from, const std::string& to, int dtype,
                       uint64_t limit_bytes, const std::optional<std::string>& method,
                       const std::optional<Costs>& costs) {
        return Plan(mesh, shape, from, to, static_cast<ina_dtype>(dtype), limit_bytes, method,
                    costs);
      }))
      .def_static("parse", &Plan::parse)
      .def("facts", &facts_of)
      .def("text", &Plan::text)
      .def("json", &Plan::json);
  module.def("version", &ina_version);
}

}  // namespace ina::python
