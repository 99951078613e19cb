#include "examples/demo/digits.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>

#include <fmt/format.h>

namespace ina::demo {
namespace {

constexpr int kDarkest = 16;
using Row = std::array<int, kPixels + 1>;

/// Returns false unless the line is exactly kPixels + 1 numbers with commas between.
bool parse_row(const std::string& line, Row& row) {
  const char* at = line.data();
  const char* const end = at + line.size();
  for (size_t i = 0; i < row.size(); ++i) {
    if (i > 0 && (at == end || *at++ != ',')) return false;
    const auto [next, error] = std::from_chars(at, end, row[i]);
    if (error != std::errc{}) return false;
    const int largest = i < kPixels ? kDarkest : kClasses - 1;
    if (row[i] < 0 || row[i] > largest) return false;
    at = next;
  }
  return at == end;
}

}  // namespace

Digits load_digits(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(fmt::format("cannot open {}", path));
  std::vector<Row> rows;
  std::string line;
  while (std::getline(file, line)) {
    if (!parse_row(line, rows.emplace_back()))
      throw std::runtime_error(fmt::format("{}:{}: expected {} pixels (0..{}) and a digit", path,
                                           rows.size(), kPixels, kDarkest));
  }
  if (rows.empty()) throw std::runtime_error(fmt::format("{} holds no images", path));

  Digits digits;
  digits.images.resize(kPixels, static_cast<Eigen::Index>(rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int p = 0; p < kPixels; ++p)
      digits.images(p, static_cast<Eigen::Index>(i)) = static_cast<float>(rows[i][p]) / kDarkest;
    digits.labels.push_back(rows[i][kPixels]);
  }
  return digits;
}

Digits select(const Digits& digits, std::span<const uint32_t> indices) {
  Digits out;
  out.images.resize(digits.images.rows(), static_cast<Eigen::Index>(indices.size()));
  out.labels.reserve(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    out.images.col(static_cast<Eigen::Index>(i)) = digits.images.col(indices[i]);
    out.labels.push_back(digits.labels[indices[i]]);
  }
  return out;
}

Split stratified_split(const Digits& digits, double fraction, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint32_t> train, heldout;
  for (int digit = 0; digit < kClasses; ++digit) {
    std::vector<uint32_t> members;
    for (size_t i = 0; i < digits.size(); ++i)
      if (digits.labels[i] == digit) members.push_back(static_cast<uint32_t>(i));
    std::shuffle(members.begin(), members.end(), random);
    const auto held =
        static_cast<ptrdiff_t>(std::lround(static_cast<double>(members.size()) * fraction));
    heldout.insert(heldout.end(), members.begin(), members.begin() + held);
    train.insert(train.end(), members.begin() + held, members.end());
  }
  return {select(digits, train), select(digits, heldout)};
}

std::vector<uint32_t> epoch_order(size_t count, uint64_t seed, int epoch) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::seed_seq mixed{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                      static_cast<uint32_t>(epoch)};
  std::mt19937_64 random(mixed);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

std::span<const uint32_t> shard(std::span<const uint32_t> batch, int rank, int world) {
  const size_t begin = batch.size() * static_cast<size_t>(rank) / static_cast<size_t>(world);
  const size_t end = batch.size() * static_cast<size_t>(rank + 1) / static_cast<size_t>(world);
  return batch.subspan(begin, end - begin);
}

}  // namespace ina::demo
