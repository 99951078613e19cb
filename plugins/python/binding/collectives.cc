#include "plugins/python/binding/collectives.h"

#include <string>
#include <utility>

#include "plugins/python/binding/elements.h"

namespace ina::python {

namespace {

using Use = Array::Use;

size_t ranks_of(const Context& context) {
  return static_cast<size_t>(context.call(&ina_world_size));
}

int rank_of(const Context& context) {
  return context.call(&ina_rank);
}

std::vector<size_t> times(std::vector<size_t> numbers, size_t units) {
  for (size_t& number : numbers) number *= units;
  return numbers;
}

/// Blocks of all ranks in one buffer, in libina's units.
struct Shares {
  std::vector<size_t> counts;
  std::vector<size_t> displacements;
};

/// `even`: a share's elements, if there are no counts. `whole`: the buffer where the shares lie;
/// none: nowhere here.
Shares shares(size_t ranks, size_t even, const Numbers& counts, const Numbers& displacements,
              size_t units, const char* name, const Array* whole) {
  Shares found{counts.value_or(std::vector<size_t>(ranks, even)), {}};
  require("counts", found.counts.size(), ranks);
  size_t packed = 0;
  for (const size_t count : found.counts) {
    found.displacements.push_back(packed);
    packed += count;
  }
  if (displacements) {
    require("displacements", displacements->size(), ranks);
    found.displacements = *displacements;
  }
  for (size_t rank = 0; whole && rank < ranks; ++rank) {
    const size_t first = found.displacements[rank], size = count_of(*whole);
    if (first > size || found.counts[rank] > size - first)
      throw py::value_error(std::string(name) + " has " + std::to_string(size) +
                            " elements, and the share of rank " + std::to_string(rank) +
                            " ends at " + std::to_string(first + found.counts[rank]));
  }
  return {times(std::move(found.counts), units), times(std::move(found.displacements), units)};
}

}  // namespace

Started allreduce(const Context& context, const py::object& send, const py::object& recv, int op,
                  GivenType given) {
  Array from("send", send, Use::kRead, context.results());
  Array to("recv", recv, Use::kWrite, context.results());
  require_alike(from, to);
  require("recv", count_of(to), count_of(from));
  const ina_dtype dtype = summed(from, given);
  const auto begin = [&, in = from.data(), out = to.data(), count = count_of(from)](
                         ina_context* c, ina_request** request) {
    return ina_allreduce_async(c, in, out, count, dtype, static_cast<ina_op>(op), request);
  };
  return context.start(begin, both(std::move(from), std::move(to)));
}

Started reduce(const Context& context, const py::object& send, const py::object& recv, int root,
               int op, GivenType given) {
  const bool is_root = rank_of(context) == root;
  Array from("send", send, Use::kRead), to("recv", is_root ? recv : py::none(), Use::kWrite);
  require_alike(from, to);
  if (is_root) require("recv", count_of(to), count_of(from));
  const ina_dtype dtype = summed(from, given);
  const auto begin = [&, in = from.data(), out = to.data(), count = count_of(from)](
                         ina_context* c, ina_request** request) {
    return ina_reduce_async(c, in, out, count, dtype, static_cast<ina_op>(op), root, request);
  };
  return context.start(begin, both(std::move(from), std::move(to)));
}

Started reduce_scatter(const Context& context, const py::object& send, const py::object& recv,
                       const Numbers& counts, int op, GivenType given) {
  Array from("send", send, Use::kRead), to("recv", recv, Use::kWrite);
  require_alike(from, to);
  const size_t ranks = ranks_of(context);
  const auto rank = static_cast<size_t>(rank_of(context));
  const Shares of = shares(ranks, count_of(to), counts, std::nullopt, 1, "send", &from);
  require("send", count_of(from), of.displacements.back() + of.counts.back());
  require("recv", count_of(to), of.counts[rank]);
  const ina_dtype dtype = summed(from, given);
  const auto begin = [&, in = from.data(), out = to.data()](ina_context* c, ina_request** request) {
    return ina_reduce_scatter_async(c, in, out, of.counts.data(), dtype, static_cast<ina_op>(op),
                                    request);
  };
  return context.start(begin, both(std::move(from), std::move(to)));
}

Started broadcast(const Context& context, const py::object& send, const py::object& recv,
                  int root) {
  const bool is_root = rank_of(context) == root, in_place = recv.is_none();
  Array from("buffer", is_root ? send : py::none(), Use::kRead, context.results());
  Array to(in_place ? "buffer" : "recv", in_place && !is_root ? send : recv, Use::kWrite,
           context.results());
  if (from.exists() && to.exists()) {
    require_alike(from, to);
    require("recv", count_of(to), count_of(from));
  }
  const Array& array = to.exists() ? to : from;
  const auto [dtype, units] = moved(array);
  const auto begin = [&, type = dtype, in = from.data(), out = array.data(),
                      count = count_of(array) * units](ina_context* c, ina_request** request) {
    return ina_broadcast_async(c, in, out, count, type, root, request);
  };
  return context.start(begin, both(std::move(from), std::move(to)));
}

Started all_gather(const Context& context, const py::object& send, const py::object& recv,
                   const Numbers& counts, const Numbers& displacements) {
  Array from("send", send, Use::kRead, context.results());
  Array to("recv", recv, Use::kWrite, context.results());
  require_alike(from, to);
  const auto elements = moved(to);
  const Shares of =
      shares(ranks_of(context), count_of(from), counts, displacements, elements.units, "recv", &to);
  require("send", count_of(from) * elements.units,
          of.counts[static_cast<size_t>(rank_of(context))]);
  const auto begin = [&, in = from.data(), out = to.data()](ina_context* c, ina_request** request) {
    return ina_all_gatherv_async(c, in, out, of.counts.data(), of.displacements.data(),
                                 elements.dtype, request);
  };
  return context.start(begin, both(std::move(from), std::move(to)));
}

Started gather(const Context& context, const py::object& send, const py::object& recv, int root,
               const Numbers& counts, const Numbers& displacements) {
  const bool is_root = rank_of(context) == root;
  Array from("send", send, Use::kRead), to("recv", is_root ? recv : py::none(), Use::kWrite);
  require_alike(from, to);
  const auto elements = moved(from);
  const Shares of = shares(ranks_of(context), count_of(from), counts, displacements, elements.units,
                           "recv", is_root ? &to : nullptr);
  require("send", count_of(from) * elements.units,
          of.counts[static_cast<size_t>(rank_of(context))]);
  const auto begin = [&, in = from.data(), out = to.data()](ina_context* c, ina_request** request) {
    return ina_gatherv_async(c, in, out, of.counts.data(), of.displacements.data(), elements.dtype,
                             root, request);
  };
  return context.start(begin, both(std::move(from), std::move(to)));
}

Started scatter(const Context& context, const py::object& send, const py::object& recv, int root,
                const Numbers& counts, const Numbers& displacements) {
  const bool is_root = rank_of(context) == root;
  Array from("send", is_root ? send : py::none(), Use::kRead), to("recv", recv, Use::kWrite);
  require_alike(from, to);
  const auto elements = moved(to);
  const Shares of = shares(ranks_of(context), count_of(to), counts, displacements, elements.units,
                           "send", is_root ? &from : nullptr);
  require("recv", count_of(to) * elements.units, of.counts[static_cast<size_t>(rank_of(context))]);
  const auto begin = [&, in = from.data(), out = to.data()](ina_context* c, ina_request** request) {
    return ina_scatterv_async(c, in, out, of.counts.data(), of.displacements.data(), elements.dtype,
                              root, request);
  };
  return context.start(begin, both(std::move(from), std::move(to)));
}

Started all_to_all(const Context& context, const py::object& send, const py::object& recv,
                   const Numbers& send_counts, const Numbers& recv_counts,
                   const Numbers& send_displacements, const Numbers& recv_displacements) {
  Array from("send", send, Use::kRead), to("recv", recv, Use::kWrite);
  require_alike(from, to);
  const size_t ranks = ranks_of(context);
  const auto elements = moved(from);
  if (!send_counts) require("send", count_of(from), count_of(from) / ranks * ranks);
  if (!recv_counts) require("recv", count_of(to), count_of(to) / ranks * ranks);
  const Shares out = shares(ranks, count_of(from) / ranks, send_counts, send_displacements,
                            elements.units, "send", &from);
  const Shares in = shares(ranks, count_of(to) / ranks, recv_counts, recv_displacements,
                           elements.units, "recv", &to);
  const auto begin = [&, source = from.data(), target = to.data()](ina_context* c,
                                                                   ina_request** request) {
    return ina_all_to_allv_async(c, source, target, out.counts.data(), out.displacements.data(),
                                 in.counts.data(), in.displacements.data(), elements.dtype,
                                 request);
  };
  return context.start(begin, both(std::move(from), std::move(to)));
}

Started permute(const Context& context, const py::object& send, const py::object& recv,
                const std::vector<int>& destinations) {
  Array from("send", send, Use::kRead), to("recv", recv, Use::kWrite);
  require_alike(from, to);
  require("recv", count_of(to), count_of(from));
  require("destinations", destinations.size(), ranks_of(context));
  const auto elements = moved(from);
  const auto begin = [&, in = from.data(), out = to.data(), count = count_of(from)](
                         ina_context* c, ina_request** request) {
    return ina_permute_async(c, in, out, count * elements.units, elements.dtype,
                             destinations.data(), request);
  };
  return context.start(begin, both(std::move(from), std::move(to)));
}

Started send_receive(const Context& context, const py::object& send, int destination,
                     const py::object& recv, int source) {
  Array from("send", destination == INA_NOBODY ? py::none() : send, Use::kRead);
  Array to("recv", source == INA_NOBODY ? py::none() : recv, Use::kWrite);
  // Bytes: a rank without partners knows no other type, and all must give the same.
  const auto begin = [&, in = from.data(), out = to.data(), in_bytes = from.bytes(),
                      out_bytes = to.bytes()](ina_context* c, ina_request** request) {
    return ina_send_receive_async(c, in, out, in_bytes, destination, out_bytes, source, INA_UINT8,
                                  request);
  };
  return context.start(begin, both(std::move(from), std::move(to)));
}

Started barrier(const Context& context) {
  return context.start(&ina_barrier_async, {});
}

Started redistribute(const Context& context, const Plan& plan, const py::object& buffer) {
  Array array("buffer", buffer, Use::kWrite);
  const auto begin = [&, data = array.data(), bytes = array.bytes()](ina_context* c,
                                                                     ina_request** request) {
    return ina_redistribute_async(c, plan.get(), data, bytes, request);
  };
  return context.start(begin, both(std::move(array), Array()));
}

}  // namespace ina::python
