// Topologies of dimensions from YAML, by a library that is loaded for them.
#pragma once

#include "common/result.h"
#include "plans/themis/topology.h"

namespace ina::client {

/// Reads `text`, or the file `path` if that is nullptr. INA_ERR_INVALID with file, line and column;
/// INA_ERR_UNSUPPORTED: libina-topology.so is not there.
Result<themis::Topology> load_topology(const char* text, const char* path);

}  // namespace ina::client
