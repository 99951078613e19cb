// Sends frames unchanged from an interface of the kernel, many with one system call.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <span>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

namespace ina::hostile {

class PacketSocket {
 public:
  static constexpr size_t kBatch = 32;

  static Result<PacketSocket> open(const std::string& interface);

  /// Keeps a copy of the frame; room for kBatch until flush().
  void add(std::span<const std::byte> frame);
  bool full() const { return count_ == kBatch; }
  /// Returns how many the interface took; the others are lost.
  size_t flush();

 private:
  explicit PacketSocket(Fd fd);

  Fd fd_;
  std::vector<std::byte> bytes_;
  std::vector<iovec> parts_;
  std::vector<mmsghdr> headers_;
  size_t count_ = 0;
};

}  // namespace ina::hostile
