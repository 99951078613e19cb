#include "examples/demo/worker.h"

#include <unistd.h>

#include <exception>
#include <ina/ina.hpp>
#include <optional>
#include <string_view>
#include <vector>

namespace ina::demo {
namespace {

constexpr int64_t kTimeoutUs = 10'000'000;

/// The workers' average, made in the switch.
class SwitchExchange final : public GradientExchange {
 public:
  SwitchExchange(Context& context, size_t layers) : context_(context), requests_(layers) {}
  void start(size_t layer, std::span<float> gradient) override {
    requests_[layer].emplace(context_.allreduce_async(gradient, INA_AVG));
  }
  void wait(size_t layer) override {
    requests_[layer]->wait();
    requests_[layer].reset();
  }

 private:
  Context& context_;
  std::vector<std::optional<Request>> requests_;
};

Context join(const WorkerSetup& setup) {
  ina_config config;
  ina_config_init(&config);
  config.url = setup.url.c_str();
  config.job = "demo";
  config.rank = setup.rank;
  config.world_size = setup.world;
  config.timeout_us = kTimeoutUs;
  return Context(config);
}

std::vector<std::byte> all_parameters(const Mlp<float>& network) {
  std::vector<std::byte> bytes;
  for (size_t layer = 0; layer < network.layers(); ++layer) {
    const auto part = std::as_bytes(network.parameters(layer));
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

void work(const WorkerSetup& setup, const Split& data, Mlp<float>& network,
          GradientExchange& exchange, Context& context, Channel& launcher) {
  train(network, data, setup.hyper, setup.rank, setup.world, exchange,
        [&](const EpochStats& stats) {
          launcher.send(Kind::kEpoch, std::as_bytes(std::span(&stats, 1)));
        });
  launcher.send(Kind::kWeights, all_parameters(network));
  launcher.receive();
  context.finalize();
}

/// Tells the launcher and ends the process, without returning: the destructors of requests in
/// flight would wait for peers that may never answer.
[[noreturn]] void give_up(const std::exception& error, Channel& launcher) {
  try {
    launcher.send(Kind::kError, std::as_bytes(std::span(std::string_view(error.what()))));
  } catch (const std::exception&) {
    // The launcher is gone: nobody is left to tell.
  }
  ::_exit(1);
}

}  // namespace

int run_worker(const WorkerSetup& setup, const Split& data, Channel& launcher) {
  try {
    Context context = join(setup);
    Mlp<float> network(setup.hyper.widths, setup.hyper.seed);
    SwitchExchange exchange(context, network.layers());
    try {
      work(setup, data, network, exchange, context, launcher);
      return 0;
    } catch (const std::exception& error) {
      give_up(error, launcher);
    }
  } catch (const std::exception& error) {
    give_up(error, launcher);
  }
}

}  // namespace ina::demo
