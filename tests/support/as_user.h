// Runs a test's code as another user of this host. Needs root.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <thread>

namespace ina::test {

/// Runs `body` on a thread whose user is `uid`: a socket's credentials are those of when it was
/// connected. glibc's call would change all threads.
inline void as_user(uid_t uid, const std::function<void()>& body) {
  std::thread([&] {
    if (::syscall(SYS_setresuid, -1, uid, -1) != 0) std::abort();
    body();
  }).join();
}

}  // namespace ina::test
