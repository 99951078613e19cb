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

using Outcome = TlsSession::Outcome;

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
    const Moved moved = write(fd);
    send_wants_write_ = moved.outcome == Outcome::kWantsWrite;
    switch (moved.outcome) {
      case Outcome::kDone:
        out_sent_ += moved.bytes;
        break;
      case Outcome::kWantsRead:
      case Outcome::kWantsWrite:
        return {};
      case Outcome::kClosed:
        return fail(INA_ERR_SWITCH_LOST, std::string("cannot send on the control connection: ") +
                                             std::strerror(errno == 0 ? EPIPE : errno));
      case Outcome::kFailed:
        return fail(INA_ERR_REFUSED, "TLS: " + tls_->error());
    }
  }
  // A large status does not keep its memory for the connection's life.
  std::string().swap(out_);
  out_sent_ = 0;
  return {};
}

Stream::Moved Stream::write(int fd) {
  const char* data = out_.data() + out_sent_;
  const size_t bytes = out_.size() - out_sent_;
  if (tls_) return tls_->write(fd, data, bytes);
  for (;;) {
    const ssize_t sent = ::send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return {Outcome::kDone, static_cast<size_t>(sent)};
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {Outcome::kWantsWrite};
    if (errno != EINTR) return {Outcome::kClosed};
  }
}

Stream::Moved Stream::read(int fd, char* data, size_t bytes) {
  if (tls_) return tls_->read(fd, data, bytes);
  for (;;) {
    const ssize_t got = ::recv(fd, data, bytes, MSG_DONTWAIT);
    if (got > 0) return {Outcome::kDone, static_cast<size_t>(got)};
    if (got == 0) errno = 0;
    if (got < 0 && errno == EINTR) continue;
    const bool empty = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    return {empty ? Outcome::kWantsRead : Outcome::kClosed};
  }
}

Error Stream::read_error(Outcome outcome) {
  broken_ = true;
  if (outcome == Outcome::kFailed) {
    const std::string text = "TLS: " + tls_->error();
    if (!tls_->met_plain_text()) return {INA_ERR_REFUSED, text};
    tls_.reset();  // it is told why, in words that it understands
    return {INA_ERR_INVALID, text};
  }
  if (errno == 0)
    return {INA_ERR_SWITCH_LOST, "the control connection was closed by the other side"};
  return {INA_ERR_SWITCH_LOST,
          std::string("the control connection is broken: ") + std::strerror(errno)};
}

Result<std::optional<std::string>> Stream::receive(int fd) {
  if (broken_) return fail(INA_ERR_SWITCH_LOST, "the control connection has ended");
  for (;;) {
    const bool in_header = header_got_ < kHeaderBytes;
    Moved moved;
    if (in_header) {
      moved = read(fd, header_ + header_got_, kHeaderBytes - header_got_);
    } else {
      const size_t before = body_.size();
      const size_t room = std::min(body_bytes_ - before, kReadBytes);
      body_.resize(before + room);
      moved = read(fd, body_.data() + before, room);
      const int error = errno;
      body_.resize(before + moved.bytes);
      errno = error;
    }
    receive_wants_write_ = moved.outcome == Outcome::kWantsWrite;
    if (moved.outcome == Outcome::kWantsRead || moved.outcome == Outcome::kWantsWrite)
      return std::optional<std::string>();
    if (moved.outcome != Outcome::kDone) return tl::unexpected(read_error(moved.outcome));
    if (in_header) {
      header_got_ += moved.bytes;
      if (header_got_ < kHeaderBytes) continue;
      body_bytes_ = 0;
      for (size_t i = 0; i < kHeaderBytes; ++i)
        body_bytes_ |= size_t{static_cast<uint8_t>(header_[i])} << (8 * i);
      if (body_bytes_ != 0 && body_bytes_ <= limits_.receive_bytes) continue;
      broken_ = true;
      // TLS begins so, and no message is as long as that would be.
      if (!tls_ && header_[0] == 22 && header_[1] == 3)
        return fail(INA_ERR_INVALID, "TLS is not spoken here; use tcp:HOST:PORT");
      return fail(INA_ERR_INVALID, "a control message of " + std::to_string(body_bytes_) +
                                       " bytes; 1 to " + std::to_string(limits_.receive_bytes) +
                                       " are allowed");
    }
    if (body_.size() == body_bytes_) {
      header_got_ = 0;
      return std::optional<std::string>(std::exchange(body_, {}));
    }
  }
}

}  // namespace ina::control
