// The findings of a run of the demo, as lines, tables and JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/json/json.h"

namespace ina::demo {

inline constexpr double kRequiredAccuracy = 0.97;

/// One epoch of all workers beside the reference. Accuracies 0..1 on the held-out images, losses in
/// nats an image over the training images.
struct EpochRow {
  int epoch = 0;
  double loss = 0;
  double accuracy = 0;
  double reference_loss = 0;
  double reference_accuracy = 0;
  double images_per_s = 0;
};

/// Summed over the switch's ports since it started.
struct SwitchFigures {
  uint64_t rx_packets = 0, rx_bytes = 0;
  uint64_t tx_packets = 0, tx_bytes = 0;
  uint64_t drops = 0;
  uint64_t slots = 0, peak_slots_used = 0;
};

struct Outcome {
  std::vector<EpochRow> epochs;
  bool weights_equal = false;
  SwitchFigures switch_figures;
  double allreduce_GBps = 0;  ///< slowest rank
  double train_s = 0;         ///< first worker started to last worker trained
  double wall_s = 0;          ///< the whole run
  int workers = 0;
  size_t parameters = 0;

  double heldout_accuracy() const { return epochs.back().accuracy; }
  double reference_heldout_accuracy() const { return epochs.back().reference_accuracy; }
  bool passed() const { return weights_equal && heldout_accuracy() >= kRequiredAccuracy; }
};

/// True if there is at least one and all are the same, byte for byte.
bool bitwise_equal(std::span<const std::vector<std::byte>> all);

/// From the status that the switch's control socket answers. Throws nlohmann::json::exception if a
/// figure is missing.
SwitchFigures switch_figures(const nlohmann::json& status);

/// Prints one epoch while training runs; on a terminal a bar that overwrites itself.
void print_progress(const EpochRow& row, int epochs, bool terminal);
/// Prints the table at the end.
void print_outcome(const Outcome& outcome);
nlohmann::json to_json(const Outcome& outcome);

}  // namespace ina::demo
