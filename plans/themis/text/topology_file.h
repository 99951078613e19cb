// Topologies of dimensions, for the planner of collectives, from YAML. docs/themis.md has the keys.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "common/yaml/tree.h"
#include "plans/themis/topology.h"

namespace ina::themis {

/// Reads a topology. On failure all errors, in the order of their places. `file_name` is for the
/// messages only.
tl::expected<Topology, std::vector<yaml::Error>> load_topology(std::string_view text,
                                                               std::string_view file_name);

/// Reads a topology from a file; failing to read it is reported like any other error.
tl::expected<Topology, std::vector<yaml::Error>> load_topology_file(const std::string& path);

}  // namespace ina::themis
