// A context's statistics as Python sees them: of the package ina and of ina.torch.
#pragma once

#include <ina/ina.h>
#include <pybind11/pybind11.h>

namespace ina::python {

inline pybind11::dict stats_dict(const ina_stats& s) {
  using namespace pybind11::literals;
  return pybind11::dict(
      "operations"_a = s.operations, "fragments_sent"_a = s.fragments_sent,
      "fragments_resent"_a = s.fragments_resent, "results_received"_a = s.results_received,
      "bytes_sent"_a = s.bytes_sent, "bytes_received"_a = s.bytes_received, "sleeps"_a = s.sleeps,
      "dropped"_a = s.dropped, "overflows"_a = s.overflows, "queries"_a = s.queries,
      "bytes_copied"_a = s.bytes_copied, "bytes_by_switch"_a = s.bytes_by_switch,
      "bytes_by_fallback"_a = s.bytes_by_fallback, "packets_sent"_a = s.packets_sent,
      "packets_received"_a = s.packets_received, "payload_packets_sent"_a = s.payload_packets_sent,
      "payload_packets_received"_a = s.payload_packets_received, "priority"_a = s.priority);
}

}  // namespace ina::python
