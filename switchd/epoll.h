// The descriptors that the conductor waits for.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "common/fd.h"
#include "common/result.h"

namespace ina::switchd {

class Epoll {
 public:
  Epoll() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {}

  /// Waits for input from `fd` from now on, if it does not already.
  Result<void> watch(int fd) const {
    if (control(EPOLL_CTL_ADD, fd, EPOLLIN) || errno == EEXIST) return {};
    return fail(INA_ERR_NO_MEMORY, std::string("cannot watch a socket: ") + std::strerror(errno));
  }
  /// `events`: of a descriptor that is watched; 0: its end only.
  bool change(int fd, uint32_t events) const { return control(EPOLL_CTL_MOD, fd, events); }
  void forget(int fd) const { control(EPOLL_CTL_DEL, fd, 0); }

  /// The events, after `timeout_ms` at most; valid until the next call.
  std::span<const epoll_event> wait(int timeout_ms) {
    const int count =
        ::epoll_wait(fd_.get(), events_.data(), static_cast<int>(events_.size()), timeout_ms);
    return {events_.data(), static_cast<size_t>(count < 0 ? 0 : count)};
  }

 private:
  bool control(int operation, int fd, uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    return ::epoll_ctl(fd_.get(), operation, fd, &event) == 0;
  }

  Fd fd_;
  std::array<epoll_event, 64> events_;
};

}  // namespace ina::switchd
