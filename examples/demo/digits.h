// The data: images of handwritten digits, their split, and each worker's share of a mini-batch.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ina::demo {

inline constexpr int kPixels = 64;
inline constexpr int kClasses = 10;

struct Digits {
  Eigen::MatrixXf images;   ///< kPixels x n, one image a column, pixels in 0..1
  std::vector<int> labels;  ///< n digits, 0..9
  size_t size() const { return labels.size(); }
};

/// Reads 64 pixels (0..16) and a label a line. Throws std::runtime_error naming file and line.
Digits load_digits(const std::string& path);

/// The images with these indices, in this order.
Digits select(const Digits& digits, std::span<const uint32_t> indices);

struct Split {
  Digits train;
  Digits heldout;
};

/// Holds out `fraction` of every digit's images, drawn with `seed`: the same seed, the same split.
Split stratified_split(const Digits& digits, double fraction, uint64_t seed);

/// The order in which an epoch visits `count` images; depends on nothing else than its arguments,
/// so all workers agree on it without talking.
std::vector<uint32_t> epoch_order(size_t count, uint64_t seed, int epoch);

/// The part of a global mini-batch that worker `rank` of `world` computes. The shards of all ranks
/// are disjoint, cover the batch and differ by at most one image.
std::span<const uint32_t> shard(std::span<const uint32_t> batch, int rank, int world);

}  // namespace ina::demo
