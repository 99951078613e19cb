#include "examples/demo/channel.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace ina::demo {
namespace {

struct Header {
  Kind kind;
  uint32_t bytes;
};

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void send_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) throw_errno("sending between worker and launcher");
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
}

}  // namespace

std::pair<Channel, Channel> Channel::make_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) throw_errno("socketpair");
  return {Channel(Fd(fds[0])), Channel(Fd(fds[1]))};
}

void Channel::send(Kind kind, std::span<const std::byte> body) {
  const Header header{kind, static_cast<uint32_t>(body.size())};
  send_all(fd_.get(), std::as_bytes(std::span(&header, 1)));
  send_all(fd_.get(), body);
}

ChannelMessage Channel::receive() {
  for (;;) {
    if (auto message = next()) return std::move(*message);
    if (!read_some(0)) throw std::runtime_error("the other process closed the channel");
  }
}

bool Channel::pump() {
  return read_some(MSG_DONTWAIT);
}

bool Channel::read_some(int flags) {
  std::array<std::byte, 65536> chunk;
  const ssize_t got = ::recv(fd_.get(), chunk.data(), chunk.size(), flags);
  if (got > 0) buffer_.insert(buffer_.end(), chunk.begin(), chunk.begin() + got);
  if (got >= 0) return got > 0;
  return errno == EINTR || errno == EAGAIN;
}

std::optional<ChannelMessage> Channel::next() {
  Header header;
  if (buffer_.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, buffer_.data(), sizeof header);
  const auto begin = buffer_.begin() + sizeof header;
  if (buffer_.size() - sizeof header < header.bytes) return std::nullopt;
  ChannelMessage message{header.kind, {begin, begin + header.bytes}};
  buffer_.erase(buffer_.begin(), begin + header.bytes);
  return message;
}

}  // namespace ina::demo
