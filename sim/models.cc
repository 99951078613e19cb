#include "sim/models.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace ina::sim {

namespace {

/// Parameters and forward multiplications of a block; the unit of the latter does not matter.
struct Block {
  std::string name;
  double parameters = 0;
  double flops = 0;

  Block& operator+=(const Block& other) {
    parameters += other.parameters;
    flops += other.flops;
    return *this;
  }
};

Block convolution(double kernel, double in, double out, double side, bool normalised) {
  // Batch normalisation instead of a bias: scale and shift.
  return {"", kernel * kernel * in * out + (normalised ? 2 : 1) * out,
          kernel * kernel * in * out * side * side};
}

Block dense(double in, double out) {
  return {"", in * out + out, in * out};
}

Block named(const std::string& name, std::initializer_list<Block> parts) {
  Block block{name};
  for (const Block& part : parts) block += part;
  return block;
}

/// He et al., CVPR'16, table 1: 25.6 million parameters.
std::vector<Block> resnet50() {
  std::vector<Block> blocks{named("conv1", {convolution(7, 3, 64, 112, true)})};
  const int repeats[] = {3, 4, 6, 3};
  double in = 64;
  for (int stage = 0; stage < 4; ++stage) {
    const double width = 64 << stage;
    const double side = 56 >> stage;
    for (int i = 0; i < repeats[stage]; ++i) {
      Block block =
          named("conv" + std::to_string(stage + 2) + "_" + std::to_string(i + 1),
                {convolution(1, in, width, side, true), convolution(3, width, width, side, true),
                 convolution(1, width, 4 * width, side, true)});
      if (i == 0) block += convolution(1, in, 4 * width, side, true);
      blocks.push_back(block);
      in = 4 * width;
    }
  }
  blocks.push_back(named("fc", {dense(2048, 1000)}));
  return blocks;
}

/// Simonyan and Zisserman, ICLR'15, configuration D: 138 million parameters.
std::vector<Block> vgg16() {
  std::vector<Block> blocks;
  double in = 3;
  int number = 0;
  const int repeats[] = {2, 2, 3, 3, 3};
  for (int stage = 0; stage < 5; ++stage) {
    const double out = std::min(512, 64 << stage);
    for (int i = 0; i < repeats[stage]; ++i) {
      blocks.push_back(
          named("conv" + std::to_string(++number), {convolution(3, in, out, 224 >> stage, false)}));
      in = out;
    }
  }
  blocks.push_back(named("fc1", {dense(25088, 4096)}));
  blocks.push_back(named("fc2", {dense(4096, 4096)}));
  blocks.push_back(named("fc3", {dense(4096, 1000)}));
  return blocks;
}

/// Devlin et al., NAACL'19: 24 layers of width 1024, 335 million parameters. Sequences of 128.
std::vector<Block> bert_large() {
  constexpr double kWidth = 1024;
  constexpr double kWords = 30522;
  std::vector<Block> blocks{{"embedding", (kWords + 512 + 2 + 2) * kWidth, 0}};
  for (int i = 0; i < 24; ++i) {
    const double parameters = 12 * kWidth * kWidth + 13 * kWidth;
    blocks.push_back(
        {"encoder" + std::to_string(i + 1), parameters, 12 * kWidth * kWidth + 2 * 128 * kWidth});
  }
  // The output layer is the embedding's matrix; it computes, and has little of its own.
  blocks.push_back({"heads", 2 * (kWidth * kWidth + kWidth) + 2 * kWidth + kWords + 2 * kWidth + 2,
                    kWords * kWidth * 0.15});
  return blocks;
}

/// GNMT v2 of NVIDIA's DeepLearningExamples: four LSTM layers of 1024 each side, the first of the
/// encoder in both directions, shared embedding of 32,320 words: 160 million parameters.
std::vector<Block> gnmt() {
  constexpr double kWidth = 1024;
  constexpr double kWords = 32320;
  const auto lstm = [](double in) {
    return Block{"", 4 * ((in + kWidth) * kWidth + 2 * kWidth), 4 * (in + kWidth) * kWidth};
  };
  std::vector<Block> blocks{{"embedding", kWords * kWidth, 0}};
  blocks.push_back(named("encoder1", {lstm(kWidth), lstm(kWidth)}));
  blocks.push_back(named("encoder2", {lstm(2 * kWidth)}));
  blocks.push_back(named("encoder3", {lstm(kWidth)}));
  blocks.push_back(named("encoder4", {lstm(kWidth)}));
  blocks.push_back(
      named("decoder1", {lstm(kWidth), {"", 2 * kWidth * kWidth + kWidth, 2 * kWidth * kWidth}}));
  for (int i = 2; i <= 4; ++i)
    blocks.push_back(named("decoder" + std::to_string(i), {lstm(2 * kWidth)}));
  blocks.push_back(named("classifier", {dense(kWidth, kWords)}));
  return blocks;
}

/// DLRM (Naumov et al., 2019) as in NVIDIA's DeepLearningExamples: the embedding tables are spread
/// over the workers, only the two multi-layer perceptrons are all-reduced: 2.4 million parameters.
std::vector<Block> dlrm() {
  return {named("bottom1", {dense(13, 512)}),
          named("bottom2", {dense(512, 256)}),
          named("bottom3", {dense(256, 128)}),
          named("top1", {dense(479, 1024)}),
          named("top2", {dense(1024, 1024)}),
          named("top3", {dense(1024, 512)}),
          named("top4", {dense(512, 256), dense(256, 1)})};
}

struct Known {
  const char* name;
  std::vector<Block> (*blocks)();
  uint32_t samples;
  double samples_per_s;  ///< of one GPU, forward and backward
  const char* source;
};

// One V100, mixed precision, throughout.
const Known kModels[] = {
    {"resnet50", resnet50, 64, 1200,
     "NVIDIA DeepLearningExamples, ResNet50 v1.5 for PyTorch, DGX-1 16GB: 1200 images/s"},
    {"vgg16", vgg16, 16, 16 / 58.8e-3,
     "github.com/u39kun/deep-learning-benchmark, V100, 16 bit: 58.8 ms for 16 images"},
    {"bert", bert_large, 16, 125.44,
     "NVIDIA DeepLearningExamples, BERT for PyTorch 19.07, DGX-1 16G: 125.44 sequences/s of 128"},
    {"gnmt", gnmt, 128, 66050 / 50.0,
     "NVIDIA DeepLearningExamples, GNMT v2 for PyTorch 19.01, DGX-1: 66,050 tokens/s, 50 a pair"},
    {"dlrm", dlrm, 8192, 5.89e6 / 8,
     "NVIDIA DeepLearningExamples, DLRM for TensorFlow 2, DGX-1: 5.89 million items/s on 8 GPUs"},
};

}  // namespace

uint64_t Model::parameter_bytes() const {
  return std::accumulate(layers.begin(), layers.end(), uint64_t{0},
                         [](uint64_t sum, const Layer& l) { return sum + l.parameter_bytes; });
}

Nanos Model::compute_ns() const {
  return std::accumulate(layers.begin(), layers.end(), Nanos{0}, [](Nanos sum, const Layer& l) {
    return sum + l.forward_ns + l.backward_ns;
  });
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Known& known : kModels) names.emplace_back(known.name);
  return names;
}

Model make_model(const std::string& name, double scale) {
  const auto* const known = std::find_if(std::begin(kModels), std::end(kModels),
                                         [&](const Known& k) { return name == k.name; });
  if (known == std::end(kModels)) {
    std::string text = "there is no model '" + name + "'; there are";
    for (const Known& k : kModels) text += std::string(" ") + k.name;
    throw std::invalid_argument(text);
  }
  const std::vector<Block> blocks = known->blocks();
  double flops = 0;
  for (const Block& block : blocks) flops += block.flops;
  const double iteration_ns = known->samples / known->samples_per_s * 1e9 / scale;
  Model model{known->name, known->samples, known->source, {}};
  for (const Block& block : blocks) {
    const double share = iteration_ns * block.flops / flops;
    // Backwards there are twice as many operations: for the inputs, and for the weights.
    model.layers.push_back({block.name,
                            std::max<uint64_t>(4, 4 * std::llround(block.parameters / scale)),
                            std::llround(share / 3), std::llround(share * 2 / 3)});
  }
  return model;
}

Model make_plain(uint64_t bytes) {
  return {"plain", 1, "no computation", {{"all", bytes, 0, 0}}};
}

}  // namespace ina::sim
