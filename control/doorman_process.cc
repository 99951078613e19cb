// The doorman's own process. Single-threaded, without memory of its own but the stack: it was
// forked from a process whose other threads may have held any lock.
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>

#include "common/sealed_memory.h"
#include "control/doorman.h"
#include "control/doorman_protocol.h"
#include "ina/ina.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

namespace ina::control::doorman {

namespace {

constexpr int kMaxPending = 1024;
// Descriptors of this process itself: its socket and signals, a pipe to each child, standard
// streams.
constexpr rlim_t kOwnDescriptors = 32;
// One user's requests are never all that fit. Once a child of the user hangs, more than
// kMaxPendingAsks are refused: without that, the workers of a large job may come all at once.
constexpr int kMostAsksOfUser = kMaxPending / 2;
constexpr int kMaxPendingAsks = 64;
// Once kBatch descriptors of a user wait to be closed, up to kMostChildrenPerUser children may
// close them.
constexpr int kBatch = 128;
constexpr int kMostChildrenPerUser = 2 * Doorman::kChildrenPerUser;
// A child that takes no longer hangs not, and a request that waits no longer for one that hangs is
// not refused.
constexpr int64_t kHangMs = 500;
constexpr int64_t kPatienceMs = 2'000;
// The kernel's SCM_MAX_FD.
constexpr size_t kMostDescriptors = 253;

int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000 + now.tv_nsec / 1'000'000;
}

/// So many connections fit. One that does not would be closed here by the kernel, which may hang.
int most_pending() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return kMaxPending / 2;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  ::getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur >= kMaxPending + kOwnDescriptors) return kMaxPending;
  return files.rlim_cur > kOwnDescriptors ? static_cast<int>(files.rlim_cur - kOwnDescriptors) : 1;
}

int64_t cpu_ns() {
  timespec spent{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return int64_t{spent.tv_sec} * 1'000'000'000 + spent.tv_nsec;
}

int64_t cpu_ns_of(const rusage& usage) {
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * int64_t{1'000'000'000} +
         (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * int64_t{1'000};
}

void close_from(unsigned first) {
  if (::syscall(SYS_close_range, first, ~0u, 0) == 0) return;
  for (unsigned fd = first; fd < 65'536; ++fd) ::close(static_cast<int>(fd));
}

class Office {
 public:
  explicit Office(int socket) : socket_(socket) {
    sigset_t child;
    ::sigemptyset(&child);
    ::sigaddset(&child, SIGCHLD);
    ::sigprocmask(SIG_SETMASK, &child, nullptr);
    ended_ = ::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
  }

  [[noreturn]] void run() {
    for (;;) {
      pollfd fds[2] = {{ended_, POLLIN, 0}, {socket_, POLLIN, 0}};
      ::poll(fds, pending_count_ < most_pending_ ? 2 : 1, pending_count_ == 0 ? -1 : 100);
      signalfd_siginfo info[8];
      while (::read(ended_, info, sizeof(info)) > 0) {
      }
      reap();
      while (pending_count_ < most_pending_ && take_request()) {
      }
      serve_pending();
    }
  }

 private:
  struct Pending {
    Kind kind{};
    bool confirmed = false;  ///< kBury: the sender has closed its own
    uid_t user = 0;
    uint64_t token = 0;
    int connection = -1;
    int64_t since_ms = 0;
  };
  struct Child {
    pid_t pid = 0;
    uid_t user = 0;
    int64_t cpu_ns = 0;  ///< of this process, for it
    int64_t since_ms = 0;
  };

  void reap() {
    rusage usage{};
    for (pid_t pid; (pid = ::wait4(-1, nullptr, WNOHANG, &usage)) > 0;)
      for (int i = 0; i < child_count_; ++i)
        if (children_[i].pid == pid) {
          report(children_[i].user, children_[i].cpu_ns + cpu_ns_of(usage));
          children_[i] = children_[--child_count_];
          break;
        }
  }

  /// False: there is none.
  bool take_request() {
    Request request;
    Envelope<1> envelope(&request, sizeof(request));
    const ssize_t got = ::recvmsg(socket_, &envelope.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    // The switch has gone. The kernel closes the pending descriptors.
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) ::_exit(0);
    if (got < 0) return false;
    int connection = -1;
    envelope.each([&](int fd) { connection = fd; });
    if (request.kind == Kind::kClosed) {
      for (int i = 0; i < pending_count_; ++i)
        if (pending_[i].kind == Kind::kBury && !pending_[i].confirmed) {
          pending_[i].confirmed = true;
          break;
        }
      return true;
    }
    if (connection < 0) {  // this process is out of descriptors
      if (request.kind == Kind::kAsk)
        answer(request.token, INA_ERR_NO_MEMORY, "the switch is out of descriptors: try again");
      return true;
    }
    pending_[pending_count_++] = {request.kind,  false,      request.user,
                                  request.token, connection, now_ms()};
    return true;
  }

  int children_of(uid_t user) const {
    int count = 0;
    for (int i = 0; i < child_count_; ++i) count += children_[i].user == user;
    return count;
  }
  bool hangs(uid_t user, int64_t now) const {
    for (int i = 0; i < child_count_; ++i)
      if (children_[i].user == user && now - children_[i].since_ms > kHangMs) return true;
    return false;
  }
  int pending_of(uid_t user, Kind kind) const {
    int count = 0;
    for (int i = 0; i < pending_count_; ++i)
      count += pending_[i].user == user && pending_[i].kind == kind;
    return count;
  }

  void serve_pending() {
    const int64_t now = now_ms();
    for (int i = 0; i < pending_count_;) {
      const Pending& pending = pending_[i];
      if (pending.kind == Kind::kAsk)
        i = serve_ask(i, now);
      else
        i = serve_burial(i);
    }
  }

  /// Where to go on.
  int serve_ask(int i, int64_t now) {
    Pending& pending = pending_[i];
    if (child_count_ < Doorman::kChildren &&
        children_of(pending.user) < Doorman::kChildrenPerUser && fork_for(i, i + 1)) {
      remove(i);
      return i;
    }
    const int asks = pending_of(pending.user, Kind::kAsk);
    if (asks > kMostAsksOfUser ||
        (hangs(pending.user, now) &&
         (now - pending.since_ms > kPatienceMs || asks > kMaxPendingAsks))) {
      answer(pending.token, INA_ERR_REFUSED,
             "descriptors that this user sent before cannot be closed: end what keeps them");
      // Its connection may be the last descriptor by now.
      pending.kind = Kind::kBury;
      pending.confirmed = true;
    }
    return i + 1;
  }

  /// All connections of a user that are to be closed go to one child.
  int serve_burial(int i) {
    const Pending& first = pending_[i];
    if (!first.confirmed) return i + 1;
    const int children = children_of(first.user);
    const bool many = pending_of(first.user, Kind::kBury) >= kBatch;
    if (child_count_ >= Doorman::kChildren ||
        children >= (many ? kMostChildrenPerUser : Doorman::kChildrenPerUser))
      return i + 1;
    const uid_t user = first.user;
    const auto goes = [&](const Pending& one) {
      return one.kind == Kind::kBury && one.confirmed && one.user == user;
    };
    // Those that go are moved to the front of the rest, in order.
    int end = i;
    for (int k = i; k < pending_count_; ++k)
      if (goes(pending_[k])) {
        const Pending one = pending_[k];
        for (int m = k; m > end; --m) pending_[m] = pending_[m - 1];
        pending_[end++] = one;
      }
    if (!fork_for(i, end)) return end;
    for (int k = i; k < end; ++k) remove(i);
    return i;
  }

  void remove(int i) {
    --pending_count_;
    for (int k = i; k < pending_count_; ++k) pending_[k] = pending_[k + 1];
  }

  /// A child for the requests [first, end): it has their connections then, and nobody else here.
  bool fork_for(int first, int end) {
    const int64_t began_ns = cpu_ns();
    int go[2];
    if (::pipe2(go, O_CLOEXEC) != 0) return false;
    const pid_t pid = ::fork();
    if (pid < 0) {
      ::close(go[0]);
      ::close(go[1]);
      return false;
    }
    if (pid == 0) {
      ::close(go[1]);
      ::close(ended_);
      for (int i = 0; i < pending_count_; ++i)
        if (i < first || i >= end) ::close(pending_[i].connection);
      char none;
      while (::read(go[0], &none, 1) < 0 && errno == EINTR) {
      }
      if (pending_[first].kind == Kind::kAsk) receive(pending_[first]);
      ::close(socket_);
      ::_exit(0);  // closes everything else, however long that takes
    }
    ::close(go[0]);
    for (int i = first; i < end; ++i) ::close(pending_[i].connection);  // the child has them
    ::close(go[1]);
    children_[child_count_++] = {pid, pending_[first].user, cpu_ns() - began_ns, now_ms()};
    return true;
  }

  /// In a child: takes the message with its descriptors.
  void receive(const Pending& pending) {
    char body[1];
    Envelope<kMostDescriptors> envelope(body, sizeof(body));
    ssize_t got;
    do {
      got = ::recvmsg(pending.connection, &envelope.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
      return answer(pending.token, INA_ERR_INVALID, "the message with the descriptor is gone");
    int count = 0;
    int file = -1;
    envelope.each([&](int fd) {
      ++count;
      file = fd;
    });
    if ((envelope.header.msg_flags & MSG_CTRUNC) != 0)
      return answer(pending.token, INA_ERR_NO_MEMORY,
                    "the switch has no room for the message's descriptors");
    if (count != 1)
      return answer(pending.token, INA_ERR_INVALID,
                    "the message must carry one descriptor, that of the memory");
    uint64_t bytes = 0;
    if (const char* problem = problem_of_region(file, bytes))
      return answer(pending.token, INA_ERR_REFUSED, problem, -1, "the memory file ");
    answer(pending.token, INA_OK, "", file);
  }

  /// Reports a child's cost at its end. It does not wait for a switch that is too busy to hear it.
  void report(uid_t user, int64_t spent_ns) const {
    Reply reply;
    reply.user = user;
    reply.cpu_ns = spent_ns;
    (void)send_message(socket_, reply, -1, MSG_DONTWAIT);
  }

  void answer(uint64_t token, ina_status status, const char* text, int file = -1,
              const char* subject = "") {
    Reply reply;
    reply.token = token;
    reply.status = status;
    size_t at = 0;
    for (const char* part : {subject, text})
      for (; *part != 0 && at + 1 < sizeof(reply.text); ++part) reply.text[at++] = *part;
    (void)send_message(socket_, reply, file, 0);
  }

  int socket_;
  int ended_;
  int pending_count_ = 0;
  int child_count_ = 0;
  const int most_pending_ = most_pending();
  Pending pending_[kMaxPending];
  Child children_[Doorman::kChildren];
};

}  // namespace

void serve(int socket) {
  // The socket becomes descriptor 0, and all others go.
  ::dup2(socket, 0);
  close_from(1);
  ::prctl(PR_SET_NAME, "ina-doorman");
  // It ends with the switch, not by the signal that ends the switch.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2})
    ::signal(number, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);
  Office office(0);
  Request hello;
  hello.token = static_cast<uint64_t>(::getpid());
  (void)send_message(0, hello, -1, 0);
  office.run();
}

}  // namespace ina::control::doorman
