// Workloads of the user's own, from YAML files: layer tables of models, arrivals of jobs, and
// racks. sim/README.md has the formats, conf/sim an example of each.
//
// All throw std::invalid_argument with FILE:LINE:COLUMN and the error there.
#pragma once

#include <string>
#include <vector>

#include "sim/cluster.h"

namespace ina::sim {

/// True if a model's name is a path: it has a '/' in it or ends with ".yaml" or ".yml".
bool is_model_file(const std::string& name);

/// A model by name, or from a file. `scale`:
/// make_model(). `folder`: of relative paths; empty: the working one.
Model model_of(const std::string& name_or_path, double scale, const std::string& folder = "");

/// Jobs in the order of the file. `scale` divides times of arrival, too.
std::vector<JobPlan> read_trace(const std::string& path, double scale);

/// Racks; values that the file does not give are as in `otherwise`.
std::vector<RackSpec> read_topology(const std::string& path, const RackSpec& otherwise);

}  // namespace ina::sim
