// Reproducible operations on an engine. Pure; under the context's lock.
#pragma once

#include "client/src/engine.h"
#include "client/src/reproducible.h"

namespace ina::client {

class ReproducibleEngine final : private HeldOperations, private OperationListener {
 public:
  /// `engine` must outlive it.
  ReproducibleEngine(Engine& engine, uint32_t workers)
      : engine_(engine), reproducible_(*this, workers) {}
  ReproducibleEngine(const ReproducibleEngine&) = delete;
  ReproducibleEngine& operator=(const ReproducibleEngine&) = delete;

  /// As Reproducible::start() and release().
  Operation* start(const OperationSpec& spec, Nanos now) {
    now_ = now;
    return reproducible_.start(spec, now);
  }
  bool release(Operation* operation) { return reproducible_.release(operation); }
  const ReproducibleCounters& counters() const { return reproducible_.counters(); }

 private:
  Operation* submit_held(const OperationSpec& spec) override {
    OperationSpec held = spec;
    held.held = true;
    held.listener = this;
    return engine_.submit(held, now_);
  }
  void let_go(Operation* operation, uint64_t elements) override {
    engine_.release_hold(operation, operation->spec.send, elements);
  }
  void skip(Operation* operation) override {
    engine_.release_hold(operation, operation->spec.send, 0, true);
  }
  void forget(Operation* operation) override { engine_.release(operation); }
  void completed(Operation& operation) override { reproducible_.completed(operation); }

  Engine& engine_;
  Nanos now_ = 0;
  Reproducible reproducible_;
};

}  // namespace ina::client
