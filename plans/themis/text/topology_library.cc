#include "plans/themis/text/topology_library.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "plans/themis/text/topology_file.h"

namespace ina::themis {

namespace {

void put(const std::string& text, char* to, size_t bytes) {
  const size_t length = std::min(text.size(), bytes - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

}  // namespace

extern "C" bool ina_topology_load_1(const char* text, const char* path, Topology* topology,
                                    char* error, size_t error_bytes) {
  try {
    auto loaded = text ? load_topology(text, "topology") : load_topology_file(path);
    if (loaded) {
      *topology = std::move(*loaded);
      return true;
    }
    // The first says where to begin.
    put(loaded.error().front().to_string(), error, error_bytes);
  } catch (const std::exception& thrown) {
    put(thrown.what(), error, error_bytes);
  }
  return false;
}

}  // namespace ina::themis
