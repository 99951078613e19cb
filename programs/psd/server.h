// A fallback server's connection to its switch: it learns of jobs and serves each.
#pragma once

#include <poll.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/cpus.h"
#include "common/fd.h"
#include "programs/psd/owner_threads.h"

namespace ina::psd {

struct ServerConfig {
  std::string socket;
  std::string url{};  ///< of an Ethernet port of the switch; empty: the shm port
  control::Trust trust{};
  IdleMode idle = IdleMode::kAuto;
};

class Server {
 public:
  explicit Server(ServerConfig config);

  /// Serves until stop(), through restarts of the switch. Error: the switch wants no fallback
  /// server, or not this one.
  Result<void> run();
  /// From any thread or signal handler.
  void stop();

 private:
  static constexpr Nanos kFirstPauseNs = 20'000'000;
  /// One that the switch has offered.
  struct Job {
    std::string name;
    std::string source;                   ///< its owner, also of its lines in the log
    std::unique_ptr<ServedJob> served{};  ///< none: the job is still to be joined, at `due`
    Nanos due = 0;
    Nanos pause_ns = kFirstPauseNs;  ///< before another try
    std::string last_text;           ///< of what went wrong
  };
  using Jobs = std::map<uint32_t, Job>;  ///< by identifier

  Result<void> find_way();
  Result<void> serve();
  Result<void> on_message(const answer::Message& message);
  std::vector<pollfd> wait();
  void look_after_jobs(std::span<const pollfd> events);
  Jobs::iterator next_to_join();
  Result<void> join_next();
  Result<std::unique_ptr<ServedJob>> join(Jobs::value_type& job);
  std::shared_ptr<OwnerThreads> threads_of(const std::string& owner);
  void put_off(Jobs::value_type& job, const std::string& text);
  bool look_after(Jobs::value_type& job);
  int wait_ms() const;
  bool stopped(int timeout_ms) const;

  ServerConfig config_;
  Way way_;
  Fd stop_event_;
  control::Connection control_;
  const size_t cores_ = cpus_of_process().size();
  std::map<std::string, std::weak_ptr<OwnerThreads>> threads_;  ///< by owner
  Jobs jobs_;
  std::string last_joined_;  ///< whose job that was
};

}  // namespace ina::psd
