// Control messages on a byte stream (TCP, or TLS over it): the length in 4 bytes, little-endian,
// and the JSON text. A stream keeps messages that have come or gone half-way, so that no slow peer
// holds the process up.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "control/tls.h"

namespace ina::control {

/// Limits of one end, in bytes.
struct StreamLimits {
  size_t receive_bytes = 0;  ///< of a message
  size_t send_bytes = 0;
};

/// The state of one end. One thread may send while another receives.
class Stream {
 public:
  /// A message is not accepted while more than this waits for a peer that does not read.
  static constexpr size_t kMaxPendingBytes = 256 * 1024;

  /// `tls`: encrypts what goes over the socket; nullptr: nothing does.
  explicit Stream(StreamLimits limits, std::unique_ptr<TlsSession> tls = nullptr)
      : limits_(limits), tls_(std::move(tls)) {}

  /// Sends as much as the socket takes and keeps the rest for flush(). INA_ERR_SWITCH_LOST: the
  /// connection is closed, or its peer does not read.
  Result<void> send(int fd, std::string_view text);
  /// Sends what is kept, as much as the socket takes.
  Result<void> flush(int fd);
  /// Something is kept for flush().
  bool pending() const;
  /// The socket must be writable before there is any going on.
  bool wants_write() const { return send_wants_write_.load() || receive_wants_write_.load(); }

  /// The next message, if the socket has the rest of it; never reads beyond it, so that the socket
  /// stays readable while there is more, or buffered() says so. INA_ERR_SWITCH_LOST: the end of the
  /// stream. INA_ERR_REFUSED: the two ends do not agree about TLS. INA_ERR_INVALID: the length is
  /// not in 1..receive_bytes, or the peer does not speak the TLS that the switch demands; the rest
  /// of the stream is unusable. In these two cases the peer understands an answer.
  Result<std::optional<std::string>> receive(int fd);
  /// There is more to receive() of which the socket will not tell.
  bool buffered() const { return tls_ && tls_->buffered(); }
  /// TlsSession::peer_name().
  std::optional<std::string> peer_name() const { return tls_ ? tls_->peer_name() : std::nullopt; }

 private:
  static constexpr size_t kHeaderBytes = 4;

  using Moved = TlsSession::Moved;

  Result<void> flush_locked(int fd);
  Moved write(int fd);
  Moved read(int fd, char* data, size_t bytes);
  Error read_error(TlsSession::Outcome outcome);

  const StreamLimits limits_;
  std::unique_ptr<TlsSession> tls_;
  bool broken_ = false;  ///< the receiver's: nothing that follows means anything
  std::atomic<bool> send_wants_write_ = false;
  std::atomic<bool> receive_wants_write_ = false;
  mutable std::mutex mutex_;  ///< of the following: a receiver flushes, too
  std::string out_;
  size_t out_sent_ = 0;

  // The receiver's alone.
  char header_[kHeaderBytes] = {};
  size_t header_got_ = 0;
  size_t body_bytes_ = 0;
  std::string body_;
};

}  // namespace ina::control
