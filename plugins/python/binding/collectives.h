// The collectives on Python's buffers. Each starts an operation. Counts and displacements are in
// elements of the arrays, by rank; none: even shares, one after the other. Where an array is not
// used on a rank, it may be None. Throw py::value_error for arrays that do not fit, and
// ina::Exception.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "plugins/python/binding/context.h"
#include "plugins/python/binding/elements.h"
#include "plugins/python/binding/plan.h"

namespace ina::python {

using Numbers = std::optional<std::vector<size_t>>;
using Started = std::unique_ptr<Request>;

Started allreduce(const Context& context, const py::object& send, const py::object& recv, int op,
                  GivenType dtype);
Started reduce(const Context& context, const py::object& send, const py::object& recv, int root,
               int op, GivenType dtype);
Started reduce_scatter(const Context& context, const py::object& send, const py::object& recv,
                       const Numbers& counts, int op, GivenType dtype);
/// Without `recv` the data moves from `send` to `send`.
Started broadcast(const Context& context, const py::object& send, const py::object& recv, int root);
Started all_gather(const Context& context, const py::object& send, const py::object& recv,
                   const Numbers& counts, const Numbers& displacements);
Started gather(const Context& context, const py::object& send, const py::object& recv, int root,
               const Numbers& counts, const Numbers& displacements);
Started scatter(const Context& context, const py::object& send, const py::object& recv, int root,
                const Numbers& counts, const Numbers& displacements);
Started all_to_all(const Context& context, const py::object& send, const py::object& recv,
                   const Numbers& send_counts, const Numbers& recv_counts,
                   const Numbers& send_displacements, const Numbers& recv_displacements);
Started permute(const Context& context, const py::object& send, const py::object& recv,
                const std::vector<int>& destinations);
Started send_receive(const Context& context, const py::object& send, int destination,
                     const py::object& recv, int source);
Started barrier(const Context& context);
Started redistribute(const Context& context, const Plan& plan, const py::object& buffer);

}  // namespace ina::python
