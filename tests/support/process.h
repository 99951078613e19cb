// A child process of a test, with its standard output.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

extern char** environ;

namespace ina::test {

class Process {
 public:
  /// Throws where the program cannot be started, because a test would wait for it without end.
  explicit Process(std::vector<std::string> arguments) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category());
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const int error = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (error != 0) {
      ::close(ends[0]);
      throw std::system_error(
          error, std::generic_category(),
          "The program " + arguments.front() + " cannot be started; is it built (ninja -C build)?");
    }
    output_ = ends[0];
  }
  Process(Process&& other) noexcept : pid_(other.pid_), output_(other.output_) {
    other.pid_ = -1;
    other.output_ = -1;
  }
  Process& operator=(Process&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(output_, other.output_);
    return *this;
  }
  Process(const Process&) = delete;
  ~Process() {
    if (pid_ > 0) {
      kill(SIGKILL);
      wait();
    }
    if (output_ >= 0) ::close(output_);
  }

  bool started() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  /// Where nothing was started, -1 would be every process of this machine.
  void kill(int signal) const {
    if (pid_ > 0) ::kill(pid_, signal);
  }
  /// It has ended, and waits to be waited for.
  bool ended() const {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
  }
  /// Exit code, or minus the signal that ended it.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  /// Its output, up to its end.
  std::string output() const {
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = ::read(output_, buffer, sizeof(buffer))) > 0;)
      text.append(buffer, static_cast<size_t>(got));
    return text;
  }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
};

}  // namespace ina::test
