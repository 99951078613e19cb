#include "examples/demo/digits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <stdexcept>

#include "examples/demo/train.h"

namespace ina::demo {
namespace {

Digits all_digits() {
  return load_digits(INA_DEMO_SOURCE_ROOT "/examples/demo/data/optdigits.csv");
}

std::vector<int> images_per_digit(const Digits& digits) {
  std::vector<int> count(kClasses);
  for (int label : digits.labels) ++count[static_cast<size_t>(label)];
  return count;
}

TEST(Digits, FileHoldsTheTestPartOfTheDataSet) {
  const Digits digits = all_digits();
  EXPECT_EQ(digits.size(), 1797u);
  EXPECT_EQ(digits.images.rows(), kPixels);
  EXPECT_EQ(images_per_digit(digits),
            (std::vector<int>{178, 182, 177, 183, 181, 182, 181, 179, 174, 180}));
  EXPECT_EQ(digits.images.minCoeff(), 0);
  EXPECT_EQ(digits.images.maxCoeff(), 1);
}

TEST(Digits, SplitIsStratifiedDisjointAndReproducible) {
  const Digits digits = all_digits();
  const Split split = stratified_split(digits, 0.2, 1);
  EXPECT_EQ(split.train.size() + split.heldout.size(), digits.size());
  const std::vector<int> all = images_per_digit(digits), held = images_per_digit(split.heldout);
  for (size_t digit = 0; digit < all.size(); ++digit) EXPECT_NEAR(held[digit], all[digit] * 0.2, 1);
  // Every image is on exactly one side.
  const auto keys = [](const Digits& part, std::multiset<std::vector<float>>& out) {
    for (Eigen::Index i = 0; i < part.images.cols(); ++i)
      out.emplace(part.images.col(i).data(), part.images.col(i).data() + kPixels);
  };
  std::multiset<std::vector<float>> before, after;
  keys(digits, before);
  keys(split.train, after);
  keys(split.heldout, after);
  EXPECT_EQ(before, after);
  EXPECT_EQ(split.heldout.images, stratified_split(digits, 0.2, 1).heldout.images);
  EXPECT_NE(split.heldout.labels.size(), 0u);
  EXPECT_NE(split.heldout.images, stratified_split(digits, 0.2, 2).heldout.images);
}

TEST(Digits, SelectKeepsImageAndLabelTogether) {
  const Digits digits = all_digits();
  const std::vector<uint32_t> indices{5, 0, 1796};
  const Digits chosen = select(digits, indices);
  for (size_t i = 0; i < indices.size(); ++i) {
    EXPECT_EQ(chosen.images.col(static_cast<Eigen::Index>(i)), digits.images.col(indices[i]));
    EXPECT_EQ(chosen.labels[i], digits.labels[indices[i]]);
  }
}

TEST(Digits, EpochOrderIsAPermutationThatChangesWithTheEpoch) {
  const std::vector<uint32_t> first = epoch_order(100, 1, 1);
  std::vector<uint32_t> sorted = first, expected(100);
  std::sort(sorted.begin(), sorted.end());
  std::iota(expected.begin(), expected.end(), 0u);
  EXPECT_EQ(sorted, expected);
  EXPECT_EQ(first, epoch_order(100, 1, 1));
  EXPECT_NE(first, epoch_order(100, 1, 2));
  EXPECT_NE(first, epoch_order(100, 2, 1));
}

TEST(Digits, ShardsPartitionTheBatch) {
  const std::vector<uint32_t> order = epoch_order(64, 1, 1);
  for (size_t size : {0u, 1u, 3u, 30u, 64u})
    for (int world : {1, 3, 4, 7}) {
      const auto batch = std::span(order).first(size);
      std::vector<uint32_t> joined;
      for (int rank = 0; rank < world; ++rank) {
        const auto part = shard(batch, rank, world);
        EXPECT_LE(part.size(), size / static_cast<size_t>(world) + 1);
        EXPECT_GE(part.size(), size / static_cast<size_t>(world));
        joined.insert(joined.end(), part.begin(), part.end());
      }
      EXPECT_TRUE(std::equal(joined.begin(), joined.end(), batch.begin(), batch.end()));
    }
}

TEST(Digits, BadFilesAreNamedWithTheirLine) {
  std::string folder = (std::filesystem::temp_directory_path() / "digits-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/bad.csv";
  std::string good;
  for (int i = 0; i < kPixels; ++i) good += "16,";
  for (const std::string& bad : {good + "10", good + "1,2", good + "x", std::string("1,2,3"),
                                 "17," + good.substr(3) + "1", std::string()}) {
    std::ofstream(path) << good << "9\n" << bad << "\n";
    try {
      load_digits(path);
      ADD_FAILURE() << "accepted: " << bad;
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("bad.csv:2:"), std::string::npos) << error.what();
    }
  }
  std::filesystem::remove_all(folder);
  EXPECT_THROW(load_digits(path), std::runtime_error);
}

TEST(Train, ReferenceRecognisesHeldOutDigits) {
  const Hyper hyper;
  const Split data = stratified_split(all_digits(), 0.2, hyper.seed);
  Mlp<float> network(hyper.widths, hyper.seed);
  NoExchange exchange;
  std::vector<EpochStats> epochs;
  train(network, data, hyper, 0, 1, exchange, [&](const EpochStats& e) { epochs.push_back(e); });
  ASSERT_EQ(epochs.size(), static_cast<size_t>(hyper.epochs));
  EXPECT_GE(epochs.back().heldout_accuracy, 0.97);
  EXPECT_LT(epochs.back().loss_sum, 0.1 * epochs.front().loss_sum);
  for (const EpochStats& epoch : epochs) EXPECT_EQ(epoch.images, data.train.size());
}

}  // namespace
}  // namespace ina::demo
