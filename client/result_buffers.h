// Memory that the switch writes for all workers of a job, and operations whose results go straight
// there. See docs/protocol.md, "Registered memory and result buffers".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "client/collective_call.h"
#include "common/fd.h"
#include "common/result.h"
#include "fragments/engine.h"

namespace ina::client {

/// One of the job's result buffers.
struct SharedResults {
  Mapping mapping;  ///< read-only, as long as the switch writes to it
  /// Nothing: ordinary memory, to which results are copied: the switch that wrote to it has gone,
  /// or a worker of the job is not on this host.
  std::optional<uint32_t> first_unit;

  /// The contents stay at their addresses, but in ordinary memory.
  Result<void> make_ordinary();
};

/// The switch's answer to a request for a result buffer.
struct SharedAnswer {
  Error error{INA_OK, ""};
  std::optional<uint32_t> first_unit;  ///< as in SharedResults
  size_t bytes = 0;
  Fd file;
  uint32_t epoch = 0;  ///< in which it came
};

/// The result buffers of one worker. Used under its context's lock.
class ResultBuffers {
 public:
  /// `reproducible`: reductions of floats are put together by their workers.
  ResultBuffers(uint32_t world_size, uint32_t rank, bool reproducible)
      : world_size_(world_size), rank_(rank), reproducible_(reproducible) {}

  bool empty() const { return all_.empty(); }
  void add(SharedResults results) { all_.push_back(std::move(results)); }
  /// The one that begins there; nullptr: none does.
  SharedResults* find(const void* data);
  void remove(const SharedResults& results);
  /// The switch that wrote them has gone.
  Result<void> make_ordinary();

  /// Finds out whether an all-reduce's results go straight to a result buffer, and then says so in
  /// `spec`.
  Result<void> aim(OperationSpec& spec) const;
  /// Aims another collective. Only the switch can write to a result buffer, so all of `recv` must
  /// be what it writes there.
  Result<void> aim(OperationSpec& spec, const CollectiveCall& call) const;
  /// INA_ERR_UNSUPPORTED if `memory`, which the text calls `what`, lies in one.
  Result<void> refuse(const void* memory, uint64_t bytes, std::string_view what) const;

 private:
  const uint32_t world_size_;
  const uint32_t rank_;
  const bool reproducible_;
  std::vector<SharedResults> all_;
};

}  // namespace ina::client
