// Where a worker's TLS comes from: linked into the program, or else loaded, so that libina does not
// bring OpenSSL into processes that never ask for it (and may have another version of it).
#include <dlfcn.h>

#include "control/tls.h"

namespace ina::control {

namespace {

constexpr const char* kLibrary = "libina-tls.so";
constexpr const char* kMaker = "ina_tls_client_1";

using Maker = decltype(&ina_tls_client_1);

/// The maker of libina-tls.so, first looked for where libina itself lies.
Result<Maker> load_maker() {
  void* library = nullptr;
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&open_tls_client), &here) != 0 && here.dli_fname) {
    const std::string own = here.dli_fname;
    const std::string folder = own.substr(0, own.find_last_of('/') + 1);
    for (const char* place : {"", "../control/"})  // installed; in the build tree
      if (!library && !folder.empty())
        library = ::dlopen((folder + place + kLibrary).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (!library) library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fail(INA_ERR_UNSUPPORTED,
                std::string("tls: needs ") + kLibrary + ", which cannot be loaded: " + ::dlerror());
  auto* maker = reinterpret_cast<Maker>(::dlsym(library, kMaker));
  if (!maker)
    return fail(INA_ERR_VERSION, std::string(kLibrary) + " does not export " + kMaker +
                                     ": install the version that came with libina");
  return maker;
}

}  // namespace

// Nobody's, where tls_openssl.cc is not linked.
extern "C" [[gnu::weak]] TlsSession* ina_tls_client_1(const TlsClient* client, char* error,
                                                      size_t error_bytes);

Result<std::unique_ptr<TlsSession>> open_tls_client(const TlsClient& client) {
  Maker maker = &ina_tls_client_1;
  if (!maker) {
    const auto loaded = load_maker();
    if (!loaded) return tl::unexpected(loaded.error());
    maker = *loaded;
  }
  char error[1024] = "";
  std::unique_ptr<TlsSession> session(maker(&client, error, sizeof(error)));
  if (!session) return fail(INA_ERR_INVALID, error);
  return session;
}

}  // namespace ina::control
