#include "control/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ina::control {

namespace {

// Memory is taken as bytes come, not as a length promises them.
constexpr size_t kReadBytes = 64 * 1024;

}  // namespace

Result<void> Stream::send(int fd, std::string_view text) {
  if (text.empty() || text.size() > limits_.send_bytes)
    return fail(INA_ERR_INTERNAL, "a control message has " + std::to_string(text.size()) +
                                      " bytes, not 1.." + std::to_string(limits_.send_bytes));
  const std::lock_guard lock(mutex_);
  if (out_.size() - out_sent_ > kMaxPendingBytes)
    return fail(INA_ERR_SWITCH_LOST, "the other side of the control connection does not read");
  out_.erase(0, out_sent_);
  out_sent_ = 0;
  const auto bytes = static_cast<uint32_t>(text.size());
  for (size_t i = 0; i < kHeaderBytes; ++i)
    out_ += static_cast<char>(static_cast<uint8_t>(bytes >> (8 * i)));
  out_ += text;
  return flush_locked(fd);
}

Result<void> Stream::flush(int fd) {
  const std::lock_guard lock(mutex_);
  return flush_locked(fd);
}

bool Stream::pending() const {
  const std::lock_guard lock(mutex_);
  return out_sent_ != out_.size();
}

Result<void> Stream::flush_locked(int fd) {
  while (out_sent_ != out_.size()) {
    const ssize_t sent =
        ::send(fd, out_.data() + out_sent_, out_.size() - out_sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      out_sent_ += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return {};
    } else if (errno != EINTR) {
      return fail(INA_ERR_SWITCH_LOST,
                  std::string("cannot send on the control connection: ") + std::strerror(errno));
    }
  }
  // A large status does not keep its memory for the connection's life.
  std::string().swap(out_);
  out_sent_ = 0;
  return {};
}

Result<std::optional<std::string>> Stream::receive(int fd) {
  for (;;) {
    const bool in_header = header_got_ < kHeaderBytes;
    ssize_t got;
    if (in_header) {
      got = ::recv(fd, header_ + header_got_, kHeaderBytes - header_got_, MSG_DONTWAIT);
    } else {
      const size_t before = body_.size();
      const size_t room = std::min(body_bytes_ - before, kReadBytes);
      body_.resize(before + room);
      got = ::recv(fd, body_.data() + before, room, MSG_DONTWAIT);
      const int error = errno;
      body_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
      errno = error;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::optional<std::string>();
    if (got < 0)
      return fail(INA_ERR_SWITCH_LOST,
                  std::string("the control connection is broken: ") + std::strerror(errno));
    if (got == 0)
      return fail(INA_ERR_SWITCH_LOST, "the control connection was closed by the other side");
    if (in_header) {
      header_got_ += static_cast<size_t>(got);
      if (header_got_ < kHeaderBytes) continue;
      body_bytes_ = 0;
      for (size_t i = 0; i < kHeaderBytes; ++i) body_bytes_ |= size_t{header_[i]} << (8 * i);
      if (body_bytes_ == 0 || body_bytes_ > limits_.receive_bytes)
        return fail(INA_ERR_INVALID, "a control message of " + std::to_string(body_bytes_) +
                                         " bytes; 1 to " + std::to_string(limits_.receive_bytes) +
                                         " are allowed");
    } else if (body_.size() == body_bytes_) {
      header_got_ = 0;
      return std::optional<std::string>(std::exchange(body_, {}));
    }
  }
}

}  // namespace ina::control
