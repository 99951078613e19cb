// Data-parallel training. One worker without an exchange is the reference: the same code, the same
// global mini-batches.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "examples/demo/digits.h"
#include "examples/demo/mlp.h"

namespace ina::demo {

struct Hyper {
  std::vector<int> widths{kPixels, 256, 128, kClasses};
  int epochs = 25;
  int batch = 64;  ///< images of a global mini-batch, all workers together
  float rate = 0.1f;
  float momentum = 0.9f;
  float decay = 1e-4f;
  uint64_t seed = 1;
};

/// Averages a gradient over the workers. start() returns at once; the span belongs to the exchange
/// until wait() for the same layer returns.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  virtual void start(size_t layer, std::span<float> gradient) = 0;
  virtual void wait(size_t layer) = 0;
};

/// For a single worker: its gradient is the average already.
class NoExchange final : public GradientExchange {
 public:
  void start(size_t, std::span<float>) override {}
  void wait(size_t) override {}
};

/// The work of one worker in one epoch.
struct EpochStats {
  int32_t epoch = 0;            ///< from 1
  uint64_t images = 0;          ///< this worker's
  double loss_sum = 0;          ///< over these images, before each step
  double heldout_accuracy = 0;  ///< 0..1 after the epoch, on all held-out images
  double train_s = 0;           ///< evaluation not counted
  /// Time with an all-reduce under way: from each step's first start() to its last wait(), with the
  /// computation that overlaps.
  double allreduce_s = 0;
  uint64_t allreduce_bytes = 0;  ///< of the gradients reduced
};

/// Trains `network` as worker `rank` of `world` and calls on_epoch after each epoch. Exceptions of
/// on_epoch or the exchange end the training.
void train(Mlp<float>& network, const Split& data, const Hyper& hyper, int rank, int world,
           GradientExchange& exchange, const std::function<void(const EpochStats&)>& on_epoch);

}  // namespace ina::demo
