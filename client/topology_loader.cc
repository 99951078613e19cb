#include "client/topology_loader.h"

#include <dlfcn.h>

#include <string>

#include "plans/themis/text/topology_library.h"

namespace ina::client {

namespace {

constexpr const char* kLibrary = "libina-topology.so";
constexpr const char* kLoad = "ina_topology_load_1";

using Load = decltype(&themis::ina_topology_load_1);

/// First looked for where libina itself lies.
Result<Load> load_library() {
  void* library = nullptr;
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&load_topology), &here) != 0 && here.dli_fname) {
    const std::string own = here.dli_fname;
    const std::string folder = own.substr(0, own.find_last_of('/') + 1);
    for (const char* place : {"", "../plans/themis/text/"})  // installed; in the build tree
      if (!library && !folder.empty())
        library = ::dlopen((folder + place + kLibrary).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (!library) library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fail(INA_ERR_UNSUPPORTED, std::string("a topology needs ") + kLibrary +
                                         ", which cannot be loaded: " + ::dlerror());
  auto* load = reinterpret_cast<Load>(::dlsym(library, kLoad));
  if (!load)
    return fail(INA_ERR_VERSION, std::string(kLibrary) + " does not export " + kLoad +
                                     ": install the version that came with libina");
  return load;
}

}  // namespace

Result<themis::Topology> load_topology(const char* text, const char* path) {
  const auto load = load_library();
  if (!load) return tl::unexpected(load.error());
  themis::Topology topology;
  char error[1024] = "";
  if (!(*load)(text, path, &topology, error, sizeof(error))) return fail(INA_ERR_INVALID, error);
  return topology;
}

}  // namespace ina::client
