// The open channels of a session, the work that follows their operations, and how often they have
// lost their switch.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace ina::client {

class Context;

/// Work after operations of a session's channels have ended, on its background thread.
class Follower {
 public:
  virtual ~Follower() = default;
  /// No lock is held. Often, and mostly for nothing.
  virtual void follow() = 0;
};

class Channels {
 public:
  using List = std::vector<std::shared_ptr<Context>>;
  using Followers = std::vector<std::shared_ptr<Follower>>;

  /// `stopping`: nothing is added any more; it outlives this.
  explicit Channels(const std::atomic<bool>& stopping) : stopping_(stopping) {}

  // From any thread.
  enum class Added { kYes, kStopping, kSwitchGone };
  /// A group that the switch has offered. `losses`: losses() when it did.
  Added add(std::shared_ptr<Context> group, uint64_t losses);
  void remove(const Context& channel);
  /// All but the root, the oldest first.
  List groups() const;
  void add(std::shared_ptr<Follower> follower);
  void remove(const Follower& follower);

  // As the session starts and stops.
  void set_root(std::shared_ptr<Context> root);
  struct Left {
    List channels;
    Followers followers;
  };
  /// Those that are still open; then there are none.
  Left take_all();

  // On the background thread, or before there is one.
  /// The context of the job itself; nullptr: it has not joined yet.
  const std::shared_ptr<Context>& root() const { return root_; }
  const List& current();
  /// As they were when current() was called last.
  const Followers& followers() const { return followers_; }
  /// The connection broke.
  void count_loss();
  uint64_t losses() const { return losses_; }

 private:
  const std::atomic<bool>& stopping_;
  mutable std::mutex mutex_;          ///< taken last
  std::shared_ptr<Context> root_;     ///< written under mutex_
  List open_;                         ///< under mutex_: root_ and groups
  Followers followers_open_;          ///< under mutex_
  uint64_t losses_ = 0;               ///< written under mutex_
  std::atomic<uint64_t> changes_{1};  ///< of open_ and followers_open_
  // The background thread's own.
  List known_;           ///< open_ as it knows it
  Followers followers_;  ///< followers_open_ as it knows it
  uint64_t changes_known_ = 0;
};

}  // namespace ina::client
