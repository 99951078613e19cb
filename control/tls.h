// TLS on the control connection, as an interface. The implementation uses OpenSSL and is a library
// of its own (tls_openssl.cc). The switch links it; libina loads it when a URL asks for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "control/tls_files.h"

namespace ina::control {

/// "tls:HOST:PORT", in the places where else "tcp:HOST:PORT" or a socket's path stands.
inline constexpr std::string_view kTlsScheme = "tls:";
inline bool is_tls(std::string_view address) {
  return address.starts_with(kTlsScheme);
}

/// Encrypts what goes over one non-blocking socket. Never waits. One thread may read while another
/// writes.
class TlsSession {
 public:
  enum class Outcome {
    kDone,
    kWantsRead,   ///< again when the socket can be read from
    kWantsWrite,  ///< again when it can be written to
    kClosed,      ///< by the other side
    kFailed,      ///< error() says why; there is no going on
  };
  struct Moved {
    Outcome outcome = Outcome::kFailed;
    size_t bytes = 0;  ///< kDone: at least 1
  };

  virtual ~TlsSession() = default;
  /// Before anything else; read() and write() do it too if it is not done.
  virtual Outcome handshake(int fd) = 0;
  virtual Moved read(int fd, char* data, size_t bytes) = 0;
  /// After kWantsRead or kWantsWrite the same bytes must come again, or more that begin with them.
  virtual Moved write(int fd, const char* data, size_t bytes) = 0;
  /// Bytes have been received that the socket will not tell of.
  virtual bool buffered() const = 0;
  /// The failure, as a sentence without a full stop.
  virtual std::string error() const = 0;
  /// The switch's side: the other side does not speak TLS, and has been read from.
  virtual bool met_plain_text() const = 0;
  /// The common name of the certificate that the other side has shown and that was accepted; empty
  /// if it has none that is a text. Nothing: it has shown no certificate.
  virtual std::optional<std::string> peer_name() const = 0;
};

/// The switch's side: makes a session for each connection that it accepts.
class TlsAcceptor {
 public:
  virtual ~TlsAcceptor() = default;
  virtual std::unique_ptr<TlsSession> accept() const = 0;
};

/// The settings of a worker that connects to "tls:HOST:PORT".
struct TlsClient {
  TlsFiles files;    ///< paths; the certificate may be missing
  std::string name;  ///< the switch's certificate must have it; empty: HOST
};

/// The session of a worker, from tls_openssl.cc: linked, or else loaded from libina-tls.so.
Result<std::unique_ptr<TlsSession>> open_tls_client(const TlsClient& client);

/// Its maker, in C so that it can be looked up. nullptr: `error` says why.
extern "C" TlsSession* ina_tls_client_1(const TlsClient* client, char* error, size_t error_bytes);

}  // namespace ina::control
