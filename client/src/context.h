// One worker's membership in a job: joins over the control socket, drives the engine over a
// transport, waits, and turns what goes wrong into a status and a text.
//
// Threads. Whoever waits drives the engine itself, under mutex_; others that wait meanwhile sleep
// on cv_. One background thread reads the control socket and drives the engine when operations are
// under way and nobody waits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "client/src/bulk_copy.h"
#include "client/src/engine.h"
#include "client/src/frame_transport.h"
#include "client/src/reproducible_engine.h"
#include "client/src/settings.h"
#include "client/src/transport.h"
#include "client/src/url.h"
#include "control/socket.h"

namespace ina::client {

class Context {
 public:
  /// Joins the job and waits for all its workers, at most settings.timeout_ns.
  static Result<std::unique_ptr<Context>> join(const Settings& settings);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Settings& settings() const { return settings_; }

  Result<Operation*> start(const OperationSpec& spec);
  struct Waited {
    int status;
    bool released;  ///< the operation is no longer the caller's
  };
  /// Waits; timeout_ns 0: the default. When the time has passed, the operation goes on, or, with
  /// `give_up`, the job is ended for all its workers.
  Waited wait(Operation* operation, Nanos timeout_ns, bool give_up);
  /// INA_OK or an error (released), or INA_IN_PROGRESS.
  int test(Operation* operation);
  /// Says goodbye and waits until all have. The context is of no use afterwards.
  int leave(Nanos timeout_ns);

  /// Has the background thread look after what is under way.
  void kick();

  void stats(ina_stats& stats);
  bool overflowed(bool clear);
  std::string last_error() const;
  int set_error(int status, std::string text);
  /// True in a child of the process that joined.
  bool forked() const;

  /// In a forked child: lets go of descriptors that would keep the parent looking alive.
  void close_after_fork();

 private:
  explicit Context(const Settings& settings);

  Result<void> open(const Url& url, Nanos deadline);
  Result<void> attach_shm(control::Received& joined);
  Result<void> attach_frames(std::unique_ptr<FrameTransport> frames, const control::Json& joined);
  Result<void> await_ready(Nanos deadline);
  std::unique_lock<std::mutex> lock_engine();
  Operation* submit(const OperationSpec& spec, Nanos now);
  void release(Operation* operation);
  uint64_t overflows() const;
  bool progress();
  void drive(const Operation& operation, Nanos deadline);
  void background();
  void drive_in_background();
  void read_control();

  void end(int status, const std::string& text);
  int failure();
  Waited timed_out(Operation* operation, Nanos waited_ns, bool give_up);
  std::string describe(const Operation& operation) const;
  std::string explain();

  const Settings settings_;
  const uint32_t fork_generation_;
  control::Connection control_;
  BulkCopier copier_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Engine> engine_;                  ///< under mutex_
  std::optional<ReproducibleEngine> reproducible_;  ///< under mutex_; once it is needed

  std::mutex mutex_;
  std::atomic<int> contenders_{0};  ///< threads that want mutex_ from a driver
  std::atomic<bool> driving_{false};
  std::atomic<int> sleepers_{0};  ///< threads that sleep on cv_
  std::atomic<size_t> running_{0};

  mutable std::mutex state_mutex_;  ///< what follows, and cv_
  std::condition_variable cv_;
  std::string last_error_;
  std::string explanation_;
  std::string failure_text_;
  bool left_ = false;
  bool giving_up_ = false;

  std::atomic<int> failed_{INA_OK};  ///< status of what ended the job
  std::atomic<uint64_t> overflows_cleared_{0};
  Fd kick_event_;
  std::atomic<bool> kicked_{false};
  std::atomic<bool> stopping_{false};
  std::thread background_;
};

}  // namespace ina::client
