// Preloaded into the programs of tests (`./dev test --repeat N --jitter`): now and then a thread sleeps
// before or after a call to the system, so that orders between threads and processes come up that a
// quiet machine never shows. INA_JITTER_SEED: other sleeps.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { kOneOf = 24, kMostUs = 20000 };

static __thread uint64_t state;

// splitmix64.
static uint64_t next(void) {
  if (state == 0) {
    const char* seed = getenv("INA_JITTER_SEED");
    state = (seed ? strtoull(seed, NULL, 10) : 1) * 0x100000001b3u + (uint64_t)syscall(SYS_gettid);
  }
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static void maybe_sleep(void) {
  const uint64_t drawn = next();
  if (drawn % kOneOf != 0) return;
  const struct timespec pause = {0, (long)((drawn >> 32) % kMostUs) * 1000};
  syscall(SYS_nanosleep, &pause, NULL);
}

// The call itself, with sleeps around it.
#define JITTER(type, name, parameters, arguments)                                    \
  type name parameters {                                                             \
    static type(*own) parameters;                                                    \
    if (!own) own = (type(*) parameters)dlsym(RTLD_NEXT, #name);                     \
    maybe_sleep();                                                                   \
    const type result = own arguments;                                               \
    maybe_sleep();                                                                   \
    return result;                                                                   \
  }

JITTER(ssize_t, recvmsg, (int fd, struct msghdr* message, int flags), (fd, message, flags))
JITTER(ssize_t, sendmsg, (int fd, const struct msghdr* message, int flags), (fd, message, flags))
JITTER(ssize_t, recv, (int fd, void* data, size_t bytes, int flags), (fd, data, bytes, flags))
JITTER(ssize_t, send, (int fd, const void* data, size_t bytes, int flags), (fd, data, bytes, flags))
JITTER(int, poll, (struct pollfd* fds, nfds_t count, int ms), (fds, count, ms))
JITTER(int, epoll_wait, (int fd, struct epoll_event* events, int count, int ms), (fd, events, count, ms))
JITTER(int, accept4, (int fd, struct sockaddr* address, socklen_t* bytes, int flags), (fd, address, bytes, flags))
