// ina-perf: times and checks collectives. Starts its ranks itself (--ranks), or is started once a
// rank by mpirun, torchrun or Slurm.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "bench/perf/options.h"
#include "bench/perf/rank.h"

namespace ina::perf {
namespace {

/// How long ranks may take to notice by themselves that another one failed.
constexpr int kGraceMs = 1000;

struct Child {
  pid_t pid = -1;
  bool running = false;
  bool ended_by_us = false;
  int status = 0;  ///< of waitpid
};

/// The child's whole life; does not return.
[[noreturn]] void be_rank(const Options& options, int rank, SharedArea& area, pid_t parent) {
  // A rank without its parent would wait for peers that nobody ends.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitError);
  ExitCode code = kExitError;
  try {
    code = run_rank(options, rank, &area);
  } catch (const std::exception& error) {
    std::snprintf(area.ranks[rank].error, sizeof area.ranks[rank].error, "%s", error.what());
  }
  std::fflush(stdout);
  std::fflush(stderr);
  _exit(code);
}

class Launcher {
 public:
  Launcher(const Options& options, SharedArea& area)
      : options_(options), area_(area), children_(static_cast<size_t>(options.ranks)) {
    sigemptyset(&signals_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) sigaddset(&signals_, signal);
  }

  int run() {
    sigset_t before;
    sigprocmask(SIG_BLOCK, &signals_, &before);
    const pid_t self = getpid();
    for (int rank = 0; rank < options_.ranks; ++rank) {
      std::fflush(stdout);
      const pid_t pid = fork();
      if (pid == 0) {
        sigprocmask(SIG_SETMASK, &before, nullptr);
        be_rank(options_, rank, area_, self);
      }
      if (pid < 0) {
        fmt::print(stderr, "ina-perf: rank {} cannot be started: {}\n", rank, strerror(errno));
        end_all();
        return kExitError;
      }
      children_[static_cast<size_t>(rank)] = {.pid = pid, .running = true};
    }
    supervise();
    return report();
  }

 private:
  void supervise() {
    // No operation may take longer than its timeout, even if the library hangs.
    const int64_t stall_limit_s = options_.timeout_us / 1'000'000 * 2 + 20;
    uint64_t last_progress = 0;
    int64_t stalled_s = 0;
    while (any_running()) {
      const int signal = wait_for_signal(1000);
      if (signal == SIGINT || signal == SIGTERM) {
        interrupted_ = true;
        return end_all();
      }
      reap();
      if (any_failed()) {
        for (int waited_ms = 0; any_running() && waited_ms < kGraceMs; waited_ms += 50) {
          wait_for_signal(50);
          reap();
        }
        return end_all();
      }
      const uint64_t progress = total_progress();
      stalled_s = progress != last_progress || signal > 0 ? 0 : stalled_s + 1;
      last_progress = progress;
      if (stalled_s > stall_limit_s) {
        stalled_ = true;
        return end_all();
      }
    }
  }

  int wait_for_signal(int timeout_ms) {
    const timespec timeout{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
    return sigtimedwait(&signals_, nullptr, &timeout);
  }

  void reap() {
    for (Child& child : children_)
      if (child.running && waitpid(child.pid, &child.status, WNOHANG) == child.pid)
        child.running = false;
  }

  void end_all() {
    for (Child& child : children_) {
      if (!child.running) continue;
      child.ended_by_us = true;
      kill(child.pid, SIGKILL);
      waitpid(child.pid, &child.status, 0);
      child.running = false;
    }
  }

  static bool failed(const Child& child) {
    return !WIFEXITED(child.status) || WEXITSTATUS(child.status) > kExitIncorrect;
  }

  bool any_running() const {
    for (const Child& child : children_)
      if (child.running) return true;
    return false;
  }

  bool any_failed() const {
    for (const Child& child : children_)
      if (!child.running && failed(child)) return true;
    return false;
  }

  uint64_t total_progress() const {
    uint64_t total = 0;
    for (int rank = 0; rank < options_.ranks; ++rank)
      total += area_.ranks[rank].progress.load(std::memory_order_relaxed);
    return total;
  }

  /// Says what failed; returns the exit code.
  int report() {
    if (interrupted_) fmt::print(stderr, "ina-perf: interrupted\n");
    if (stalled_) fmt::print(stderr, "ina-perf: no rank has made progress; ended them all\n");
    int code = interrupted_ || stalled_ ? kExitError : kExitOk;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const Child& child = children_[static_cast<size_t>(rank)];
      if (child.ended_by_us) {
        if (!interrupted_)
          fmt::print(stderr, "ina-perf: rank {} was still running; ended it\n", rank);
        code = kExitError;
      } else if (WIFSIGNALED(child.status)) {
        fmt::print(stderr, "ina-perf: rank {} was ended by signal {} ({})\n", rank,
                   WTERMSIG(child.status), strsignal(WTERMSIG(child.status)));
        code = kExitError;
      } else if (failed(child)) {
        const char* text = area_.ranks[rank].error;
        fmt::print(stderr, "ina-perf: rank {}: {}\n", rank,
                   *text ? text : fmt::format("exit code {}", WEXITSTATUS(child.status)));
        code = kExitError;
      } else {
        code = std::max(code, WEXITSTATUS(child.status));
      }
    }
    return code;
  }

  const Options& options_;
  SharedArea& area_;
  std::vector<Child> children_;
  sigset_t signals_;
  bool interrupted_ = false;
  bool stalled_ = false;
};

int run_forked(Options& options) {
  const auto area = map_shared_area(options.ranks);
  if (!area) throw std::runtime_error("no memory for the ranks' shared area");
  if (options.job.empty()) options.job = fmt::format("ina-perf-{}", getpid());
  return Launcher(options, *area).run();
}

}  // namespace
}  // namespace ina::perf

int main(int argc, char** argv) {
  using namespace ina::perf;
  try {
    Options options;
    if (const auto code = parse_options(argc, argv, options)) return *code;
    return options.ranks > 0 ? run_forked(options) : run_rank(options, 0, nullptr);
  } catch (const std::exception& error) {
    fmt::print(stderr, "ina-perf: {}\n", error.what());
    return kExitError;
  }
}
