// Certificates and keys from PEM files. They are checked when they are read, so that an error names
// the file, instead of a handshake that fails.
#pragma once

#include <string>

#include "common/result.h"

namespace ina::control {

/// PEM files, or their contents.
struct TlsFiles {
  std::string certificate;  ///< of this end, with the chain behind it
  std::string key;          ///< its private key
  std::string ca;           ///< authority that must have signed the other end's certificate
  bool operator==(const TlsFiles&) const = default;
};

/// The files' names where they are set, and whether others may read the key.
struct TlsFileNames {
  const char* certificate;
  const char* key;
  const char* ca;
  bool key_is_guarded;
};
inline constexpr TlsFileNames kControlTlsNames = {"control.tls_certificate", "control.tls_key",
                                                  "control.tls_client_ca", true};
inline constexpr TlsFileNames kAdminTlsNames = {"admin.certificate", "admin.key", "admin.client_ca",
                                                true};

/// The contents of those files that are named: a certificate and its key, or neither; a CA, or
/// none. A guarded key that others may read is refused. Errors name file and setting.
Result<TlsFiles> read_tls_files(const TlsFiles& paths, const TlsFileNames& names);

}  // namespace ina::control
