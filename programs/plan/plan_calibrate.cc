#include "programs/plan/plan_calibrate.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "common/command_line.h"
#include "common/output_file.h"
#include "ina/ina.hpp"

namespace ina::cli {
namespace {

struct Options {
  std::vector<uint32_t> sizes;
  std::vector<std::string> rails;
  std::string output = "-";
};

/// A topology of which only the sizes matter, until it is measured.
std::string topology_of(const std::vector<uint32_t>& sizes) {
  std::string yaml = "dimensions:\n";
  for (const uint32_t size : sizes)
    yaml += fmt::format(
        "  - {{kind: ina, size: {}, gbps: 10, step_latency_ns: 20000, point_to_point: direct}}\n",
        size);
  return yaml;
}

/// Contexts of this job's ranks over other switches.
std::vector<Context> rails_of(const Options& options) {
  std::vector<Context> rails;
  for (const std::string& url : options.rails) {
    ina_config config;
    ina_config_init(&config);
    config.url = url.c_str();
    rails.emplace_back(config);
  }
  return rails;
}

std::string measure(Context& job, const Options& options) {
  std::vector<Context> rails = rails_of(options);
  std::vector<Context*> raw;
  for (Context& rail : rails) raw.push_back(&rail);
  auto hierarchy = Hierarchy::from_text(job, topology_of(options.sizes), raw);
  std::string yaml = hierarchy.calibrate();
  hierarchy.free();
  for (Context& rail : rails) rail.finalize();
  const ina_costs costs = job.measure_costs();
  return fmt::format(
      "# Measured by ina-plan calibrate, {} ranks. For redistributions:\n"
      "# ina-plan redistribute --alpha-us {:.4g} --message-us {:.4g} --gbps {:.4g} "
      "--copy-gbps {:.4g}\n{}",
      job.world_size(), costs.alpha_us, costs.message_us, costs.gbps, costs.copy_gbps, yaml);
}

int run(const Options& options) {
  if (!options.rails.empty() && options.rails.size() != options.sizes.size()) {
    fmt::print(stderr, "ina-plan: --rails has {} URLs for {} dimensions\n", options.rails.size(),
               options.sizes.size());
    return command_line::kExitUsage;
  }
  try {
    Context job;
    // The others open nothing: all may have been given the same path.
    auto output = OutputFile::open(job.rank() == 0 ? options.output : "");
    std::string yaml = measure(job, options);
    job.finalize();
    if (!output) {
      fmt::print(stderr, "ina-plan: {}\n", output.error().text);
      return command_line::kExitUsage;
    }
    if (const auto written = output->write(yaml); !written) {
      fmt::print(stderr, "ina-plan: {}\n", written.error().text);
      return 1;
    }
    return 0;
  } catch (const Exception& error) {
    fmt::print(stderr, "ina-plan: {}\n", error.what());
    return 1;
  }
}

}  // namespace

void add_calibrate(command_line::App& app, std::function<int()>& chosen) {
  command_line::App* const command = app.add_subcommand(
      "calibrate", "Measure the dimensions of a network, as one of the ranks of a job");
  const auto options = std::make_shared<Options>();
  command
      ->add_option("--sizes", options->sizes,
                   "Of the dimensions, the first one's ranks next to "
                   "each other: 4,4")
      ->required()
      ->delimiter(',')
      ->check(command_line::between(2u, 64u));
  command
      ->add_option("--rails", options->rails,
                   "For each dimension the URL of a switch; without, all are on\nthe job's")
      ->delimiter(',')
      ->type_name("URL");
  command
      ->add_option("--output", options->output,
                   "Write the topology to this file; - is standard output. Rank 0\nwrites")
      ->capture_default_str();
  command->footer(
      "All ranks of a job run it; rank, number of ranks and switch come from the environment, as\n"
      "with any program of libina: ina-run -n 4 ina-plan calibrate --sizes 2,2 --output mesh.yaml");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ina::cli
