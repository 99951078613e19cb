#include "examples/demo/mlp.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace ina::demo {
namespace {

template <class Scalar>
using MatrixMap = Eigen::Map<Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>>;
template <class Scalar>
using VectorMap = Eigen::Map<Eigen::Matrix<Scalar, Eigen::Dynamic, 1>>;

template <class Scalar>
MatrixMap<Scalar> weights(std::vector<Scalar>& flat, int outputs, int inputs) {
  return {flat.data(), outputs, inputs};
}

template <class Scalar>
VectorMap<Scalar> biases(std::vector<Scalar>& flat, int outputs, int inputs) {
  return {flat.data() + static_cast<ptrdiff_t>(outputs) * inputs, outputs};
}

}  // namespace

template <class Scalar>
Mlp<Scalar>::Mlp(const std::vector<int>& widths, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    Layer& layer = layers_.emplace_back();
    layer.inputs = widths[i];
    layer.outputs = widths[i + 1];
    const size_t weight_count = static_cast<size_t>(layer.inputs) * layer.outputs;
    layer.parameters.resize(weight_count + static_cast<size_t>(layer.outputs));
    layer.gradient.resize(layer.parameters.size());
    layer.velocity.resize(layer.parameters.size());
    std::normal_distribution<double> he(0, std::sqrt(2.0 / layer.inputs));
    std::generate_n(layer.parameters.begin(), weight_count,
                    [&] { return static_cast<Scalar>(he(random)); });
  }
}

template <class Scalar>
size_t Mlp<Scalar>::parameter_count() const {
  size_t count = 0;
  for (const Layer& layer : layers_) count += layer.parameters.size();
  return count;
}

template <class Scalar>
void Mlp<Scalar>::forward(const Matrix& inputs) {
  const Matrix* below = &inputs;
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    layer.activations.noalias() = weights(layer.parameters, layer.outputs, layer.inputs) * *below;
    layer.activations.colwise() += biases(layer.parameters, layer.outputs, layer.inputs);
    if (i + 1 < layers_.size()) layer.activations = layer.activations.cwiseMax(Scalar{0});
    below = &layer.activations;
  }
}

template <class Scalar>
typename Mlp<Scalar>::Batch Mlp<Scalar>::softmax(std::span<const int> labels) {
  Batch batch;
  Matrix& logits = layers_.back().activations;
  for (Eigen::Index i = 0; i < logits.cols(); ++i) {
    auto column = logits.col(i);
    const int label = labels[static_cast<size_t>(i)];
    Eigen::Index best = 0;
    // Less the largest logit: exp() cannot overflow then, and the result is the same.
    const Scalar largest = column.maxCoeff(&best);
    const Scalar log_of_label = column(label) - largest;
    column = (column.array() - largest).exp();
    const Scalar sum = column.sum();
    column /= sum;
    batch.loss_sum += static_cast<double>(std::log(sum) - log_of_label);
    batch.correct += best == label;
  }
  return batch;
}

template <class Scalar>
typename Mlp<Scalar>::Batch Mlp<Scalar>::train_batch(const Matrix& inputs,
                                                     std::span<const int> labels, Scalar scale,
                                                     const OnGradient& on_gradient) {
  forward(inputs);
  const Batch batch = softmax(labels);
  // d loss / d logits = probabilities - one-hot label.
  Matrix delta = layers_.back().activations;
  for (size_t i = 0; i < labels.size(); ++i)
    delta(labels[i], static_cast<Eigen::Index>(i)) -= Scalar{1};
  delta *= scale;

  for (size_t i = layers_.size(); i-- > 0;) {
    Layer& layer = layers_[i];
    const Matrix& below = i == 0 ? inputs : layers_[i - 1].activations;
    weights(layer.gradient, layer.outputs, layer.inputs).noalias() = delta * below.transpose();
    biases(layer.gradient, layer.outputs, layer.inputs) = delta.rowwise().sum();
    on_gradient(i);
    if (i == 0) break;
    // ReLU passes the gradient where its output is positive.
    delta = (weights(layer.parameters, layer.outputs, layer.inputs).transpose() * delta).eval();
    delta = (below.array() > Scalar{0}).select(delta, Scalar{0});
  }
  return batch;
}

template <class Scalar>
typename Mlp<Scalar>::Batch Mlp<Scalar>::evaluate(const Matrix& inputs,
                                                  std::span<const int> labels) {
  forward(inputs);
  return softmax(labels);
}

template <class Scalar>
void Mlp<Scalar>::step(size_t i, Scalar rate, Scalar momentum, Scalar decay) {
  Layer& layer = layers_[i];
  const Eigen::Index count = static_cast<Eigen::Index>(layer.parameters.size());
  VectorMap<Scalar> velocity(layer.velocity.data(), count);
  velocity = momentum * velocity + VectorMap<Scalar>(layer.gradient.data(), count);
  weights(layer.velocity, layer.outputs, layer.inputs) +=
      decay * weights(layer.parameters, layer.outputs, layer.inputs);
  VectorMap<Scalar>(layer.parameters.data(), count) -= rate * velocity;
}

// One of them in each program: Eigen takes the compiler long.
template class Mlp<INA_DEMO_SCALAR>;

}  // namespace ina::demo
