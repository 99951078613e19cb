// The options of ina-perf.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "bench/perf/collective.h"
#include "ina/ina.h"

namespace ina::perf {

struct Options {
  int ranks = 0;    ///< 0: started by a launcher
  std::string url;  ///< empty: INA_URL; "{rank}" in it is the rank's own number
  std::string job;  ///< empty: by the launcher, or made from the process id
  std::vector<Collective> collectives;
  std::vector<uint64_t> sizes_bytes;  ///< of the whole vector
  std::vector<ina_dtype> dtypes;
  std::vector<ina_op> ops;
  bool in_place = false;  ///< all-reduce only
  bool out_of_place = true;
  bool registered = false;  ///< buffers of the direct path, where there is one; out of place only
  int warmup = 5;
  int iterations = 0;  ///< 0: as many as fit seconds_per_size
  double seconds_per_size = 1;
  bool check = true;
  ina_numeric numeric = INA_NUMERIC_DEFAULT;
  int64_t timeout_us = 30'000'000;  ///< of each operation
  int switch_pid = 0;               ///< whose CPU time is measured too; 0: unknown
  std::string json_file;            ///< empty: none
  std::string command;              ///< as it was typed
};

/// "4:1MiB:4" (smallest : largest : factor) or "4,1KiB,1MiB"; the error says what is wrong.
tl::expected<std::vector<uint64_t>, std::string> parse_sizes(std::string_view text);

/// Fills `options`, or returns the exit code: help was asked for (0) or something is wrong (2).
std::optional<int> parse_options(int argc, char** argv, Options& options);

}  // namespace ina::perf
