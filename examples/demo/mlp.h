// A multi-layer perceptron with hand-written back-propagation: ReLU between layers, softmax cross
// entropy at the end.
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ina::demo {

/// Scalar: float to train with, double to check the gradient with.
template <class Scalar>
class Mlp {
 public:
  using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;

  struct Batch {
    double loss_sum = 0;  ///< cross entropy in nats, summed over the images
    size_t correct = 0;   ///< images whose most likely class is their label
  };

  /// widths: inputs, hidden..., classes. Weights are drawn from N(0, 2 / inputs of the layer) (He
  /// et al. 2015), biases are 0: the same seed, the same network.
  Mlp(const std::vector<int>& widths, uint64_t seed);

  size_t layers() const { return layers_.size(); }
  /// One layer's weights (column-major, outputs x inputs) and then its biases.
  std::span<Scalar> parameters(size_t layer) { return layers_[layer].parameters; }
  std::span<const Scalar> parameters(size_t layer) const { return layers_[layer].parameters; }
  /// The gradient of the same, as the last train_batch() left it.
  std::span<Scalar> gradient(size_t layer) { return layers_[layer].gradient; }
  size_t parameter_count() const;

  /// Called with the layer whose gradient is complete; the layers below are yet to come.
  using OnGradient = std::function<void(size_t layer)>;

  /// Forward and backward: gradient = `scale` * the gradient of the summed loss. Layers complete
  /// from the last to the first, so that their all-reduce can overlap with the rest.
  Batch train_batch(const Matrix& inputs, std::span<const int> labels, Scalar scale,
                    const OnGradient& on_gradient);

  /// Loss and hits without touching the gradient.
  Batch evaluate(const Matrix& inputs, std::span<const int> labels);

  /// velocity = momentum * velocity + gradient + decay * weight (biases do not decay);
  /// parameter -= rate * velocity.
  void step(size_t layer, Scalar rate, Scalar momentum, Scalar decay);

 private:
  struct Layer {
    int inputs = 0;
    int outputs = 0;
    std::vector<Scalar> parameters, gradient, velocity;
    Matrix activations;  ///< of the layer's outputs, after ReLU except in the last layer
  };

  void forward(const Matrix& inputs);
  /// Turns the last layer's outputs (logits) into probabilities and scores them.
  Batch softmax(std::span<const int> labels);

  std::vector<Layer> layers_;
};

extern template class Mlp<float>;
extern template class Mlp<double>;

}  // namespace ina::demo
