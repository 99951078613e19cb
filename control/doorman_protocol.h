// The messages between a switch and its doorman; for these two only.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace ina::control::doorman {

enum class Kind : uint8_t {
  kAsk,     ///< with a connection: receive its next message
  kBury,    ///< with a connection: close it once the sender has
  kClosed,  ///< the oldest connection of kBury that is not confirmed yet: the sender has closed it
};

struct Request {
  Kind kind{};
  uid_t user = 0;
  uint64_t token = 0;
};

struct Reply {
  uint64_t token = 0;  ///< of the request; 0: the cost of a user's requests
  int32_t status = 0;
  char text[160] = {};  ///< ends with 0
  uid_t user = 0;       ///< without token
  int64_t cpu_ns = 0;   ///< without token: processor time
};

/// A message of the kernel's with room for descriptors.
template <size_t kMost>
struct Envelope {
  Envelope(void* data, size_t bytes) : part{data, bytes} {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = space;
    header.msg_controllen = sizeof(space);
  }
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;

  /// To be sent: with this descriptor, or none.
  void put(int fd) {
    if (fd < 0) {
      header.msg_control = nullptr;
      header.msg_controllen = 0;
      return;
    }
    header.msg_controllen = CMSG_SPACE(sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(int));
  }
  /// Received: calls `take(fd)` for each.
  template <class Take>
  void each(Take&& take) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
        take(fd);
      }
    }
  }

  msghdr header{};
  iovec part;
  alignas(cmsghdr) char space[CMSG_SPACE(kMost * sizeof(int))] = {};
};

/// -1: errno.
template <class Message>
ssize_t send_message(int socket, Message& message, int fd, int flags) {
  Envelope<1> envelope(&message, sizeof(message));
  envelope.put(fd);
  ssize_t sent;
  do {
    sent = ::sendmsg(socket, &envelope.header, MSG_NOSIGNAL | flags);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

/// The doorman itself: serves until the other end of `socket` is closed, then ends the process.
/// Makes nothing but system calls: it runs in a process that was forked from one with threads.
[[noreturn]] void serve(int socket);

}  // namespace ina::control::doorman
