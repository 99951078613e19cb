#include "transport/frame_transport.h"

#include <dlfcn.h>

#include "transport/udp_transport.h"

namespace ina::client {

namespace {

constexpr const char* kLibrary = "libina-dpdk.so";
constexpr const char* kFactory = "ina_dpdk_transport_open";

/// The factory of libina-dpdk.so, first looked for where libina itself lies.
Result<FrameTransportOpen> load_factory() {
  void* library = nullptr;
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&open_frame_transport), &here) != 0 &&
      here.dli_fname) {
    const std::string own = here.dli_fname;
    const std::string folder = own.substr(0, own.find_last_of('/') + 1);
    for (const char* place : {"", "../transport/dpdk/"})  // installed; in the build tree
      if (!library) library = ::dlopen((folder + place + kLibrary).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (!library) library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fail(INA_ERR_UNSUPPORTED, std::string("dpdk: and memif: need ") + kLibrary +
                                         ", which cannot be loaded: " + ::dlerror());
  auto* factory = reinterpret_cast<FrameTransportOpen>(::dlsym(library, kFactory));
  if (!factory)
    return fail(INA_ERR_VERSION, std::string(kLibrary) + " does not export " + kFactory +
                                     ": install the version that came with libina");
  return factory;
}

}  // namespace

Result<std::unique_ptr<FrameTransport>> open_frame_transport(const Url& url, Nanos timeout_ns) {
  if (url.scheme == "udp") {
    auto opened = UdpTransport::open(url);
    if (!opened) return tl::unexpected(opened.error());
    return std::unique_ptr<FrameTransport>(std::move(*opened));
  }
  const auto factory = load_factory();
  if (!factory) return tl::unexpected(factory.error());
  int status = INA_ERR_INTERNAL;
  char text[1024] = "";
  std::unique_ptr<FrameTransport> transport(
      (*factory)(url.text.c_str(), timeout_ns / 1000, &status, text, sizeof(text)));
  if (!transport) return fail(static_cast<ina_status>(status), text);
  return transport;
}

}  // namespace ina::client
