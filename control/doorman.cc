// The switch's side: control/doorman_process.cc has the other.
#include "control/doorman.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>

#include "control/doorman_protocol.h"

namespace ina::control {

namespace {

using doorman::Kind;
using doorman::Reply;

bool kernel_collects_on_close() {
  utsname name{};
  int major = 0;
  int minor = 0;
  if (::uname(&name) != 0 || std::sscanf(name.release, "%d.%d", &major, &minor) != 2) return true;
  return major < 6 || (major == 6 && minor < 9);
}

/// True if closing the socket would close others' descriptors. The socket is shut down, so that no
/// more can come.
bool holds_descriptors(int socket) {
  char path[48];
  std::snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", socket);
  const Fd info(::open(path, O_RDONLY | O_CLOEXEC));
  char text[512] = {};
  if (!info || ::read(info.get(), text, sizeof(text) - 1) <= 0) return true;
  const char* line = std::strstr(text, "scm_fds:");
  return !line || std::strtoul(line + 8, nullptr, 10) != 0;
}

uid_t user_of(int connection) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return static_cast<uid_t>(-1);
  return credentials.uid;
}

}  // namespace

Result<std::unique_ptr<Doorman>> Doorman::start() {
  const auto failed = [] {
    return fail(INA_ERR_NO_MEMORY, std::string("cannot start the process that takes descriptors "
                                               "from workers: ") +
                                       std::strerror(errno));
  };
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return failed();
  Fd ours(ends[0]);
  Fd theirs(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return failed();
  if (child == 0) {
    // Once more, so that it is nobody's child to be waited for.
    const pid_t grandchild = ::fork();
    if (grandchild == 0) doorman::serve(theirs.get());
    ::_exit(grandchild > 0 ? 0 : errno);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  doorman::Request hello;  // its token is the process's number
  ssize_t got = 0;
  // The reason why the second fork failed.
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) errno = WEXITSTATUS(status);
  if (status == 0) {
    theirs.reset();
    do {
      got = ::recv(ours.get(), &hello, sizeof(hello), 0);
    } while (got < 0 && errno == EINTR);
  }
  if (got != sizeof(hello)) return failed();
  return std::unique_ptr<Doorman>(new Doorman(std::move(ours), static_cast<pid_t>(hello.token)));
}

Doorman::Doorman(Fd socket, pid_t pid)
    : socket_(std::move(socket)), pid_(pid), kernel_collects_(kernel_collects_on_close()) {}

Doorman::~Doorman() {
  constexpr int kPatienceMs = 100;
  asks_.clear();
  for (turn(); alive_ && waiting() != 0; turn()) {
    pollfd room{socket_.get(), POLLOUT, 0};
    if (::poll(&room, 1, kPatienceMs) <= 0) break;
  }
  // Better left to the end of the process than closed here.
  for (Fd& connection : waiting_) (void)connection.release();
}

/// False: not now, or it is gone.
bool Doorman::send(Kind kind, uid_t user, uint64_t token, int connection) {
  if (!alive_) return false;
  doorman::Request request{kind, user, token};
  if (doorman::send_message(socket_.get(), request, connection, MSG_DONTWAIT) > 0) return true;
  if (errno == EPIPE || errno == ECONNRESET) alive_ = false;
  return false;
}

Result<void> Doorman::ask(int connection, uid_t user, uint64_t token) {
  // In turn. Others' floods make it wait, and may not have it refused.
  if (asks_.empty() && send(Kind::kAsk, user, token, connection)) return {};
  if (alive_) {
    asks_.push_back({connection, user, token});
    return {};
  }
  return fail(
      INA_ERR_REFUSED,
      "the switch takes no descriptors, because its process for that (ina-doorman) is gone: "
      "start the switch again");
}

void Doorman::withdraw(uint64_t token) {
  std::erase_if(asks_, [token](const Ask& ask) { return ask.token == token; });
}

void Doorman::close(Fd connection) {
  ::shutdown(connection.get(), SHUT_RDWR);
  if (!kernel_collects_ && !holds_descriptors(connection.get())) return;
  // In turn, and not at all if nobody is left who may close it.
  if (!waiting_.empty() || !hand_over(connection)) waiting_.push_back(std::move(connection));
}

/// True: it is closed here, so that the doorman's is the last descriptor of it.
bool Doorman::hand_over(Fd& connection) {
  if (unconfirmed_ != 0 || !send(Kind::kBury, user_of(connection.get()), 0, connection.get()))
    return false;
  connection.reset();
  if (!send(Kind::kClosed, 0, 0, -1)) ++unconfirmed_;
  return true;
}

void Doorman::turn() {
  while (!asks_.empty() &&
         send(Kind::kAsk, asks_.front().user, asks_.front().token, asks_.front().connection))
    asks_.pop_front();
  while (unconfirmed_ != 0 && send(Kind::kClosed, 0, 0, -1)) --unconfirmed_;
  while (!waiting_.empty() && hand_over(waiting_.front())) waiting_.pop_front();
}

std::optional<Doorman::Answer> Doorman::next() {
  Reply reply;
  doorman::Envelope<1> envelope(&reply, sizeof(reply));
  const ssize_t got = ::recvmsg(socket_.get(), &envelope.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  Answer answer;
  envelope.each([&](int fd) { answer.file = Fd(fd); });
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) alive_ = false;
  if (got != sizeof(reply)) return std::nullopt;
  answer.token = reply.token;
  answer.user = reply.user;
  answer.cpu_ns = reply.cpu_ns;
  answer.status = static_cast<ina_status>(reply.status);
  answer.text.assign(reply.text, ::strnlen(reply.text, sizeof(reply.text)));
  if (answer.token != 0 && answer.status == INA_OK && !answer.file) {
    answer.status = INA_ERR_NO_MEMORY;
    answer.text = "the switch has no descriptor left for the memory";
  }
  return answer;
}

}  // namespace ina::control
