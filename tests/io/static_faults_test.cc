// The static policy under fire: real engines and a real aggregator shard on the simulated network,
// with loss, duplication, reordering and corruption by seed. Invariants as in the design brief:
// I1 exactly once, I2 agreement, I3 liveness, I5 conservation.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "aggregator/serve.h"
#include "client/src/engine.h"
#include "io/sim/sim_network.h"

namespace ina {
namespace {

constexpr uint32_t kSlotBytes = 256;
constexpr JobId kJob{77};
constexpr uint64_t kKey = 0x1234'5678'9abc'def0;

struct PlainCopier {
  void copy(std::span<const client::CopyJob> jobs) {
    for (const auto& job : jobs) std::memcpy(job.to, job.from, job.bytes);
  }
};

struct Scenario {
  uint32_t workers = 4;
  uint32_t window = 8;
  io::sim::Faults faults;
  uint32_t operations = 6;
};

class Rack {
 public:
  Rack(uint64_t seed, const Scenario& scenario)
      : random_(seed),
        network_(seed ^ 0x5eed, scenario.faults),
        port_(network_, kSlotBytes),
        rows_(2 * scenario.window * kSlotBytes / 64),
        results_(2 * scenario.window * kSlotBytes / 64),
        aggregator_({2 * scenario.window, kSlotBytes, 1},
                    std::as_writable_bytes(std::span(rows_))) {
    aggregator::JobSpec spec;
    spec.id = kJob;
    spec.epoch = 1;
    spec.workers = scenario.workers;
    spec.window = scenario.window;
    spec.pool = {0, 2 * scenario.window, 1, 0};
    spec.results = reinterpret_cast<std::byte*>(results_.data());
    aggregator_.add_job(0, spec);
    for (uint32_t i = 0; i < scenario.workers; ++i) {
      const Rank rank{static_cast<uint8_t>(i)};
      port_.bind(1 + i, kJob, kKey, 0, rank);
      client::EngineConfig config;
      config.rank = rank;
      config.epoch = 1;
      config.window = scenario.window;
      config.slot_bytes = kSlotBytes;
      config.rto_min_ns = 200'000;
      config.rto_max_ns = 5'000'000;
      workers_.push_back(std::make_unique<Worker>(config, network_, 1 + i));
    }
    plan(scenario);
  }

  /// Runs until all is done; false: no end within a minute of virtual time.
  bool run() {
    while (!done()) {
      if (network_.now() > 60'000'000'000) return false;
      step();
    }
    // What is still under way must not disturb anything.
    while (!network_.quiet()) step();
    return true;
  }

  void check() {
    for (size_t op = 0; op < expected_.size(); ++op)
      for (const auto& worker : workers_) {
        if (exact_[op]) {
          EXPECT_EQ(worker->recv[op], expected_[op]) << "I1: operation " << op;
        }
        EXPECT_EQ(worker->recv[op], workers_[0]->recv[op]) << "I2: operation " << op;
      }
    const auto& port = port_.counters();
    const auto& core = aggregator_.counters();
    uint64_t port_drops = 0;
    for (const uint64_t count : port.drops.count) port_drops += count;
    EXPECT_EQ(port.rx_packets, port_drops + core.packets) << "I5: packets";
    EXPECT_EQ(core.packets, core.absorbed + core.dropped()) << "I5: one fate each";
    EXPECT_EQ(core.absorbed, core.contributions_in_results) << "I5: contributions";
    EXPECT_EQ(core.slots_used, 0u) << "I5: a slot is held though all is done";
    EXPECT_EQ(core.drops[DropReason::kOutsideWindow], 0u);
    EXPECT_EQ(core.drops[DropReason::kMismatch], 0u);
  }

  const aggregator::Counters& counters() const { return aggregator_.counters(); }
  uint64_t resent() const {
    uint64_t sum = 0;
    for (const auto& worker : workers_) sum += worker->engine.counters().fragments_resent;
    return sum;
  }

 private:
  struct Worker {
    Worker(const client::EngineConfig& config, io::sim::SimNetwork& network, uint32_t host)
        : engine(config), transport(network, host, kJob, kKey, kSlotBytes) {}
    client::Engine engine;
    io::sim::SimTransport transport;
    std::vector<std::vector<std::byte>> send, recv;
    std::vector<client::Operation*> operations;
  };

  /// Integers are checked against the sum, floats (any order of adding is right) for agreement.
  void plan(const Scenario& scenario) {
    for (uint32_t op = 0; op < scenario.operations; ++op) {
      const bool exact = op % 2 == 0;
      const size_t count = std::uniform_int_distribution<size_t>(0, 2000)(random_);
      std::vector<int32_t> sum(count, 0);
      for (auto& worker : workers_) {
        std::vector<std::byte> data(count * 4);
        for (size_t i = 0; i < count; ++i) {
          if (exact) {
            const auto element = static_cast<int32_t>(random_() % 2001) - 1000;
            sum[i] += element;
            std::memcpy(&data[i * 4], &element, 4);
          } else {
            const auto element = static_cast<float>(std::normal_distribution<>(0, 1e3)(random_));
            std::memcpy(&data[i * 4], &element, 4);
          }
        }
        worker->recv.emplace_back(count * 4);
        worker->send.push_back(std::move(data));
      }
      expected_.emplace_back(count * 4);
      if (count != 0) std::memcpy(expected_.back().data(), sum.data(), count * 4);
      exact_.push_back(exact);
    }
    for (auto& worker : workers_)
      for (uint32_t op = 0; op < scenario.operations; ++op) {
        // Every third operation in place.
        std::byte* recv = worker->recv[op].data();
        const std::byte* send = worker->send[op].data();
        if (op % 3 == 2) {
          worker->recv[op] = worker->send[op];
          recv = worker->recv[op].data();
          send = recv;
        }
        worker->operations.push_back(worker->engine.submit(
            {send, recv, worker->recv[op].size() / 4, exact_[op] ? DType::kInt32 : DType::kFloat32,
             Op::kSum, Collective::kAllReduce},
            0));
      }
  }

  void step() {
    io::RxPacket packets[16];
    aggregator::Verdict verdicts[16];
    while (aggregator::serve(
        port_, aggregator_, packets, verdicts, network_.now(),
        [&](aggregator::JobIndex, Rank rank, const aggregator::Verdict& verdict) {
          port_.tx(static_cast<io::EndpointIndex>(value(rank)), verdict.message,
                   {verdict.payload, verdict.payload_bytes});
        },
        [](const io::RxPacket&, const aggregator::Verdict&) { ADD_FAILURE() << "mismatch"; })) {
    }
    Nanos next = network_.now() + 1'000'000;
    PlainCopier copier;
    for (auto& worker : workers_) {
      client::RxPacket received[16];
      while (const size_t count = worker->transport.rx_burst(received)) {
        worker->engine.on_packets(std::span(received, count), network_.now(), copier);
        worker->transport.rx_release();
      }
      client::TxPacket to_send[16];
      while (const size_t count = worker->engine.prepare(to_send, network_.now())) {
        worker->transport.tx_burst(std::span(to_send, count));
        worker->engine.sent(count, network_.now());
      }
      next = std::min(next, worker->engine.next_deadline());
    }
    network_.advance(std::max(next, network_.now() + 1));
  }

  bool done() const {
    for (const auto& worker : workers_)
      for (const auto* operation : worker->operations)
        if (!operation->done) return false;
    return true;
  }

  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::mt19937_64 random_;
  io::sim::SimNetwork network_;
  io::sim::SimPort port_;
  std::vector<Line> rows_;
  std::vector<Line> results_;
  aggregator::Aggregator aggregator_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::vector<std::byte>> expected_;
  std::vector<bool> exact_;
};

TEST(StaticFaults, FaultFreeRunSendsEachFragmentOnce) {
  Rack rack(1, {});
  ASSERT_TRUE(rack.run());
  rack.check();
  EXPECT_EQ(rack.resent(), 0u);
  EXPECT_EQ(rack.counters().dropped(), 0u);
}

class StaticFaultsSeeds : public testing::TestWithParam<int> {};

TEST_P(StaticFaultsSeeds, InvariantsHold) {
  constexpr int kSeedsPerCase = 50;
  for (int i = 0; i < kSeedsPerCase; ++i) {
    const uint64_t seed = static_cast<uint64_t>(GetParam()) * 1000 + static_cast<uint64_t>(i);
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto up_to = [&](double most) {
      return std::uniform_real_distribution<>(0, most)(random);
    };
    Scenario scenario;
    scenario.workers = 1 + static_cast<uint32_t>(random() % 8);
    scenario.window = 1 + static_cast<uint32_t>(random() % 16);
    scenario.faults.loss = up_to(0.3);
    scenario.faults.duplicate = up_to(0.5);
    scenario.faults.reorder = up_to(0.5);
    scenario.faults.corrupt = up_to(0.1);
    Rack rack(seed, scenario);
    ASSERT_TRUE(rack.run()) << "I3: no end";
    rack.check();
    if (testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, StaticFaultsSeeds, testing::Range(0, 8));

}  // namespace
}  // namespace ina
