// Starts the switch and the workers, follows the training, and ends every process in every case.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/demo/process.h"
#include "examples/demo/report.h"
#include "examples/demo/train.h"

namespace ina::demo {

/// A termination signal came; its what() names the signal.
class Interrupted : public std::runtime_error {
 public:
  explicit Interrupted(int signal);
  int signal() const { return signal_; }

 private:
  int signal_;
};

/// Throws Interrupted if a signal has come.
void throw_if_interrupted(const TerminationSignals& signals);

struct LaunchSetup {
  std::string switchd;  ///< program
  std::string config;   ///< of the switch
  int workers = 4;
  Hyper hyper;
};

struct LaunchResult {
  std::vector<std::vector<EpochStats>> epochs;  ///< [epoch - 1][rank]
  std::vector<std::vector<std::byte>> weights;  ///< [rank]
  SwitchFigures switch_figures;
  double train_s = 0;
};

/// Trains with `setup.workers` worker processes through a switch of its own. on_epoch gets the
/// statistics of all ranks as soon as the last has finished the epoch. Throws std::runtime_error
/// that says which process failed and why; when it returns or throws, all have ended.
LaunchResult launch(const LaunchSetup& setup, const Split& data, const TerminationSignals& signals,
                    const std::function<void(const std::vector<EpochStats>&)>& on_epoch);

}  // namespace ina::demo
