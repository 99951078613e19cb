#include "examples/demo/mlp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace ina::demo {
namespace {

constexpr uint64_t kSeed = 7;
const std::vector<int> kWidths{6, 9, 7, 4};
const std::vector<int> kLabels{0, 3, 1, 2, 3};

Eigen::MatrixXd random_inputs(int images) {
  std::mt19937_64 random(kSeed);
  std::normal_distribution<double> normal;
  return Eigen::MatrixXd::NullaryExpr(kWidths.front(), images, [&] { return normal(random); });
}

void ignore(size_t) {}

TEST(Mlp, EveryGradientElementAgreesWithFiniteDifferences) {
  Mlp<double> network(kWidths, kSeed);
  const Eigen::MatrixXd inputs = random_inputs(static_cast<int>(kLabels.size()));
  constexpr double kScale = 0.2;
  network.train_batch(inputs, kLabels, kScale, ignore);
  constexpr double kStep = 1e-6;
  for (size_t layer = 0; layer < network.layers(); ++layer) {
    const std::span<double> parameters = network.parameters(layer);
    bool any = false;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const double kept = parameters[i];
      parameters[i] = kept + kStep;
      const double above = network.evaluate(inputs, kLabels).loss_sum;
      parameters[i] = kept - kStep;
      const double below = network.evaluate(inputs, kLabels).loss_sum;
      parameters[i] = kept;
      const double expected = kScale * (above - below) / (2 * kStep);
      ASSERT_NEAR(network.gradient(layer)[i], expected, 1e-7) << "layer " << layer << " at " << i;
      any = any || std::abs(expected) > 1e-3;
    }
    EXPECT_TRUE(any) << "layer " << layer << " has no gradient to compare";
  }
}

TEST(Mlp, GradientsCompleteFromTheLastLayerToTheFirst) {
  Mlp<double> network(kWidths, kSeed);
  const Eigen::MatrixXd inputs = random_inputs(static_cast<int>(kLabels.size()));
  network.train_batch(inputs, kLabels, 1, ignore);
  std::vector<std::vector<double>> complete;
  for (size_t layer = 0; layer < network.layers(); ++layer)
    complete.emplace_back(network.gradient(layer).begin(), network.gradient(layer).end());
  std::vector<size_t> order;
  network.train_batch(inputs, kLabels, 1, [&](size_t layer) {
    order.push_back(layer);
    // An announced gradient is complete: nothing is added to it later.
    const std::span<double> gradient = network.gradient(layer);
    EXPECT_TRUE(std::equal(gradient.begin(), gradient.end(), complete[layer].begin()));
    std::fill(network.gradient(layer).begin(), network.gradient(layer).end(), -1);
  });
  EXPECT_EQ(order, (std::vector<size_t>{2, 1, 0}));
  for (size_t layer = 0; layer < network.layers(); ++layer)
    for (double element : network.gradient(layer)) ASSERT_EQ(element, -1);
}

TEST(Mlp, AverageOfShardGradientsIsTheGradientOfTheBatch) {
  const Eigen::MatrixXd inputs = random_inputs(5);
  const double mean = 1.0 / 5;
  Mlp<double> whole(kWidths, kSeed), first(kWidths, kSeed), second(kWidths, kSeed);
  const auto batch = whole.train_batch(inputs, kLabels, mean, ignore);
  const auto labels = std::span(kLabels);
  const auto a = first.train_batch(inputs.leftCols(2), labels.first(2), 2 * mean, ignore);
  const auto b = second.train_batch(inputs.rightCols(3), labels.last(3), 2 * mean, ignore);
  EXPECT_NEAR(a.loss_sum + b.loss_sum, batch.loss_sum, 1e-12);
  EXPECT_EQ(a.correct + b.correct, batch.correct);
  for (size_t layer = 0; layer < whole.layers(); ++layer)
    for (size_t i = 0; i < whole.gradient(layer).size(); ++i)
      ASSERT_NEAR((first.gradient(layer)[i] + second.gradient(layer)[i]) / 2,
                  whole.gradient(layer)[i], 1e-12);
}

TEST(Mlp, AnEmptyShardHasAZeroGradient) {
  Mlp<double> network(kWidths, kSeed);
  network.train_batch(random_inputs(5), kLabels, 1, ignore);
  const auto batch = network.train_batch(Eigen::MatrixXd(kWidths.front(), 0), {}, 1, ignore);
  EXPECT_EQ(batch.loss_sum, 0);
  for (size_t layer = 0; layer < network.layers(); ++layer)
    for (double element : network.gradient(layer)) ASSERT_EQ(element, 0);
}

TEST(Mlp, LargeLogitsStayFinite) {
  Mlp<float> network({1, 2}, kSeed);
  network.parameters(0)[0] = 1e4f;
  network.parameters(0)[1] = -1e4f;
  const Eigen::MatrixXf input = Eigen::MatrixXf::Constant(1, 1, 1);
  const std::vector<int> unlikely{1};
  EXPECT_NEAR(network.evaluate(input, unlikely).loss_sum, 2e4, 1);
}

TEST(Mlp, MomentumAccumulatesAndOnlyWeightsDecay) {
  Mlp<double> network({1, 1}, kSeed);
  const std::span<double> parameters = network.parameters(0);
  parameters[0] = 2;
  parameters[1] = 1;
  network.gradient(0)[0] = 1;
  network.gradient(0)[1] = 1;
  network.step(0, 0.1, 0.5, 0.01);  // velocity 1.02 and 1
  EXPECT_NEAR(parameters[0], 2 - 0.102, 1e-12);
  EXPECT_NEAR(parameters[1], 1 - 0.1, 1e-12);
  network.step(0, 0.1, 0.5, 0.01);  // velocity 0.51 + 1 + 0.01898 and 1.5
  EXPECT_NEAR(parameters[0], 1.898 - 0.152898, 1e-12);
  EXPECT_NEAR(parameters[1], 0.9 - 0.15, 1e-12);
}

TEST(Mlp, HeInitialisationIsReproducible) {
  const Mlp<float> one({100, 200, 10}, kSeed), same({100, 200, 10}, kSeed),
      other({100, 200, 10}, 8);
  const auto a = one.parameters(0), b = same.parameters(0), c = other.parameters(0);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin()));
  EXPECT_FALSE(std::equal(a.begin(), a.end(), c.begin()));
  double squares = 0;
  for (size_t i = 0; i < 100 * 200; ++i) squares += static_cast<double>(a[i]) * a[i];
  EXPECT_NEAR(squares / (100 * 200), 2.0 / 100, 0.001);
  for (size_t i = 100 * 200; i < a.size(); ++i) EXPECT_EQ(a[i], 0);
}

}  // namespace
}  // namespace ina::demo
