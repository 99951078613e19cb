// The shared part of a process's contexts in one job and in its groups: the control connection, and
// the background thread that reads it and brings them back to a restarted switch.
//
// Each context is one channel: an engine, a transport and a state of its own (client/context.h). A
// message about a group carries the group's id as `channel`; one without it is about the job that
// the session joined. The background thread hands messages to their channels, drives channels that
// have operations and no thread that waits for them, and sleeps otherwise.
//
// Lifetime. Contexts own the session, and the session its channels while they are open. The context
// of ina_init ends the session: channels that are still open fail then.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "client/channels.h"
#include "client/settings.h"
#include "client/wakeups.h"
#include "common/idle.h"
#include "membership/forks.h"
#include "membership/switch_connection.h"

namespace ina::client {

namespace request = control::request;
namespace answer = control::answer;

class Session final : private membership::ForkAware {
 public:
  explicit Session(const Settings& settings);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Fails if this process had no descriptors for it.
  Result<void> check() const { return wakeups_.check(); }
  /// Starts the background thread, once `root` has joined its job.
  void start(std::shared_ptr<Context> root);
  /// Ends the background thread, and fails every channel but `root` with `status` and `text`.
  void stop(int status, const std::string& text);
  bool stopping() const { return stopping_.load(); }

  /// The joining thread reads it before start(), afterwards the background thread.
  membership::SwitchConnection& connection() { return connection_; }

  // Channels. From any thread.
  /// A group that the switch has offered. `losses`: losses() when it did. False: that switch is
  /// gone, and the one in its place knows nothing of the offer.
  bool add(std::shared_ptr<Context> channel, uint64_t losses);
  void remove(const Context& channel);
  /// All but the root, the oldest first.
  Channels::List groups() const { return channels_.groups(); }
  void add(std::shared_ptr<Follower> follower) { channels_.add(std::move(follower)); }
  void remove(const Follower& follower);

  // The background thread.
  /// Has it look after operations under way.
  void kick() { wakeups_.kick(); }
  Wakeups& wakeups() { return wakeups_; }
  /// The connection broke: every channel is away until the switch is back. On the background
  /// thread, or before there is one.
  void lose();
  /// How often lose() was called. On the background thread.
  uint64_t losses() const { return channels_.losses(); }

 private:
  void close_in_child() override;
  void background();
  void wait(const Channels::List& channels);
  bool drive(const Channels::List& channels);
  pollfd control_events() const;
  void read_control();
  void dispatch(control::Heard& heard);
  void rejoin();
  void end_all(int status, const std::string& text);

  const std::string url_;
  std::atomic<bool> stopping_{false};
  Wakeups wakeups_;
  membership::SwitchConnection connection_;
  Channels channels_;
  // The background thread's own.
  IdleStrategy idle_;
  bool lost_ = false;
  std::thread background_;
};

}  // namespace ina::client
