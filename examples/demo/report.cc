#include "examples/demo/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace ina::demo {

bool bitwise_equal(std::span<const std::vector<std::byte>> all) {
  return !all.empty() && std::all_of(all.begin(), all.end(),
                                     [&](const auto& bytes) { return bytes == all.front(); });
}

SwitchFigures switch_figures(const nlohmann::json& status) {
  SwitchFigures figures;
  for (const auto& port : status.at("ports")) {
    figures.rx_packets += port.at("rx_packets").get<uint64_t>();
    figures.rx_bytes += port.at("rx_bytes").get<uint64_t>();
    figures.tx_packets += port.at("tx_packets").get<uint64_t>();
    figures.tx_bytes += port.at("tx_bytes").get<uint64_t>();
    for (const auto& count : port.at("drops")) figures.drops += count.get<uint64_t>();
  }
  figures.slots = status.at("aggregator").at("slots").get<uint64_t>();
  figures.peak_slots_used = status.at("aggregator").at("slots_used_peak").get<uint64_t>();
  return figures;
}

void print_progress(const EpochRow& row, int epochs, bool terminal) {
  const std::string line = fmt::format(
      "epoch {:>3}/{}  loss {:.4f}  accuracy {:6.2f} %  reference loss {:.4f}  {:>7.0f} images/s",
      row.epoch, epochs, row.loss, row.accuracy * 100, row.reference_loss, row.images_per_s);
  if (!terminal) {
    fmt::print("{}\n", line);
  } else {
    constexpr int kBarColumns = 20;
    const int filled = kBarColumns * row.epoch / epochs;
    fmt::print("\r\x1b[K[{:#<{}}{:.<{}}] {}{}", "", filled, "", kBarColumns - filled, line,
               row.epoch == epochs ? "\n" : "");
  }
  std::fflush(stdout);
}

void print_outcome(const Outcome& outcome) {
  fmt::print("\n{:>5}  {:^21}  {:^21}\n", "", fmt::format("{} workers", outcome.workers),
             "1 process (reference)");
  fmt::print("{:>5}  {:>9}  {:>10}  {:>9}  {:>10}\n", "epoch", "loss", "accuracy", "loss",
             "accuracy");
  for (const EpochRow& row : outcome.epochs)
    fmt::print("{:>5}  {:>9.4f}  {:>8.2f} %  {:>9.4f}  {:>8.2f} %\n", row.epoch, row.loss,
               row.accuracy * 100, row.reference_loss, row.reference_accuracy * 100);
  const SwitchFigures& figures = outcome.switch_figures;
  constexpr double kMega = 1e6;
  const auto line = [](const char* name, const std::string& value) {
    fmt::print("{:<24}{}\n", name, value);
  };
  fmt::print("\n");
  line("held-out accuracy",
       fmt::format("{:.2f} % (reference {:.2f} %, required {:.0f} %)",
                   outcome.heldout_accuracy() * 100, outcome.reference_heldout_accuracy() * 100,
                   kRequiredAccuracy * 100));
  line("weights of all workers",
       fmt::format("{} ({} parameters each)", outcome.weights_equal ? "bitwise equal" : "DIFFERENT",
                   outcome.parameters));
  line("switch received", fmt::format("{} packets, {:.1f} MB", figures.rx_packets,
                                      static_cast<double>(figures.rx_bytes) / kMega));
  line("switch sent", fmt::format("{} packets, {:.1f} MB", figures.tx_packets,
                                  static_cast<double>(figures.tx_bytes) / kMega));
  line("switch dropped", fmt::format("{} packets", figures.drops));
  line("aggregators in use",
       fmt::format("at most {} of {}", figures.peak_slots_used, figures.slots));
  line("all-reduce", fmt::format("{:.3f} GB/s of gradient, slowest worker, computation that "
                                 "overlaps included",
                                 outcome.allreduce_GBps));
  line("training", fmt::format("{:.1f} s", outcome.train_s));
  line("wall time", fmt::format("{:.1f} s", outcome.wall_s));
}

nlohmann::json to_json(const Outcome& outcome) {
  nlohmann::json epochs = nlohmann::json::array();
  for (const EpochRow& row : outcome.epochs)
    epochs.push_back({{"epoch", row.epoch},
                      {"loss", row.loss},
                      {"accuracy", row.accuracy},
                      {"reference_loss", row.reference_loss},
                      {"reference_accuracy", row.reference_accuracy},
                      {"images_per_s", row.images_per_s}});
  const SwitchFigures& figures = outcome.switch_figures;
  return {{"heldout_accuracy", outcome.heldout_accuracy()},
          {"reference_heldout_accuracy", outcome.reference_heldout_accuracy()},
          {"weights_equal", outcome.weights_equal},
          {"epochs", epochs},
          {"switch",
           {{"rx_packets", figures.rx_packets},
            {"rx_bytes", figures.rx_bytes},
            {"tx_packets", figures.tx_packets},
            {"tx_bytes", figures.tx_bytes},
            {"drops", figures.drops},
            {"slots", figures.slots},
            {"peak_slots_used", figures.peak_slots_used}}},
          {"allreduce_GBps", outcome.allreduce_GBps},
          {"train_s", outcome.train_s},
          {"wall_s", outcome.wall_s},
          {"workers", outcome.workers},
          {"parameters", outcome.parameters}};
}

}  // namespace ina::demo
