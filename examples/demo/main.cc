// ina-demo: trains a digit recogniser with several worker processes whose gradients are averaged in
// the switch, and compares it with the same training in one process.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "common/command_line.h"
#include "common/output_file.h"
#include "examples/demo/launcher.h"

namespace ina::demo {
namespace {

constexpr double kHeldOut = 0.2;

struct Options {
  LaunchSetup launch;
  std::string data = INA_DEMO_SOURCE_ROOT "/examples/demo/data/optdigits.csv";
  std::string json;
};

/// The daemon that was built together with this program.
std::string default_switchd() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path().parent_path() / "switchd" / "ina-switchd").string();
}

/// Returns the exit status if the program is to end now.
std::optional<int> parse(int argc, char** argv, Options& options) {
  Hyper& hyper = options.launch.hyper;
  options.launch.switchd = default_switchd();
  options.launch.config = INA_DEMO_SOURCE_ROOT "/conf/demo.yaml";
  command_line::App app{
      "Data-parallel training of a digit recogniser through the aggregation switch.\n"
      "Ends with status 0 only if all workers hold bitwise equal weights and recognise\n"
      "97 % of the held-out images."};
  app.add_option("--workers", options.launch.workers, "worker processes")
      ->check(command_line::between(1, 64))
      ->capture_default_str();
  app.add_option("--epochs", hyper.epochs)
      ->check(command_line::between(1, 10000))
      ->capture_default_str();
  app.add_option("--batch", hyper.batch, "images of a mini-batch, all workers together")
      ->check(command_line::between(1, 1437))
      ->capture_default_str();
  app.add_option("--seed", hyper.seed, "of split, initial weights and order of the images")
      ->capture_default_str();
  app.add_option("--switchd", options.launch.switchd, "the daemon")->capture_default_str();
  app.add_option("--config", options.launch.config, "its configuration")->capture_default_str();
  app.add_option("--data", options.data, "images and labels")->capture_default_str();
  app.add_option("--json", options.json, "also write the results to this file");
  return command_line::parse(app, argc, argv);
}

/// Trains in this process, without a switch, to compare with the ranks.
std::vector<EpochStats> train_reference(const Options& options, const Split& data,
                                        const TerminationSignals& signals) {
  Mlp<float> network(options.launch.hyper.widths, options.launch.hyper.seed);
  NoExchange exchange;
  std::vector<EpochStats> epochs;
  train(network, data, options.launch.hyper, 0, 1, exchange, [&](const EpochStats& stats) {
    epochs.push_back(stats);
    throw_if_interrupted(signals);
  });
  return epochs;
}

EpochRow make_row(const std::vector<EpochStats>& ranks, const EpochStats& reference) {
  double loss_sum = 0, slowest_s = 0;
  uint64_t images = 0;
  for (const EpochStats& rank : ranks) {
    loss_sum += rank.loss_sum;
    images += rank.images;
    slowest_s = std::max(slowest_s, rank.train_s);
  }
  const auto count = static_cast<double>(images);
  return {.epoch = reference.epoch,
          .loss = loss_sum / count,
          .accuracy = ranks.front().heldout_accuracy,
          .reference_loss = reference.loss_sum / static_cast<double>(reference.images),
          .reference_accuracy = reference.heldout_accuracy,
          .images_per_s = count / slowest_s};
}

/// Bytes reduced in a second of all-reduce, of the rank for which that is least.
double allreduce_GBps(const LaunchResult& result) {
  double slowest = 0;
  for (size_t rank = 0; rank < result.weights.size(); ++rank) {
    double bytes = 0, seconds = 0;
    for (const auto& epoch : result.epochs) {
      bytes += static_cast<double>(epoch[rank].allreduce_bytes);
      seconds += epoch[rank].allreduce_s;
    }
    const double rate = bytes / seconds / 1e9;
    slowest = rank == 0 ? rate : std::min(slowest, rate);
  }
  return slowest;
}

int run(const Options& options) {
  auto output = OutputFile::open(options.json);
  if (!output) {
    fmt::print(stderr, "ina-demo: {}\n", output.error().text);
    return command_line::kExitUsage;
  }
  const auto start = std::chrono::steady_clock::now();
  const TerminationSignals signals;
  const Hyper& hyper = options.launch.hyper;
  const Split data = stratified_split(load_digits(options.data), kHeldOut, hyper.seed);
  Outcome outcome;
  outcome.workers = options.launch.workers;
  outcome.parameters = Mlp<float>(hyper.widths, hyper.seed).parameter_count();
  fmt::print("{} images to train with, {} held out; network {}, {} parameters; {} workers\n",
             data.train.size(), data.heldout.size(), fmt::join(hyper.widths, "-"),
             outcome.parameters, outcome.workers);

  const std::vector<EpochStats> reference = train_reference(options, data, signals);
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const LaunchResult result =
      launch(options.launch, data, signals, [&](const std::vector<EpochStats>& ranks) {
        outcome.epochs.push_back(make_row(ranks, reference[outcome.epochs.size()]));
        print_progress(outcome.epochs.back(), hyper.epochs, terminal);
      });

  outcome.weights_equal = bitwise_equal(result.weights);
  outcome.switch_figures = result.switch_figures;
  outcome.allreduce_GBps = allreduce_GBps(result);
  outcome.train_s = result.train_s;
  outcome.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  print_outcome(outcome);
  std::fflush(stdout);
  if (const auto written = output->write(to_json(outcome).dump(2) + "\n"); !written)
    throw std::runtime_error(written.error().text);
  if (!outcome.weights_equal) fmt::print(stderr, "ina-demo: the workers' weights differ\n");
  if (outcome.heldout_accuracy() < kRequiredAccuracy)
    fmt::print(stderr, "ina-demo: the held-out accuracy is below {:.0f} %\n",
               kRequiredAccuracy * 100);
  return outcome.passed() ? 0 : 1;
}

}  // namespace
}  // namespace ina::demo

int main(int argc, char** argv) {
  ina::demo::Options options;
  if (const auto status = ina::demo::parse(argc, argv, options)) return *status;
  try {
    return ina::demo::run(options);
  } catch (const ina::demo::Interrupted& interrupted) {
    fmt::print(stderr, "\nina-demo: {}\n", interrupted.what());
    return 128 + interrupted.signal();
  } catch (const std::exception& error) {
    std::fflush(stdout);
    fmt::print(stderr, "\nina-demo: {}\n", error.what());
    return 1;
  }
}
