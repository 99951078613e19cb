// One worker of a simulated job: the client's own engine on a simulated host, and the training loop
// that uses it. Backwards, each layer's gradient is all-reduced as soon as it is computed;
// forwards, a layer waits for its sum.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "sim/models.h"
#include "sim/nic.h"
#include "sim/producer.h"

namespace ina::sim {

struct WorkerSpec {
  client::EngineConfig engine;
  JobId job{};
  uint64_t job_key = 0;
  const Model* model = nullptr;
  uint32_t iterations = 0;
  double jitter = 0;  ///< standard deviation of a layer's time, as a part of it
  StragglerSpec straggler;
  uint32_t rack = 0;
  uint32_t switch_host = 0;  ///< whose member it is
  double link_slower = 1;
  Nanos link_farther = 0;
  uint64_t seed = 0;
};

/// Hears of a worker's progress.
class WorkerListener {
 public:
  virtual ~WorkerListener() = default;
  virtual void finished(uint32_t job) = 0;
  virtual void violated(const std::string& text) = 0;
};

class Worker final : public Endpoint, private client::OperationListener {
 public:
  Worker(Fabric& fabric, const WorkerSpec& spec, uint32_t job, WorkerListener& listener);

  uint32_t host() const { return host_; }
  void start();
  const client::Engine& engine() const { return nic_.engine(); }
  uint64_t sums_checked() const { return sums_checked_; }

  void arrived() override;
  void on_timer(uint64_t argument) override;

 private:
  static constexpr uint64_t kComputed = Nic::kOthers;  ///< a timer
  enum class Phase : uint8_t { kForward, kBackward, kDrain };
  struct LayerState {
    client::Operation* operation = nullptr;  ///< under way
    std::vector<int32_t> values;             ///< in place: gradient, then sum
    uint32_t number = 0;                     ///< of the operation
  };

  void completed(client::Operation& operation) override;
  void take_results();
  void check(const LayerState& layer);
  void compute();
  void computed();
  void submit(uint32_t layer);
  void pump() {
    nic_.pump([this](std::span<const client::TxPacket> packets) { return permitted(packets); });
  }
  size_t permitted(std::span<const client::TxPacket> packets);

  Fabric& fabric_;
  WorkerSpec spec_;
  uint32_t job_;
  WorkerListener& listener_;
  uint32_t host_;
  Nic nic_;
  Producer producer_;
  std::mt19937_64 random_;

  // The training loop.
  std::vector<LayerState> layers_;
  Phase phase_ = Phase::kForward;
  uint32_t layer_ = 0;
  uint32_t iteration_ = 0;
  bool computing_ = false;
  bool started_ = false;
  bool done_ = false;
  uint32_t operations_ = 0;
  std::vector<client::Operation*> completed_;
  uint64_t sums_checked_ = 0;
};

}  // namespace ina::sim
