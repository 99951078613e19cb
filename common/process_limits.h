// Limits of the process (ulimit, or Limit...= of a unit of systemd) that a program cannot do with.
// They are told before it begins: libraries abort where they run out of descriptors or threads.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace ina {

/// What a program needs at least; 0: nothing of it.
struct LimitNeeds {
  uint64_t open_files = 0;
  uint64_t file_bytes = 0;  ///< of the largest file, also of one in memory
  uint64_t address_bytes = 0;
  uint64_t stack_bytes = 0;
  uint64_t locked_bytes = 0;
  size_t threads = 0;
};

/// The questions to the system.
struct LimitSource {
  /// Most that the process may have of a resource (RLIMIT_...): RLIM_INFINITY: as much as it wants.
  std::function<uint64_t(int)> most = [](int resource) -> uint64_t {
    rlimit limit{};
    return ::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) == 0 ? limit.rlim_max
                                                                                : RLIM_INFINITY;
  };
  /// How many of so many threads can be started now.
  std::function<size_t(size_t)> startable_threads = [](size_t wanted) {
    std::mutex mutex;
    std::condition_variable go;
    bool over = false;
    std::vector<std::thread> threads;
    try {
      while (threads.size() < wanted)
        threads.emplace_back([&] {
          std::unique_lock lock(mutex);
          go.wait(lock, [&] { return over; });
        });
    } catch (const std::system_error&) {  // the number of those that began says it
    }
    {
      const std::lock_guard lock(mutex);
      over = true;
    }
    go.notify_all();
    for (std::thread& thread : threads) thread.join();
    return threads.size();
  };
};

/// A sentence for each limit that is too low for `program`: what it is, what is needed, and what to
/// raise.
inline std::vector<std::string> low_limits(const std::string& program, const LimitNeeds& needs,
                                           const LimitSource& source = {}) {
  struct Limit {
    int resource;
    uint64_t need;
    const char* name;
    const char* unit;
    const char* raise;
  };
  const std::array limits = {
      Limit{RLIMIT_NOFILE, needs.open_files, "of open files", "", "ulimit -n, LimitNOFILE"},
      Limit{RLIMIT_FSIZE, needs.file_bytes, "of a file's size", " bytes", "ulimit -f, LimitFSIZE"},
      Limit{RLIMIT_AS, needs.address_bytes, "of addresses", " bytes", "ulimit -v, LimitAS"},
      Limit{RLIMIT_STACK, needs.stack_bytes, "of a stack", " bytes", "ulimit -s, LimitSTACK"},
      Limit{RLIMIT_MEMLOCK, needs.locked_bytes, "of locked memory", " bytes",
            "ulimit -l, LimitMEMLOCK"}};
  std::vector<std::string> problems;
  for (const Limit& limit : limits)
    if (const uint64_t most = source.most(limit.resource); most < limit.need)
      problems.push_back("the limit " + std::string(limit.name) + " is " + std::to_string(most) +
                         limit.unit + ", and " + program + " needs " + std::to_string(limit.need) +
                         ": raise it (" + limit.raise + ")");
  if (needs.threads == 0) return problems;
  if (const size_t threads = source.startable_threads(needs.threads); threads < needs.threads)
    problems.push_back("no more than " + std::to_string(threads) + " threads can be started, and " +
                       program + " needs " + std::to_string(needs.threads) +
                       ": raise the limit (ulimit -u, LimitNPROC, TasksMax)");
  return problems;
}

/// The sentences of low_limits() as one text; empty: no limit is too low.
inline std::string low_limits_text(const std::string& program, const LimitNeeds& needs) {
  std::string text;
  for (const std::string& problem : low_limits(program, needs))
    text += (text.empty() ? "" : "; ") + problem;
  return text;
}

/// To be called first: limits that the process may raise are raised, and a file that may not grow
/// is an error of the write (EFBIG), and not the end of the process.
inline void prepare_limits() {
  for (const auto resource : {RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_AS, RLIMIT_MEMLOCK}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == limit.rlim_max) continue;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(resource, &limit);
  }
  ::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace ina
