// The choice between the thread that drives a channel's engine and the threads that sleep.
//
// There is one lock. The thread that holds it may turn the engine: receive a burst, and send one. A
// thread that waits for an operation takes the lock, and turns until its operation is done; then
// the next waiting thread does. Threads that find the lock taken sleep meanwhile
// (membership/callers.h). A thread that needs the lock for a short time, for example to start an
// operation, makes the driver give way.
//
// The session's background thread drives while operations are under way and no thread waits, or
// when the switch calls: others have a question for this worker. The background thread gives way to
// all other threads.
//
// Nobody drives while the switch is away, or once the channel is closed; the background thread does
// not before the channel is live, either.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "client/completions.h"
#include "client/link.h"
#include "client/operations.h"
#include "client/session.h"
#include "common/idle.h"
#include "membership/callers.h"
#include "membership/presence.h"

namespace ina::client {

class Progress {
 public:
  /// Called under the lock after each turn, before any caller hears of completions. May end().
  using AfterTurn = std::function<void()>;
  enum class Waited { kDone, kFailed, kTimedOut };

  /// All must outlive it.
  Progress(IdleMode idle_mode, Session& session, Link& link, Operations& operations,
           membership::Callers& callers, AfterTurn after_turn);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// The lock. Taken before that of `callers`. The driving thread gives way.
  std::unique_lock<std::mutex> lock();

  // Under the lock.
  /// Sends what was submitted as far as it goes at once.
  void send();
  /// Takes in what the switch delivered before it went.
  void receive_rest();
  /// Operations were submitted, or have completed: the background thread counts on this number.
  void count();
  /// By the thread that stops driving. When nothing is under way, the switch is to call if
  /// something comes for this worker after all: a question by others, or parts of their sums.
  void rest();
  /// No thread needs to drive operations under way: they go on no more.
  void forget();
  /// forget(), for ever.
  void close();

  // For callers, without the lock.
  /// Drives, or sleeps while others do, until the operation is done, the job has failed, or the
  /// time has come. In the first two cases the operation is released.
  Waited wait(Operation* operation, Nanos deadline);
  /// Drives, or sleeps while others do, until nothing is under way any more.
  Waited drain(Nanos deadline);
  /// One turn at most. Nothing: it is under way.
  std::optional<Waited> test(Operation* operation);
  /// Until the switch is back, the job has failed, or the time has come.
  void await_return(Nanos deadline);
  /// While another thread drives, by drive_briefly(), the background thread does not.
  void add_driver() { other_drivers_.fetch_add(1); }
  void remove_driver() { other_drivers_.fetch_sub(1); }
  /// Has the background thread look after operations under way.
  void kick_if_running();

  // On the background thread.
  /// Operations are under way, or packets wait, and no thread drives.
  bool needs_driver() const;
  /// False: left the engine to a thread that wants it.
  bool drive_in_background();
  /// Drives without ever sleeping, from any thread. True: something was done.
  bool drive_briefly();
  /// All workers of the channel have joined.
  void go_live() { presence_.go_live(); }
  /// Something may have come while nothing was under way.
  void look_for_packets() { called_ = is_live(); }
  void call() { called_ = true; }
  /// Calls back for operations that have ended.
  void run_callbacks();
  /// And waits for those that another thread is calling.
  void run_all_callbacks();
  bool has_callbacks() const { return completions_.has_callbacks(); }

  // From any thread.
  /// The job has failed: all who drive or sleep hear of it. Only the first end counts.
  void end(int status, const std::string& text);
  bool is_live() const { return presence_.is_live(); }
  bool is_away() const { return presence_.is_away(); }
  /// Its switch goes and comes back under the lock of this, too.
  membership::Presence& presence() { return presence_; }
  const membership::Presence& presence() const { return presence_; }
  Completions& completions() { return completions_; }
  const Completions& completions() const { return completions_; }

 private:
  bool turn();
  template <class Done, class End>
  Waited wait_until(const Done& done, const End& end, Nanos deadline);
  template <class Done>
  void drive(const Done& done, Nanos deadline);
  bool is_background_free(bool called) const;
  void sleep_in_background(IdleStrategy& idle, Nanos now);
  void tell();
  void announce();

  const IdleMode idle_mode_;
  Session& session_;
  Link& link_;
  Operations& operations_;
  membership::Callers& callers_;
  const AfterTurn after_turn_;
  membership::Presence presence_;
  Completions completions_;

  std::mutex mutex_;
  IdleStrategy idle_;                  ///< of waiting threads; under mutex_
  bool closed_ = false;                ///< under mutex_
  std::atomic<int> contenders_{0};     ///< threads that want mutex_ from a driver
  std::atomic<bool> driving_{false};   ///< a thread that waits
  std::atomic<int> other_drivers_{0};  ///< by drive_briefly()
  std::atomic<size_t> running_{0};     ///< operations
  std::atomic<bool> called_{false};    ///< something may have come while nothing was under way
};

}  // namespace ina::client
