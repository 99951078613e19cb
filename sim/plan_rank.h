// One rank that carries out a plan over several dimensions: the client's executor with the plan's
// Schedule, and for each channel a network interface with the client's engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "operations/executor.h"
#include "plans/themis/execution.h"
#include "sim/nic.h"

namespace ina::sim {

/// A rank's place in a group that exchanges data.
struct PlanChannel {
  uint32_t switch_host = 0;
  ns3net::LinkSpec link;
  client::EngineConfig engine;
  JobId job{};
  uint64_t job_key = 0;
};

/// Hears of a rank's progress.
class PlanListener {
 public:
  virtual ~PlanListener() = default;
  /// All ranks have the same plan: its bytes may move now.
  virtual void agreed() = 0;
  /// Last of all that the rank does: it may be started again.
  virtual void finished() = 0;
  virtual void violated(const std::string& text) = 0;
};

class PlanRank final : private client::Executor::Kernels {
 public:
  /// `channels`: of each dimension, and then of all ranks. Throws std::invalid_argument where the
  /// plan cannot be carried out.
  PlanRank(Fabric& fabric, std::shared_ptr<const themis::Plan> plan, uint32_t rank,
           const std::vector<PlanChannel>& channels, PlanListener& listener);
  ~PlanRank() override;

  uint32_t host(size_t channel) const;
  const client::Engine& engine(size_t channel) const;
  size_t channels() const { return ports_.size(); }
  uint64_t elements_checked() const { return elements_checked_; }

  /// Carries the plan out once more, with other values each round.
  void start(uint32_t round);

 private:
  class Port;

  void run(const scheduler::Compute& compute, const client::Executor::Frame& frame) override;
  void agree(const std::byte* hashes);
  void received();
  uint64_t told() const;
  void pump_all();
  void check();
  int32_t expected(uint64_t element) const;

  Fabric& fabric_;
  const uint32_t rank_;
  const uint32_t ranks_;
  PlanListener& listener_;
  std::unique_ptr<const themis::Execution> execution_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<std::unique_ptr<client::Channel>> groups_;
  std::unique_ptr<client::Executor> executor_;

  uint32_t round_ = 0;
  uint64_t block_ = 0;  ///< elements of a rank's share of the vector
  std::vector<int32_t> send_, recv_;
  client::Operation* operation_ = nullptr;  ///< under way
  uint64_t told_ = 0;                       ///< when its ports were looked at last
  uint64_t elements_checked_ = 0;
};

}  // namespace ina::sim
