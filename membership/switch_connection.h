// The control connection of a job and its groups to their switch. One thread opens, reads and
// closes it, through restarts of the switch, and all may send.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/client.h"
#include "membership/settings.h"
#include "transport/url.h"

namespace ina::membership {

namespace request = control::request;
namespace answer = control::answer;

class SwitchConnection {
 public:
  /// `unsent`: a message was sent in part only, and the thread that reads is to send the rest. From
  /// any thread.
  explicit SwitchConnection(std::function<void()> unsent) : unsent_(std::move(unsent)) {}
  SwitchConnection(const SwitchConnection&) = delete;
  SwitchConnection& operator=(const SwitchConnection&) = delete;

  /// Finds out where the switch is. Connects to nothing. `url`: that of the settings.
  Result<void> resolve(const client::Url& url, const Settings& settings);
  /// Where it is: a path, "tcp:HOST:PORT" or "tls:HOST:PORT".
  const std::string& path() const { return path_; }
  /// A forked child is to close the connection: from now on forks wait for open().
  void let_forks_wait() { forks_wait_ = true; }

  // For the thread that reads.
  Result<void> open(Nanos timeout_ns, Nanos absent_ns);
  const control::Connection& control() const { return control_; }
  void close();
  /// In a forked child.
  void close_in_child() { control_.close(); }

  // From any thread.
  /// `channel`: of a group, or 0.
  bool send(uint32_t channel, const request::Message& message,
            const std::vector<int>& descriptors = {});
  /// Once on each connection.
  bool send_leave(uint32_t channel, const request::Leave& leave);

 private:
  const std::function<void()> unsent_;
  std::string path_;
  control::Trust trust_;  ///< of the switch at path_
  std::atomic<bool> forks_wait_{false};

  /// Replaced by the thread that reads alone: it reads without mutex_, others with.
  control::Connection control_;
  std::mutex mutex_;                ///< taken last
  std::set<uint32_t> leaves_sent_;  ///< under mutex_: channels, on this connection
};

}  // namespace ina::membership
