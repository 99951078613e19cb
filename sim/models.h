// Training workloads: the parameters and the computing time of each block of a published model.
// Sizes are computed from the architectures. The time of an iteration follows from a stated
// throughput, and is split over the blocks by their floating-point operations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wire/types.h"

namespace ina::sim {

struct Layer {
  std::string name;
  uint64_t parameter_bytes = 0;  ///< float32
  Nanos forward_ns = 0;
  Nanos backward_ns = 0;
};

struct Model {
  std::string name;
  uint32_t samples = 0;       ///< of an iteration, on one worker
  std::string source;         ///< of the throughput
  std::vector<Layer> layers;  ///< in the order of the forward pass

  uint64_t parameter_bytes() const;
  Nanos compute_ns() const;
};

std::vector<std::string> model_names();
/// One of model_names(). `scale`: sizes and times are divided by it alike. Throws
/// std::invalid_argument that names the models that there are.
Model make_model(const std::string& name, double scale);
/// An all-reduce of `bytes` and nothing else: no computation, one layer.
Model make_plain(uint64_t bytes);

}  // namespace ina::sim
