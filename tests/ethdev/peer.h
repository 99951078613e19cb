// The other process of a memif test: starts it and talks with it.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "common/fd.h"

namespace ina::io {

/// A child process with pipes at its stdin and stdout; the first argument is the program.
class Peer {
 public:
  explicit Peer(std::vector<std::string> arguments) {
    int to_child[2];
    int from_child[2];
    if (::pipe2(to_child, O_CLOEXEC) != 0 || ::pipe2(from_child, O_CLOEXEC) != 0) return;
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(to_child[0], STDIN_FILENO);
      ::dup2(from_child[1], STDOUT_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(to_child[0]);
    ::close(from_child[1]);
    in_ = Fd(to_child[1]);
    out_ = Fd(from_child[0]);
  }
  ~Peer() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  template <class T>
  bool tell(const T& value) {
    return ::write(in_.get(), &value, sizeof(value)) == sizeof(value);
  }
  /// Blocks; the peer ends after a minute at the latest.
  template <class T>
  bool ask(T& value) {
    return ::read(out_.get(), &value, sizeof(value)) == sizeof(value);
  }
  void close_stdin() { in_.reset(); }
  /// Status as waitpid gives it, once the peer has ended; -1: it still runs.
  int status() {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) return -1;
    pid_ = -1;
    return status;
  }
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    wait();
  }

 private:
  pid_t pid_ = -1;
  Fd in_;
  Fd out_;
};

}  // namespace ina::io
