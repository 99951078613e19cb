// How a counter is declared: a field of its struct and, beside the struct, a row of a table. The
// rows give the members of `inactl status --json` (switchd/reports/status.cc), the metrics
// (control/metrics/families.cc) and docs/reference/counters.md (scripts/make_reference.py, which
// reads the tables as they are written).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ina {

/// The metric for Prometheus of a counter, or of several, which one label tells apart.
struct CounterMetric {
  std::string_view name{};   ///< empty: the counter has none
  std::string_view label{};  ///< empty: it is that of one counter
  std::string_view help{};   ///< empty: the counter's
  std::string_view value{};  ///< of the label, for this counter

  /// The part of one counter.
  constexpr CounterMetric of(std::string_view of_counter) const {
    return {name, label, help, of_counter};
  }
};

enum class CounterKind : uint8_t {
  kTotal,  ///< only grows
  kLevel,  ///< what there is now, or was at most
};

/// What users are told of a counter.
struct CounterText {
  std::string_view name;  ///< of the member of the status
  std::string_view unit;
  std::string_view help;  ///< a sentence
  CounterMetric metric{};
  CounterKind kind = CounterKind::kTotal;
};

/// A row of the table of `Counters`.
template <class Counters, class Number = uint64_t>
struct CounterField {
  Number Counters::*field;
  CounterText text;
};

/// The bytes of the counters that a table has, each once. A struct compares its own size with those
/// of its tables, so that it does not compile with a counter that users are not told of.
template <class Counters, class Number, size_t kRows>
consteval size_t bytes_of(const CounterField<Counters, Number> (&rows)[kRows]) {
  for (size_t i = 0; i < kRows; ++i)
    for (size_t j = 0; j < i; ++j)
      if (rows[i].field == rows[j].field || rows[i].text.name == rows[j].text.name)
        throw "a counter, or a name, is in two rows";
  return kRows * sizeof(Number);
}

/// Adds `more` to `sum`, counter by counter.
template <class Counters, class Number, size_t kRows>
constexpr void add(Counters& sum, const Counters& more,
                   const CounterField<Counters, Number> (&rows)[kRows]) {
  for (const CounterField<Counters, Number>& row : rows) sum.*row.field += more.*row.field;
}

}  // namespace ina
