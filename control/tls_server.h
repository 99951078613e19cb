// The switch's side of TLS on the control connection.
#pragma once

#include <memory>

#include "control/tls.h"
#include "control/tls_files.h"

namespace ina::control {

/// `require_certificate`: of clients; otherwise they may show one, if there is a CA. Errors name
/// setting and file, by `names`.
Result<std::shared_ptr<const TlsAcceptor>> load_tls_acceptor(
    const TlsFiles& paths, bool require_certificate, const TlsFileNames& names = kControlTlsNames);

}  // namespace ina::control
