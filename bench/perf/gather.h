// The exchange of measurements between the ranks of ina-perf.
//
// Forked ranks share a mapping that was made before the fork, so that reports about the sums do not
// travel through the sums. Ranks that a launcher starts have nothing but the all-reduce itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "ina/ina.h"

namespace ina::perf {

inline constexpr int kMaxRanks = INA_MAX_WORLD_SIZE;
inline constexpr size_t kMaxSamples = 20'000;

/// Every rank must make the same calls in the same order. Values come back the same on all ranks.
class Gather {
 public:
  virtual ~Gather() = default;
  /// values[i] = the largest of all ranks' values[i].
  virtual void max_each(std::span<int64_t> values) = 0;
  /// The sum over all ranks.
  virtual int64_t sum(int64_t value) = 0;
  virtual void barrier() = 0;

  int64_t max(int64_t value) {
    max_each({&value, 1});
    return value;
  }
};

/// Memory of all forked ranks and their parent. Each rank writes its own Rank only. There is memory
/// for as many ranks as map_shared_area() was asked for.
struct SharedArea {
  struct alignas(64) Rank {
    std::atomic<uint64_t> progress;  ///< written by the rank, read by the parent's watchdog
    char error[1024];                ///< written by the rank before it exits with kExitError
    int64_t samples[kMaxSamples];
  };
  alignas(64) std::atomic<uint32_t> arrived;  ///< at the barrier; all ranks write
  alignas(64) std::atomic<uint32_t> turn;     ///< number of the barrier; its last rank writes
  Rank ranks[kMaxRanks];
};

struct UnmapSharedArea {
  void operator()(SharedArea* area) const;
  size_t bytes = 0;
};

/// An anonymous shared mapping for `ranks`, zeroed. Null when there is no memory.
std::unique_ptr<SharedArea, UnmapSharedArea> map_shared_area(int ranks);

/// Between forked ranks. Waits by yielding and sleeping; the parent ends it if a rank dies.
std::unique_ptr<Gather> gather_by_mapping(SharedArea& area, int rank, int ranks);

/// Through ina_allreduce on int64. Throws std::runtime_error with the library's text.
std::unique_ptr<Gather> gather_by_allreduce(ina_context* context);

}  // namespace ina::perf
