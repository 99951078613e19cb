#include "bench/themis/training.h"

#include <algorithm>

namespace ina::bench {
namespace {

using themis::Collective;
using themis::Request;

/// The forward pass counts once, the backward one twice (inputs and weights).
constexpr double kPasses = 3;
constexpr double kOperationsPerMultiplication = 2;

Request all_reduce(uint64_t bytes) {
  return {.collective = Collective::kAllReduce, .bytes = bytes};
}

Workload resnet50() {
  constexpr double kMultiplications = 4.1e9, kImages = 32;
  return {.name = "ResNet-50",
          .assumptions = "32 images, 4.1e9 multiplications each; one all-reduce of all gradients",
          .flops = kPasses * kOperationsPerMultiplication * kMultiplications * kImages,
          .exchanges = {{.requests = {all_reduce(51'005'824)}}},
          .published_speedup = 1.49,
          .published_first_speedup = 1.49};
}

Workload gnmt() {
  constexpr uint64_t kBytes = 267'788'288;
  constexpr double kParameters = kBytes / 2.0, kTokens = 128 * 25;
  return {.name = "GNMT",
          .assumptions =
              "128 pairs of 25 + 25 tokens, each parameter used once a token of its side; one "
              "all-reduce of all gradients",
          .flops = kPasses * kOperationsPerMultiplication * kParameters * kTokens,
          .exchanges = {{.requests = {all_reduce(kBytes)}}},
          .published_speedup = 1.30,
          .published_first_speedup = 1.41};
}

Workload dlrm() {
  constexpr uint64_t kBytes = 114'823'168, kEmbeddingBytes = 4'194'304;
  constexpr double kParameters = kBytes / 2.0, kSamples = 512;
  const Request all_to_all{.collective = Collective::kAllToAll, .bytes = kEmbeddingBytes};
  return {.name = "DLRM",
          .assumptions =
              "512 samples; all-to-all of embeddings forward, and backward beside the "
              "all-reduce of the perceptrons' gradients",
          .flops = kPasses * kOperationsPerMultiplication * kParameters * kSamples,
          .exchanges = {{.requests = {all_to_all}}, {.requests = {all_to_all, all_reduce(kBytes)}}},
          .published_speedup = 1.30,
          .published_first_speedup = 1.42};
}

Workload transformer_1t() {
  constexpr uint64_t kActivationBytes = 805'306'368;
  constexpr double kWidth = 24'576;
  constexpr double kParameters = 12 * kWidth * kWidth;  // of one layer
  constexpr double kTokens = kActivationBytes / 2.0 / kWidth;
  return {.name = "Transformer-1T",
          .assumptions =
              "one layer of width 24,576, 16,384 tokens, spread over 128 participants of the first "
              "dimensions; all-reduces of activations one after another among these, then the "
              "gradients' among the copies",
          .flops = kPasses * kOperationsPerMultiplication * kParameters * kTokens / kModelParallel,
          .exchanges = {{.requests = {all_reduce(kActivationBytes)},
                         .among = Exchange::Among::kGroup,
                         .times = 4},
                        {.requests = {{.collective = Collective::kAllGather, .bytes = 6'291'456}},
                         .among = Exchange::Among::kGroup},
                        {.requests = {all_reduce(240'316'416)},
                         .among = Exchange::Among::kAcrossGroups}},
          .published_speedup = 1.25,
          .published_first_speedup = 1.35};
}

}  // namespace

std::vector<Workload> workloads() {
  return {resnet50(), gnmt(), dlrm(), transformer_1t()};
}

Halves split(const themis::Topology& topology, uint32_t participants) {
  Halves halves{{.name = topology.name}, {.name = topology.name}};
  uint32_t left = participants;
  for (const themis::Dimension& dimension : topology.dimensions) {
    const uint32_t inside = std::min(left, dimension.size);
    left /= inside;
    for (auto [half, size] :
         {std::pair{&halves.group, inside}, std::pair{&halves.across, dimension.size / inside}}) {
      if (size == 1) continue;
      half->dimensions.push_back(dimension);
      half->dimensions.back().size = size;
    }
  }
  return halves;
}

double communication_s(const Workload& workload, const themis::Topology& topology,
                       const themis::PlanOptions& options) {
  const Halves halves = split(topology, kModelParallel);
  double sum_s = 0;
  for (const Exchange& exchange : workload.exchanges) {
    const themis::Topology& among = exchange.among == Exchange::Among::kAll     ? topology
                                    : exchange.among == Exchange::Among::kGroup ? halves.group
                                                                                : halves.across;
    const themis::Planned planned = themis::make_plan(among, exchange.requests, options).value();
    sum_s += exchange.times * static_cast<double>(planned.timeline.end_ps) * 1e-12;
  }
  return sum_s;
}

}  // namespace ina::bench
