// The table on standard output and the JSON file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/perf/options.h"

namespace ina::perf {

struct Row {
  Collective collective{};
  int ranks = 0;
  uint64_t bytes = 0;  ///< of the whole vector
  uint64_t count = 0;
  ina_dtype dtype{};
  ina_op op{};
  bool in_place = false;
  bool registered = false;                       ///< buffers of the direct path
  std::vector<int64_t> samples_ns{};             ///< of each operation, on its slowest rank
  double cpu_us_per_op = 0;                      ///< of all ranks together
  std::optional<double> switch_cpu_us_per_op{};  ///< nothing: not measured
  int64_t operations = 0;                        ///< all that the row took, timed or not
  std::optional<bool> correct{};                 ///< nothing: not checked
  int64_t fragments_resent = 0;                  ///< by all ranks, while the clock ran
  int64_t core_round_trip_ns = 0;                ///< just before the row
  // Bytes of one operation, at the rank with most of them.
  double payload_bytes_up = 0;
  double payload_bytes_down = 0;
  double overhead_bytes = 0;  ///< of messages without payload, both ways, with their headers

  double percentile_us(double percent) const;
  /// GB/s by the median.
  double algbw() const;
  /// By the least bytes that each rank's link must carry; comparable between numbers of ranks.
  double busbw() const;
};

/// Prints the table's head and, one by one, its rows.
void print_head(const Options& options, int ranks);
void print_row(const Row& row);

/// Writes {"meta": ..., "rows": [...]}; returns what went wrong, empty if nothing.
std::string write_json(const Options& options, const std::vector<Row>& rows);

}  // namespace ina::perf
