// Collectives through the dimensions of a network, by plans of Themis and the search, as all ranks
// of a job run them. Each group of a dimension is a job of its own; a rank has an engine in one
// group of each dimension and in the job of all ranks. A model knows the right result of each rank.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "operations/executor.h"
#include "plans/themis/execution.h"
#include "sim/faults/scenario.h"

namespace ina::sim {

/// One or several collectives of int32 that begin together.
struct PlannedGroup {
  struct Collective {
    themis::Collective what{};
    size_t count = 0;  ///< elements: of the vector (all-reduce), or of each rank's block
    bool in_place = false;
    std::vector<std::vector<int32_t>> inputs;  ///< by rank
    /// The right contents of the rank's output.
    std::vector<int32_t> expected(uint32_t rank) const;
    size_t output_size() const;
  };
  std::shared_ptr<const themis::Plan> plan;
  std::vector<Collective> collectives;
};

/// Sizes, ways, orders, chunks: all by chance.
std::vector<PlannedGroup> draw_groups(std::mt19937_64& random, const HierarchyPlan& hierarchy,
                                      uint32_t slot_bytes);

/// The job in which a rank is in that dimension, counted from the hierarchy's first one, and its
/// place there. The last channel is that of all ranks.
struct ChannelPlace {
  uint32_t job = 0;
  uint32_t place = 0;
};
ChannelPlace channel_place(const HierarchyPlan& hierarchy, size_t channel, uint32_t rank);
/// Workers of each of its jobs, in order.
std::vector<uint32_t> jobs_of(const HierarchyPlan& hierarchy);

/// One rank of a hierarchy.
class HierarchyRank {
 public:
  /// `groups` must outlive it.
  HierarchyRank(const HierarchyPlan& hierarchy, const std::vector<PlannedGroup>& groups,
                uint32_t rank, uint32_t slot_bytes, uint64_t seed);
  ~HierarchyRank();
  HierarchyRank(const HierarchyRank&) = delete;
  HierarchyRank& operator=(const HierarchyRank&) = delete;

  /// The job has ended: engines may go.
  void stop();
  /// A new life, from the first group on. `due[i]` is set when engine i has something to send that
  /// it was not stepped for. All must live until stop().
  void begin(const std::vector<std::pair<client::Engine*, bool*>>& engines, Nanos now);
  /// Takes what is done, and starts what may start.
  void step(Nanos now);

  bool done() const { return next_ == groups_.size() && running_.empty(); }
  Nanos starts_at() const { return starts_at_; }
  uint64_t completed() const { return completed_; }
  /// The errors in results, each reported once.
  std::vector<std::string> take_violations() { return std::exchange(violations_, {}); }
  /// Payload that the rank's engine of a channel must send and get in a life, in bytes.
  std::pair<uint64_t, uint64_t> payload(size_t channel) const;

 private:
  class Prompting;
  class Carried;
  struct Running;

  void start(Nanos now);
  void check(const Running& running);

  const HierarchyPlan hierarchy_;
  const std::vector<PlannedGroup>& groups_;
  const uint32_t rank_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Carried>> carried_;  ///< of each group
  std::vector<std::unique_ptr<Prompting>> channels_;
  std::unique_ptr<client::Executor> executor_;
  std::vector<std::unique_ptr<Running>> running_;
  size_t next_ = 0;
  Nanos starts_at_ = 0;
  uint64_t completed_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace ina::sim
