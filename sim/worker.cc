#include "sim/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/known_sum.h"

namespace ina::sim {

Worker::Worker(Fabric& fabric, const WorkerSpec& spec, uint32_t job, WorkerListener& listener)
    : fabric_(fabric),
      spec_(spec),
      job_(job),
      listener_(listener),
      host_(fabric.add_host(*this, spec.rack, spec.link_slower, spec.link_farther)),
      nic_(fabric, host_, spec.engine, spec.job, spec.job_key, spec.switch_host),
      producer_(spec.straggler,
                Pace(spec.straggler, value(spec.engine.rank), spec.engine.workers, spec.seed),
                static_cast<Nanos>(fabric.wire_bytes(spec.engine.slot_bytes) * 8e9 /
                                   static_cast<double>(fabric.rate_bps(host_)))),
      random_(spec.seed * 0x9e3779b97f4a7c15 + value(spec.engine.rank)),
      layers_(spec.model->layers.size()) {
  if (!producer_.has_slow_uplink()) return;
  fabric.set_uplink_pace(
      host_, [this](Nanos begins, Nanos wire_ns) { return producer_.carry(begins, wire_ns); });
}

void Worker::start() {
  started_ = true;
  compute();
}

void Worker::on_timer(uint64_t argument) {
  if (argument != kComputed) {
    if (nic_.on_timer(argument)) pump();
    return;
  }
  computing_ = false;
  computed();
}

// ---- training

/// Computes the layer at hand, if its sum of the last iteration is here.
void Worker::compute() {
  if (computing_ || !started_ || done_) return;
  const Layer& layer = spec_.model->layers[layer_];
  if (phase_ == Phase::kForward && layers_[layer_].operation) return;
  if (phase_ == Phase::kDrain) {
    if (std::ranges::any_of(layers_, [](const LayerState& l) { return l.operation != nullptr; }))
      return;
    done_ = true;
    return listener_.finished(job_);
  }
  const Nanos work = phase_ == Phase::kForward ? layer.forward_ns : layer.backward_ns;
  double noise = 1;
  if (spec_.jitter > 0) {
    // Box-Muller, spelt out: the library's distribution may differ between versions.
    const double u = static_cast<double>((random_() >> 11) + 1) * 0x1p-53;
    const double v = static_cast<double>(random_() >> 11) * 0x1p-53;
    noise = std::max(0.2, 1 + spec_.jitter * std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v));
  }
  computing_ = true;
  const auto work_ns = static_cast<Nanos>(static_cast<double>(work) * noise);
  fabric_.schedule(producer_.compute(fabric_.now(), work_ns), host_, kComputed);
}

void Worker::computed() {
  const auto last = static_cast<uint32_t>(layers_.size() - 1);
  if (phase_ == Phase::kForward) {
    if (layer_ == last)
      phase_ = Phase::kBackward;
    else
      ++layer_;
    return compute();
  }
  submit(layer_);
  if (layer_ != 0) {
    --layer_;
  } else {
    phase_ = ++iteration_ == spec_.iterations ? Phase::kDrain : Phase::kForward;
  }
  compute();
  pump();
}

void Worker::submit(uint32_t layer) {
  LayerState& state = layers_[layer];
  // As ina_set_hints would be told: 1 is the front layer.
  const auto layers = static_cast<uint32_t>(layers_.size());
  nic_.engine().set_hints({layer + 1, layers, spec_.iterations - iteration_}, fabric_.now());
  const uint64_t elements =
      std::max<uint64_t>(1, (spec_.model->layers[layer].parameter_bytes + 3) / 4);
  // Thinned out: a whole fragment's values stand for wire_factor as many.
  const uint64_t factor = fabric_.wire_factor();
  const auto thinned = static_cast<size_t>((elements + factor - 1) / factor);
  state.number = operations_++;
  state.values.resize(thinned);
  const uint32_t rank = value(spec_.engine.rank);
  for (size_t i = 0; i < thinned; ++i) state.values[i] = contribution(state.number, i, rank);
  auto* const bytes = reinterpret_cast<std::byte*>(state.values.data());
  client::OperationSpec operation;
  operation.send = bytes;
  operation.recv = bytes;
  operation.elements = thinned;
  operation.dtype = DType::kInt32;
  operation.listener = this;
  if (nic_.engine().running() == 0) producer_.begin(fabric_.now());
  state.operation = nic_.engine().submit(operation, fabric_.now());
}

void Worker::completed(client::Operation& operation) {
  completed_.push_back(&operation);
}

void Worker::take_results() {
  if (completed_.empty()) return;
  for (client::Operation* operation : completed_) {
    const auto layer = std::ranges::find(layers_, operation, &LayerState::operation);
    check(*layer);
    layer->operation = nullptr;
    nic_.engine().release(operation);
  }
  completed_.clear();
  compute();
}

void Worker::check(const LayerState& layer) {
  const uint32_t workers = spec_.engine.workers;
  for (size_t i = 0; i < layer.values.size(); ++i) {
    const int32_t expected = known_sum(layer.number, i, workers);
    if (layer.values[i] == expected) continue;
    return listener_.violated(
        fmt::format("job {} rank {} operation {} element {}: {} instead of {}", job_,
                    value(spec_.engine.rank), layer.number, i, layer.values[i], expected));
  }
  ++sums_checked_;
}

// ---- the network

void Worker::arrived() {
  nic_.receive();
  take_results();
  pump();
}

/// How many of `packets` may leave now: a slow worker makes its contributions slowly.
size_t Worker::permitted(std::span<const client::TxPacket> packets) {
  if (!producer_.is_slow()) return packets.size();
  const Nanos now = fabric_.now();
  for (size_t i = 0; i < packets.size(); ++i) {
    if (packets[i].message.type != wire::Type::kGrad) continue;
    if (const Nanos at = producer_.take(now); at > now) {
      nic_.wake_at(at);
      return i;
    }
  }
  return packets.size();
}

}  // namespace ina::sim
