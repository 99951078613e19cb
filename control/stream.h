// Control messages on a byte stream (TCP): each is its length, 4 bytes little-endian, and the JSON
// text. What came or went half-way is kept here, so that no peer, however slow, holds anybody up.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

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

  explicit Stream(StreamLimits limits) : limits_(limits) {}

  /// Sends as much as the socket takes and keeps the rest for flush(). INA_ERR_SWITCH_LOST: the
  /// connection is closed, or its peer does not read.
  Result<void> send(int fd, std::string_view text);
  /// Sends what is kept, as much as the socket takes.
  Result<void> flush(int fd);
  /// Something is kept: flush() when the socket can be written to.
  bool pending() const;

  /// The next message, if the socket has the rest of it; never reads beyond it, so that the socket
  /// stays readable while there is more. INA_ERR_SWITCH_LOST at the end of the stream,
  /// INA_ERR_INVALID if the length is not in 1..receive_bytes: nothing that follows means anything.
  Result<std::optional<std::string>> receive(int fd);

 private:
  static constexpr size_t kHeaderBytes = 4;

  Result<void> flush_locked(int fd);

  const StreamLimits limits_;
  mutable std::mutex mutex_;  ///< what follows: a receiver flushes, too
  std::string out_;
  size_t out_sent_ = 0;

  // The receiver's alone.
  uint8_t header_[kHeaderBytes] = {};
  size_t header_got_ = 0;
  size_t body_bytes_ = 0;
  std::string body_;
};

}  // namespace ina::control
