// One rank of a hierarchical all-reduce by leaders, for comparison: the ranks of a leaf reduce to
// the first of them, the leaders all-reduce over the root, and each broadcasts to its leaf. Each
// step is a job of its own, with an engine of its own, over the rank's one link. The vector is cut
// into chunks, so that the steps overlap.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "sim/nic.h"
#include "sim/worker.h"

namespace ina::sim {

/// A rank's place in the job of one step.
struct LeaderStep {
  client::EngineConfig engine;
  JobId job{};
  uint64_t job_key = 0;
  uint32_t switch_host = 0;
};

struct LeaderRankSpec {
  uint32_t rank = 0;   ///< of all
  uint32_t ranks = 0;  ///< all
  bool leads = false;
  uint32_t rack = 0;
  uint64_t bytes = 0;  ///< of an iteration's vector
  uint32_t iterations = 1;
  uint32_t chunk_fragments = 1;
};

class LeaderRank final : private client::OperationListener {
 public:
  enum Step : uint32_t { kReduce, kAbove, kBroadcast, kSteps };

  LeaderRank(Fabric& fabric, const LeaderRankSpec& spec, uint32_t job, WorkerListener& listener);
  ~LeaderRank() override;

  /// Returns the address that it has in the step's job. kAbove: of leaders only.
  uint32_t add_address(Step step);
  /// Once for each address.
  void join(Step step, const LeaderStep& joined);
  void start();

  uint32_t host() const { return *hosts_[kReduce]; }
  uint64_t sums_checked() const { return sums_checked_; }
  template <class Visit>
  void for_each_engine(Visit&& visit) const {
    for (const auto& nic : nics_)
      if (nic) visit(nic->engine());
  }

 private:
  class Port;
  struct Chunk {
    uint64_t first = 0, elements = 0;
    client::Operation* operations[kSteps] = {};
  };

  void cut(uint32_t slot_bytes);
  void submit(Chunk& chunk, Step step);
  void completed(client::Operation& operation) override;
  void release(Chunk& chunk, Step step);
  void received(Step step);
  void pump_all();
  void check();

  Fabric& fabric_;
  const LeaderRankSpec spec_;
  const uint32_t job_;
  WorkerListener& listener_;
  std::unique_ptr<Port> ports_[kSteps];
  std::optional<uint32_t> hosts_[kSteps];
  std::unique_ptr<Nic> nics_[kSteps];
  std::vector<Chunk> chunks_;
  uint32_t iteration_ = 0;
  size_t left_ = 0;  ///< operations of this iteration that are not complete
  bool progress_ = false;
  std::vector<int32_t> values_, sums_;
  uint64_t sums_checked_ = 0;
};

}  // namespace ina::sim
