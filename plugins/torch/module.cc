// ina._torch: the extension on which ina/torch.py is built.
#include <algorithm>
#include <string>
#include <utility>

#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/extension.h>

#include "plugins/python/binding/stats.h"
#include "plugins/torch/monitored_barrier.h"
#include "plugins/torch/process_group.h"
#include "plugins/torch/registered.h"
#include "plugins/torch/work.h"

namespace ina::plugin {

namespace {

/// Ctrl-C ends a wait: throws what Python's signal handlers have raised.
void check_signals() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

milliseconds from_seconds(double seconds) {
  const std::chrono::duration<double> most(kLongest);
  return std::chrono::duration_cast<milliseconds>(
      std::min(std::chrono::duration<double>(seconds), most));
}

using Store = c10::intrusive_ptr<c10d::Store>;
using Group = c10::intrusive_ptr<PyTorchGroup>;

Group make_group(std::string url, std::string job, int rank, int size, const Store& store,
                 double timeout_s, bool join_now) {
  const auto timeout = from_seconds(timeout_s);
  JobOptions options{std::move(url), std::move(job), rank, size, timeout};
  JobOptions joining = options;
  if (join_now) joining.timeout = {};
  auto group = c10::make_intrusive<ProcessGroupIna>(
      std::make_shared<Job>(std::move(joining)), std::move(options), store, timeout, check_signals);
  if (join_now) group->join();
  return group;
}

bool is_ina(const Group& group) {
  return dynamic_cast<ProcessGroupIna*>(group.get()) != nullptr;
}

ProcessGroupIna& as_ina(const Group& group) {
  auto* found = dynamic_cast<ProcessGroupIna*>(group.get());
  TORCH_CHECK(found, "ina: not a process group of the backend ina");
  return *found;
}

Group split_group(const Group& parent, int colour, int key, std::string url, std::string name,
                  const Store& store, double timeout_s) {
  const auto timeout = from_seconds(timeout_s);
  auto job = as_ina(parent).job()->split(colour, key);
  JobOptions options{std::move(url), std::move(name), job->options().rank, job->options().size,
                     timeout};
  return c10::make_intrusive<ProcessGroupIna>(std::move(job), std::move(options), store, timeout,
                                              check_signals);
}

void stand_by(const Group& parent) {
  as_ina(parent).job()->split(-1, 0);
}

void hint(const Group& group, uint32_t layer, uint32_t layers, uint64_t remaining_iterations) {
  as_ina(group).job()->set_hints({sizeof(ina_hints), layer, layers, remaining_iterations});
}

std::shared_ptr<Continuations> continuations_of(const WorkPtr& work) {
  const auto* const ours = dynamic_cast<const WorkIna*>(work.get());
  return ours ? ours->order() : nullptr;
}

/// As PyTorch gives futures to Python.
using PythonFuture = std::shared_ptr<torch::jit::PythonFutureWrapper>;

PythonFuture make_turn(const Continuations& continuations, const PythonFuture& future) {
  auto turn = continuations.make_turn(future->fut);
  return turn ? std::make_shared<torch::jit::PythonFutureWrapper>(std::move(turn)) : nullptr;
}

void take_turn(Continuations& continuations, const PythonFuture& future, const PythonFuture& turn) {
  continuations.take_turn(future->fut, turn->fut);
}

py::dict stats_of(const Group& group) {
  return python::stats_dict(as_ina(group).job()->stats());
}

}  // namespace

PYBIND11_MODULE(_torch, module) {
  using release_gil = py::call_guard<py::gil_scoped_release>;
  module.def("make_group", &make_group, py::arg("url"), py::arg("job"), py::arg("rank"),
             py::arg("size"), py::arg("store"), py::arg("timeout_s"), py::arg("join_now"),
             release_gil(),
             "A process group that is `rank` of `size` of a job of the switch at `url`. It joins "
             "now, or before its first operation.");
  module.def("split_group", &split_group, py::arg("parent"), py::arg("colour"), py::arg("key"),
             py::arg("url"), py::arg("name"), py::arg("store"), py::arg("timeout_s"), release_gil(),
             "A process group of those ranks of `parent` that call this with the same `colour`, in "
             "the order of `key`; the others call stand_by() at the same time.");
  module.def("is_ina", &is_ina, py::arg("group"), "Whether the group is one of these.");
  module.def("stand_by", &stand_by, py::arg("parent"), release_gil(),
             "Takes part in a split_group() of others.");
  module.def(
      "register_storage",
      [](const Group& group, const at::Tensor& tensor) {
        return move_to_registered(as_ina(group).job(), tensor);
      },
      py::arg("group"), py::arg("tensor"), release_gil(),
      "Moves the tensor's storage, and so all its views, to memory that the switch reads in place. "
      "False: it lies there already.");
  module.def(
      "make_result",
      [](const Group& group, const at::Tensor& like) {
        return make_result(as_ina(group).job(), like);
      },
      py::arg("group"), py::arg("like"), release_gil(),
      "Memory that the switch writes results to, read-only here. All ranks call it.");
  module.def(
      "allreduce_into",
      [](const Group& group, const at::Tensor& from, const at::Tensor& to,
         const c10d::AllreduceOptions& options) {
        return as_ina(group).allreduce_into(from, to, options);
      },
      py::arg("group"), py::arg("from"), py::arg("to"), py::arg("options"), release_gil(),
      "all_reduce from one tensor into another one, which may be one of make_result().");
  module.def(
      "drain", [](const Group& group) { as_ina(group).drain(check_signals); }, py::arg("group"),
      release_gil(), "Waits for the operations that run.");
  module.def(
      "shutdown", [](const Group& group) { as_ina(group).shutdown(); }, py::arg("group"),
      release_gil(), "The group waits for its operations and leaves its jobs, as at its end.");
  module.def(
      "failed", [](const Group& group) { return as_ina(group).job()->failed(); }, py::arg("group"),
      "Whether an operation has failed.");
  module.def(
      "abort", [](const Group& group) { as_ina(group).abort(); }, py::arg("group"), release_gil(),
      "The group leaves its jobs at once.");
  module.def(
      "drain_all", [](double limit_s) { wait_for_all(from_seconds(limit_s), check_signals); },
      py::arg("limit_s"), release_gil(), "Waits for the operations of all groups.");
  module.def("hint", &hint, py::arg("group"), py::arg("layer"), py::arg("layers"),
             py::arg("remaining_iterations"), release_gil(),
             "Sets the priority of the group's next operations, as ina_set_hints.");
  py::class_<Continuations, std::shared_ptr<Continuations>>(
      module, "Continuations", "The continuations of a group's operations of one depth.")
      .def("make_turn", &make_turn, py::arg("future"),
           "A future for the next continuation of `future`. None for the caller that is a "
           "continuation itself, which must not wait for its own end.")
      .def("take_turn", &take_turn, py::arg("future"), py::arg("turn"), release_gil(),
           "Completes a future of make_turn() when its turn has come. It must have its "
           "continuation.");
  module.def("continuations_of", &continuations_of, py::arg("work"),
             "Where continuations of `work` wait for their turn. None if they need not.");
  module.def("stats", &stats_of, py::arg("group"),
             "What the group has moved, as ina_stats; zeros before it has joined.");
  module.def(
      "leave_at_exit", [](double timeout_s) { leave_at_exit(from_seconds(timeout_s)); },
      py::arg("timeout_s"),
      "All process groups leave their jobs when the interpreter ends, within `timeout_s` then.");
  module.def(
      "await_key",
      [](const Store& store, const std::string& key, double timeout_s) {
        return await_key(*store, key, Clock::now() + from_seconds(timeout_s), check_signals);
      },
      py::arg("store"), py::arg("key"), py::arg("timeout_s"), release_gil(),
      "Waits for a key of the store; other threads may use it meanwhile. False: it did not come.");
  Py_AtExit(&leave_all_at_exit);
}

}  // namespace ina::plugin
