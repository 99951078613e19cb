#include "examples/demo/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace ina::demo {
namespace {

[[noreturn]] void throw_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

sigset_t termination_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  return set;
}

/// The first steps of every child.
void prepare_child(pid_t parent) {
  // A group of its own: a Ctrl-C at the terminal reaches the launcher only, which ends its
  // children.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it died before the line above
  const sigset_t set = termination_signals();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

pid_t fork_or_throw(const std::string& name) {
  std::fflush(nullptr);  // or the child prints what is buffered once more
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno("cannot start " + name);
  return pid;
}

}  // namespace

Process::Process(std::string name, pid_t pid) : name_(std::move(name)), pid_(pid) {
  pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (pidfd_) return;
  const int error = errno;
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  throw std::system_error(error, std::generic_category(), "pidfd_open for " + name_);
}

Process Process::fork(std::string name, const std::function<int()>& body) {
  const pid_t parent = ::getpid();
  const pid_t pid = fork_or_throw(name);
  if (pid == 0) {
    prepare_child(parent);
    const int status = body();
    std::fflush(nullptr);
    ::_exit(status);
  }
  return Process(std::move(name), pid);
}

Process Process::spawn(std::string name, const std::vector<std::string>& arguments,
                       const std::string& log) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const Fd log_fd(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log_fd) throw_errno("cannot open " + log);
  const pid_t parent = ::getpid();
  const pid_t pid = fork_or_throw(name);
  if (pid == 0) {
    prepare_child(parent);
    ::dup2(log_fd.get(), STDOUT_FILENO);
    ::dup2(log_fd.get(), STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], std::strerror(errno));
    ::_exit(127);
  }
  return Process(std::move(name), pid);
}

Process::~Process() {
  if (pidfd_) stop(0);
}

bool Process::wait(int timeout_ms) {
  if (wait_status_) return true;
  pollfd ended{pidfd_.get(), POLLIN, 0};
  if (::poll(&ended, 1, timeout_ms) != 1) return false;
  int status = 0;
  if (::waitpid(pid_, &status, 0) != pid_) return false;
  wait_status_ = status;
  return true;
}

void Process::stop(int grace_ms) {
  if (wait(0)) return;
  if (grace_ms > 0) {
    ::kill(pid_, SIGTERM);
    if (wait(grace_ms)) return;
  }
  ::kill(pid_, SIGKILL);
  wait(-1);
}

std::string Process::describe() const {
  const std::string who = fmt::format("{} (pid {})", name_, pid_);
  if (!wait_status_) return who + " is running";
  if (WIFSIGNALED(*wait_status_)) {
    const int signal = WTERMSIG(*wait_status_);
    return fmt::format("{} was ended by signal {} ({})", who, signal, ::strsignal(signal));
  }
  return fmt::format("{} ended with status {}", who, WEXITSTATUS(*wait_status_));
}

TerminationSignals::TerminationSignals() {
  const sigset_t set = termination_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  fd_ = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw_errno("signalfd");
}

std::optional<int> TerminationSignals::poll() const {
  signalfd_siginfo info;
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

TemporaryFolder::TemporaryFolder()
    : path_((std::filesystem::temp_directory_path() / "ina-demo-XXXXXX").string()) {
  if (!::mkdtemp(path_.data())) throw_errno("cannot make a temporary folder " + path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string last_lines(const std::string& path, size_t lines) {
  std::ifstream file(path);
  std::deque<std::string> kept;
  for (std::string line; std::getline(file, line);) {
    kept.push_back(std::move(line));
    if (kept.size() > lines) kept.pop_front();
  }
  std::string text;
  for (const std::string& line : kept) text += "\n    " + line;
  return text;
}

}  // namespace ina::demo
