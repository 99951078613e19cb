#include "examples/demo/train.h"

#include <algorithm>
#include <chrono>

namespace ina::demo {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One step: this worker's shard forward and backward, the exchange, the update.
void train_step(Mlp<float>& network, const Digits& shard_of_batch, float scale, const Hyper& hyper,
                GradientExchange& exchange, EpochStats& stats) {
  Clock::time_point first_start;
  const auto batch =
      network.train_batch(shard_of_batch.images, shard_of_batch.labels, scale, [&](size_t layer) {
        if (layer + 1 == network.layers()) first_start = Clock::now();
        exchange.start(layer, network.gradient(layer));
        stats.allreduce_bytes += network.gradient(layer).size_bytes();
      });
  // In the order in which they were started; a layer is updated while those below still travel.
  for (size_t layer = network.layers(); layer-- > 0;) {
    exchange.wait(layer);
    if (layer == 0) stats.allreduce_s += seconds_since(first_start);
    network.step(layer, hyper.rate, hyper.momentum, hyper.decay);
  }
  stats.loss_sum += batch.loss_sum;
  stats.images += shard_of_batch.size();
}

}  // namespace

void train(Mlp<float>& network, const Split& data, const Hyper& hyper, int rank, int world,
           GradientExchange& exchange, const std::function<void(const EpochStats&)>& on_epoch) {
  for (int epoch = 1; epoch <= hyper.epochs; ++epoch) {
    EpochStats stats;
    stats.epoch = epoch;
    const Clock::time_point start = Clock::now();
    const std::vector<uint32_t> order = epoch_order(data.train.size(), hyper.seed, epoch);
    for (size_t at = 0; at < order.size(); at += static_cast<size_t>(hyper.batch)) {
      const auto batch = std::span(order).subspan(
          at, std::min(static_cast<size_t>(hyper.batch), order.size() - at));
      // With this factor the average over the workers is the mean over the global batch, also when
      // the shards differ in size or one is empty.
      const float scale = static_cast<float>(world) / static_cast<float>(batch.size());
      train_step(network, select(data.train, shard(batch, rank, world)), scale, hyper, exchange,
                 stats);
    }
    stats.train_s = seconds_since(start);
    const auto heldout = network.evaluate(data.heldout.images, data.heldout.labels);
    stats.heldout_accuracy =
        static_cast<double>(heldout.correct) / static_cast<double>(data.heldout.size());
    on_epoch(stats);
  }
}

}  // namespace ina::demo
