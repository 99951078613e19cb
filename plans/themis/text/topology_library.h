// The exports of libina-topology.so, for libina: topologies from YAML (topology_file.h).
#pragma once

#include <cstddef>

#include "plans/themis/topology.h"

namespace ina::themis {

/// Reads a topology: `text`, or the file `path` if that is nullptr. False: `error` has a sentence.
extern "C" [[gnu::visibility("default")]] bool ina_topology_load_1(const char* text,
                                                                   const char* path,
                                                                   Topology* topology, char* error,
                                                                   size_t error_bytes);

}  // namespace ina::themis
