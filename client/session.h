// The shared part of a process's contexts in one job and in its groups: the control connection, the
// background thread that reads it, and the return to a restarted switch.
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
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client/settings.h"
#include "common/idle.h"
#include "control/client.h"
#include "transport/frame_join.h"
#include "transport/url.h"

namespace ina::client {

namespace request = control::request;
namespace answer = control::answer;

class Context;
class Link;

/// Work after operations of a session's channels have ended, on its background thread.
class Follower {
 public:
  virtual ~Follower() = default;
  /// No lock is held. Often, and mostly for nothing.
  virtual void follow() = 0;
};

class Session {
 public:
  explicit Session(const Settings& settings);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Finds out where the switch is. Connects to nothing.
  Result<void> resolve(const Url& url);
  /// Starts the background thread, once `root` has joined its job.
  void start(std::shared_ptr<Context> root);
  /// Ends the background thread, and fails every channel but `root` with `status` and `text`.
  void stop(int status, const std::string& text);

  // Channels. From any thread.
  /// A group that the switch has offered. `losses`: losses() when it did. False: that switch is
  /// gone, and the one in its place knows nothing of the offer.
  bool add(std::shared_ptr<Context> channel, uint64_t losses);
  void remove(const Context& channel);
  /// All but the root, the oldest first.
  std::vector<std::shared_ptr<Context>> groups() const;
  void add(std::shared_ptr<Follower> follower);
  void remove(const Follower& follower);

  // The connection. From any thread, but for open() and control(): before start() the joining
  // thread calls these, afterwards the background thread.
  const std::string& path() const { return path_; }
  const FramePlace& frame_place() const { return frame_place_; }
  Result<void> open(Nanos timeout_ns, Nanos absent_ns);
  void close();
  const control::Connection& control() const { return control_; }
  /// `channel`: of a group, or 0.
  bool send(uint32_t channel, const request::Message& message,
            const std::vector<int>& descriptors = {});
  /// Once on each connection.
  bool send_leave(uint32_t channel, const request::Leave& leave);

  // The background thread.
  /// Has it look after operations under way.
  void kick();
  /// kick(), for operations that no caller waits for meanwhile.
  void kick_at_once();
  /// The link in whose transport it sleeps, while it does; nullptr: none.
  void sleeps_in(Link* link);
  void drain_kicks();
  int kick_fd() const { return kick_event_.get(); }
  bool stopping() const { return stopping_.load(); }
  /// The connection broke: every channel is away until the switch is back. On the background
  /// thread, or before there is one.
  void lose();
  /// How often lose() was called. On the background thread.
  uint64_t losses() const { return losses_; }
  /// Hands a message to its channel.
  void dispatch(control::Heard& heard);

  /// How often this process was forked: contexts of another generation are a parent's.
  static uint32_t fork_generation();

 private:
  friend struct ForkRegistry;
  const std::vector<std::shared_ptr<Context>>& channels();
  void background();
  void leave_to_callers();
  bool drive(const std::vector<std::shared_ptr<Context>>& channels);
  void read_control();
  void rejoin();
  void end_all(int status, const std::string& text);

  const Settings settings_;
  std::string path_;
  control::Trust trust_;    ///< of the switch at path_
  FramePlace frame_place_;  ///< for a transport that carries frames

  /// Replaced by the background thread alone: it reads without connection_mutex_, others with.
  control::Connection control_;
  std::mutex connection_mutex_;     ///< taken last
  std::set<uint32_t> leaves_sent_;  ///< under connection_mutex_: channels, on this connection

  mutable std::mutex channels_mutex_;               ///< taken last, too
  std::shared_ptr<Context> root_;                   ///< under channels_mutex_
  std::vector<std::shared_ptr<Context>> open_;      ///< under channels_mutex_: root_ and groups
  std::atomic<uint64_t> changes_{1};                ///< of open_ and followers_open_
  std::vector<std::shared_ptr<Context>> channels_;  ///< background thread: open_ as it knows it
  uint64_t changes_known_ = 0;                      ///< background thread
  std::vector<std::shared_ptr<Follower>> followers_open_;  ///< under channels_mutex_
  std::vector<std::shared_ptr<Follower>> followers_;       ///< background thread: as it knows them
  IdleStrategy idle_;                                      ///< background thread
  bool lost_ = false;                                      ///< background thread
  uint64_t losses_ = 0;  ///< written by the background thread, under channels_mutex_

  std::mutex asleep_mutex_;    ///< taken last
  Link* asleep_in_ = nullptr;  ///< under asleep_mutex_
  Fd kick_event_;
  std::atomic<bool> kicked_{false};
  Fd hurry_event_;  ///< ends leave_to_callers()
  std::atomic<bool> left_to_callers_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> started_{false};  ///< background_, which it may not look at itself
  std::thread background_;
};

}  // namespace ina::client
