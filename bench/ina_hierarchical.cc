// ina-hierarchical: all ranks of a job, each in a thread, that sum through the dimensions of a mesh
// by the baseline's plan, Themis's and the search's in turn. Each dimension is emulated: a token
// bucket for each rank, dimension and direction. scripts/bench_themis_live.py starts it.
//
// Says in JSON how long each round of each scheduler took, by the slowest rank, and the planner's
// prediction. Every element is checked in every round, outside of the time taken.
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bench/hierarchical/paced_transport.h"
#include "client/hierarchy.h"
#include "common/command_line.h"
#include "common/json/json.h"
#include "plans/themis/planner.h"

namespace ina::hierarchical {
namespace {

using client::Context;
using client::Hierarchy;
using nlohmann::json;
using themis::Scheduler;

constexpr Scheduler kSchedulers[] = {Scheduler::kBaseline, Scheduler::kThemis, Scheduler::kSearch};
constexpr themis::Picos kPicosPerUs = 1'000'000;
constexpr double kPicosPerMs = 1e9;

struct Options {
  std::string url;
  std::vector<uint32_t> sizes;
  std::vector<double> rates;  ///< MB/s
  uint64_t bytes = 1 << 20;
  int64_t step_latency_us = 500;
  uint32_t chunks = 16;
  int rounds = 5;
};

themis::Topology topology_of(const Options& options) {
  themis::Topology topology;
  for (size_t i = 0; i < options.sizes.size(); ++i)
    topology.dimensions.push_back({.name = fmt::format("emulated {}", i),
                                   .kind = themis::DimensionKind::kIna,
                                   .size = options.sizes[i],
                                   .bits_per_s = static_cast<uint64_t>(options.rates[i] * 8e6),
                                   .step_latency_ps = options.step_latency_us * kPicosPerUs,
                                   .point_to_point = themis::DimensionKind::kDirect});
  return topology;
}

/// As Hierarchy plans it.
themis::Planned plan_of(const Options& options, Scheduler scheduler) {
  auto planned = themis::make_plan(
      topology_of(options), {{.bytes = options.bytes}},
      {.scheduler = scheduler, .chunks = options.chunks, .in_network = themis::InNetwork::kAlways});
  if (!planned) throw std::runtime_error(planned.error().text);
  return std::move(*planned);
}

/// All ranks, and their findings.
class Run {
 public:
  explicit Run(const Options& options)
      : options_(options),
        topology_(topology_of(options)),
        ranks_(static_cast<uint32_t>(topology_.participants())),
        line_(static_cast<ptrdiff_t>(ranks_)) {}

  json report() {
    slowest_ms_.assign(std::size(kSchedulers),
                       std::vector<double>(static_cast<size_t>(options_.rounds), 0));
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < ranks_; ++rank)
      threads.emplace_back([this, rank] {
        try {
          run(rank);
        } catch (const std::exception& error) {
          fmt::print(stderr, "ina-hierarchical: rank {}: {}\n", rank, error.what());
          std::_Exit(1);  // the others would wait for it
        }
      });
    for (auto& thread : threads) thread.join();
    json found = {{"bytes", options_.bytes}, {"wrong_elements", wrong_}};
    for (size_t i = 0; i < std::size(kSchedulers); ++i) {
      const themis::Planned planned = plan_of(options_, kSchedulers[i]);
      found["schedulers"][std::string(name(kSchedulers[i]))] = {
          {"samples_ms", slowest_ms_[i]},
          {"predicted_ms", static_cast<double>(planned.timeline.end_ps) / kPicosPerMs}};
    }
    return found;
  }

 private:
  template <class T>
  static T need(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().text);
    return std::move(*result);
  }

  void run(uint32_t rank) {
    client::Settings settings;
    settings.url = options_.url;
    settings.job = "hierarchical";
    settings.rank = rank;
    settings.world_size = ranks_;
    settings.timeout_ns = 120'000'000'000;
    settings.rejoin_timeout_ns = settings.timeout_ns;
    settings.window_bytes = 64 << 10;
    const auto context = need(Context::join(settings));
    const auto hierarchy = need(Hierarchy::create(context, topology_, {}));
    for (size_t i = 0; i < options_.rates.size(); ++i) {
      Context& group = *hierarchy->contexts()[i];
      group.replace_transport([&](std::unique_ptr<client::Transport> inner) {
        return std::make_unique<PacedTransport>(std::move(inner), options_.rates[i] * 1e6,
                                                group.slot_bytes());
      });
    }
    // The first round warms up. Each scheduler has each place among them.
    for (int round = 0; round <= options_.rounds; ++round)
      for (size_t i = 0; i < std::size(kSchedulers); ++i)
        sum(*hierarchy, rank, (static_cast<size_t>(round) + i) % std::size(kSchedulers), round);
    if (hierarchy->leave(0) != INA_OK) throw std::runtime_error(hierarchy->last_error());
    context->leave(0);
    context->close();
  }

  void sum(Hierarchy& hierarchy, uint32_t rank, size_t scheduler, int round) {
    std::vector<int32_t> data(options_.bytes / sizeof(int32_t));
    for (size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<int32_t>(rank * 1000 + i + static_cast<size_t>(round));
    client::HierarchicalCall call;
    call.function = "ina-hierarchical";
    call.send = call.recv = data.data();
    call.count = data.size();
    call.dtype_number = INA_INT32;
    call.op_number = INA_SUM;
    const client::HierarchicalOptions how{kSchedulers[scheduler], options_.chunks};
    line_.arrive_and_wait();
    const Nanos begin = now_ns();
    client::Operation* const operation = need(hierarchy.start(call.function, {&call, 1}, how));
    if (hierarchy.wait(operation, 0, true).status != INA_OK)
      throw std::runtime_error(hierarchy.last_error());
    const double took_ms = static_cast<double>(now_ns() - begin) * 1e-6;
    uint64_t wrong = 0;
    for (size_t i = 0; i < data.size(); ++i)
      wrong += data[i] != static_cast<int32_t>(ranks_ * (i + static_cast<size_t>(round)) +
                                               1000 * (ranks_ * (ranks_ - 1) / 2))
                   ? 1
                   : 0;
    {
      const std::lock_guard lock(mutex_);
      wrong_ += wrong;
      if (round != 0) {
        double& slowest = slowest_ms_[scheduler][static_cast<size_t>(round - 1)];
        slowest = std::max(slowest, took_ms);
      }
    }
    line_.arrive_and_wait();
  }

  const Options& options_;
  const themis::Topology topology_;
  const uint32_t ranks_;
  std::barrier<> line_;
  std::mutex mutex_;
  uint64_t wrong_ = 0;                           ///< under mutex_
  std::vector<std::vector<double>> slowest_ms_;  ///< under mutex_
};

}  // namespace
}  // namespace ina::hierarchical

int main(int argc, char** argv) {
  ina::hierarchical::Options options;
  ina::command_line::App app("All ranks of a job that sum through emulated dimensions");
  app.add_option("--url", options.url, "the switch")->required();
  app.add_option("--sizes", options.sizes, "of the dimensions: 4,4")->delimiter(',')->required();
  app.add_option("--rates", options.rates, "emulated, of each dimension, MB/s each way: 4,2")
      ->delimiter(',')
      ->required();
  app.add_option("--bytes", options.bytes, "of the vector")
      ->check(ina::command_line::between<uint64_t>(4, uint64_t{1} << 30));
  app.add_option("--step-latency-us", options.step_latency_us, "that the planner reckons with");
  app.add_option("--chunks", options.chunks)->check(ina::command_line::between(1u, 4096u));
  app.add_option("--rounds", options.rounds, "timed")->check(ina::command_line::between(1, 10'000));
  if (const auto status = ina::command_line::parse(app, argc, argv)) return *status;
  if (options.sizes.size() != options.rates.size()) {
    fmt::print(stderr, "ina-hierarchical: as many --rates as --sizes are needed\n");
    return 2;
  }
  try {
    fmt::print("{}\n", ina::hierarchical::Run(options).report().dump());
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "ina-hierarchical: {}\n", error.what());
    return 1;
  }
}
