// The switch's side of TLS on the control connection.
#pragma once

#include <memory>

#include "control/tls.h"

namespace ina::control {

/// `paths`: kControlTlsNames. `require_certificate`: of workers; otherwise they may show one.
/// Errors name setting and file.
Result<std::shared_ptr<const TlsAcceptor>> load_tls_acceptor(const TlsFiles& paths,
                                                             bool require_certificate);

}  // namespace ina::control
