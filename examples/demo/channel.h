// Messages between the launcher and a worker process, over a pair of connected stream sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/fd.h"

namespace ina::demo {

enum class Kind : uint32_t {
  kEpoch = 1,  ///< worker: an EpochStats
  kWeights,    ///< worker: training is over; all parameters, layer by layer
  kError,      ///< worker: why it gives up, as text
  kLeave,      ///< launcher: leave the job now
};

struct ChannelMessage {
  Kind kind{};
  std::vector<std::byte> body;
};

class Channel {
 public:
  explicit Channel(Fd fd) : fd_(std::move(fd)) {}
  /// Both ends. Throws std::system_error.
  static std::pair<Channel, Channel> make_pair();

  /// Sends all of it, blocking. Throws std::system_error, also when the other end is gone.
  void send(Kind kind, std::span<const std::byte> body);
  /// Blocks for the next message. Throws std::runtime_error at end of file.
  ChannelMessage receive();

  /// Reads what has arrived, without blocking; false at end of file.
  bool pump();
  /// The next whole message that pump() has read.
  std::optional<ChannelMessage> next();

  void close() { fd_.reset(); }
  int fd() const { return fd_.get(); }

 private:
  bool read_some(int flags);
  Fd fd_;
  std::vector<std::byte> buffer_;
};

}  // namespace ina::demo
