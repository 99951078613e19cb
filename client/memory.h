// Memory of a context on the direct path: registered memory that the switch reads in place, and
// result buffers that the switch writes for all workers of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/fd.h"
#include "common/result.h"

namespace ina::client {

/// The worker's own memory, which the switch may read.
struct RegisteredMemory {
  uint32_t number = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
  Fd file;             ///< kept, to register it anew with another switch
  Mapping mapping;     ///< of ours; empty if the caller has mapped it
  bool known = false;  ///< to the switch
};

/// One of the job's result buffers.
struct SharedResults {
  Mapping mapping;  ///< read-only, as long as the switch writes to it
  /// Nothing: ordinary memory, to which results are copied: the switch that wrote to it has gone,
  /// or a worker of the job is not on this host.
  std::optional<uint32_t> first_unit;
};

/// What the switch said to a request for a result buffer.
struct SharedAnswer {
  Error error{INA_OK, ""};
  std::optional<uint32_t> first_unit;  ///< as in SharedResults
  size_t bytes = 0;
  Fd file;
  uint32_t epoch = 0;  ///< in which it came
};

}  // namespace ina::client
