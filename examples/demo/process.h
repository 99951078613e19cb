// Child processes that end with their owner, termination signals, a temporary folder.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/fd.h"

namespace ina::demo {

/// A child process, ended and reaped by the destructor. It also dies with this process, however
/// this one ends.
class Process {
 public:
  /// Runs `body` in a forked child, which ends with the value it returns; stdout and stderr are
  /// shared. Call while single-threaded. Throws std::system_error.
  static Process fork(std::string name, const std::function<int()>& body);
  /// Runs a program (path first) with stdout and stderr appended to `log`. A program that cannot
  /// be run ends with status 127 and says why in the log. Throws std::system_error.
  static Process spawn(std::string name, const std::vector<std::string>& arguments,
                       const std::string& log);
  Process(Process&&) = default;
  Process& operator=(Process&&) = delete;
  ~Process();

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }
  /// Readable once the process has ended.
  int pidfd() const { return pidfd_.get(); }
  /// Waits until it has ended, at most `timeout_ms`; false if it has not.
  bool wait(int timeout_ms);
  /// SIGTERM, and SIGKILL if it has not ended `grace_ms` later (0: SIGKILL at once).
  void stop(int grace_ms);
  bool failed() const { return wait_status_ && *wait_status_ != 0; }
  /// E.g. "worker 2 (pid 123) was ended by signal 9 (Killed)".
  std::string describe() const;

 private:
  Process(std::string name, pid_t pid);
  std::string name_;
  pid_t pid_;
  Fd pidfd_;
  std::optional<int> wait_status_;
};

/// Blocks SIGINT, SIGTERM and SIGHUP for the life of the process and makes them readable, so that
/// they end it in order. Child processes made by Process have them unblocked again.
class TerminationSignals {
 public:
  TerminationSignals();
  int fd() const { return fd_.get(); }
  /// The signal that came, if any.
  std::optional<int> poll() const;

 private:
  Fd fd_;
};

/// A fresh folder, removed with all it holds.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The last `lines` lines of a text file, each indented; empty if there is none.
std::string last_lines(const std::string& path, size_t lines);

}  // namespace ina::demo
