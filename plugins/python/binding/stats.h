// A context's statistics as Python sees them: of the package ina and of ina.torch.
#pragma once

#include <ina/ina.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <iterator>

namespace ina::python {

/// A counter, and its key in Python.
struct StatsField {
  const char* name;
  uint64_t ina_stats::*field;
};

inline constexpr StatsField kStatsFields[] = {
    {"operations", &ina_stats::operations},
    {"fragments_sent", &ina_stats::fragments_sent},
    {"fragments_resent", &ina_stats::fragments_resent},
    {"results_received", &ina_stats::results_received},
    {"bytes_sent", &ina_stats::bytes_sent},
    {"bytes_received", &ina_stats::bytes_received},
    {"sleeps", &ina_stats::sleeps},
    {"dropped", &ina_stats::dropped},
    {"overflows", &ina_stats::overflows},
    {"queries", &ina_stats::queries},
    {"bytes_copied", &ina_stats::bytes_copied},
    {"bytes_by_switch", &ina_stats::bytes_by_switch},
    {"bytes_by_fallback", &ina_stats::bytes_by_fallback},
    {"packets_sent", &ina_stats::packets_sent},
    {"packets_received", &ina_stats::packets_received},
    {"payload_packets_sent", &ina_stats::payload_packets_sent},
    {"payload_packets_received", &ina_stats::payload_packets_received},
    {"priority", &ina_stats::priority},
};
static_assert(sizeof(ina_stats) ==
                  sizeof(ina_stats::struct_size) + std::size(kStatsFields) * sizeof(uint64_t),
              "a counter of ina_stats needs a row in kStatsFields");

inline pybind11::dict stats_dict(const ina_stats& stats) {
  pybind11::dict dict;
  for (const StatsField& row : kStatsFields) dict[row.name] = stats.*row.field;
  return dict;
}

}  // namespace ina::python
