// One worker's membership in a job. A context joins over the control socket, drives the engine over
// a transport, waits, and turns failures into a status and a text.
//
// Threads. A thread that waits drives the engine itself, under mutex_. Other waiting threads sleep
// on cv_ meanwhile. One background thread reads the control socket. It also drives the engine when
// operations are under way and no thread waits, or when the switch calls because others have a
// question for this worker.
//
// When the control connection breaks, the context is away: no thread drives the engine, and callers
// wait. The background thread tries to re-join the job until it succeeds or the time for it has
// passed (rejoin.cc).
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "client/memory.h"
#include "client/settings.h"
#include "common/idle.h"
#include "control/socket.h"
#include "engine/engine.h"
#include "engine/fused.h"
#include "engine/reproducible.h"
#include "engine/transport.h"
#include "transport/bulk_copy.h"
#include "transport/frame_join.h"
#include "transport/url.h"

namespace ina::client {

class Context {
 public:
  /// Joins the job and waits for all its workers, at most settings.timeout_ns.
  static Result<std::unique_ptr<Context>> join(const Settings& settings);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Settings& settings() const { return settings_; }

  Result<Operation*> start(OperationSpec spec);
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
  void kick_if_running();

  // Groups (fused_calls.cc). Each has a number, from 1.
  int start_group();
  int end_group();
  /// 0: none.
  uint32_t open_group() const { return open_group_.load(); }
  /// INA_ERR_INVALID, with a text, while a group is open.
  int refuse_in_group(std::string_view function);
  /// The same while it is this one.
  int refuse_in_group(std::string_view function, uint32_t group);

  /// Memory that the switch reads where it lies.
  Result<void*> allocate(size_t bytes);
  Result<void*> register_memory(int memfd, void* data, size_t bytes);
  /// Collective: memory that the switch writes for all workers of the job.
  Result<void*> share_results(size_t bytes);
  Result<void> free_memory(void* data);

  /// Sets the priority of operations started afterwards.
  void set_hints(const scheduler::Hints& hints);
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
  std::string trouble_text(const std::string& said) const;
  Nanos absent_ns() const;
  std::string absent_hint(ina_status status) const;
  control::Json join_message(const char* type) const;
  Result<control::Received> ask_to_join(Nanos deadline);
  /// Makes the transport that `joined` describes and tells the switch.
  Result<std::unique_ptr<Transport>> attach_shm(control::Received& joined);
  /// The same with frames_, which exists already.
  Result<void> attach_frames(const control::Json& joined);
  Result<void> await_ready(Nanos deadline);
  std::unique_lock<std::mutex> lock_engine();
  void wake_driver();
  Operation* submit(const OperationSpec& spec, Nanos now);
  void release(Operation* operation);
  Executor& executor();
  Operation* collect(const OperationSpec& spec);
  /// Starts what is collected if this is among it: somebody asks for its result.
  void start_collected(const Operation& operation);
  void send_submitted();
  uint64_t overflows() const;
  bool progress();
  void report_mismatch(const aggregator::FallbackMismatch& mismatch);
  size_t receive(Nanos now);
  void drive(const Operation& operation, Nanos deadline);
  void rest();
  void background();
  bool drive_in_background();
  void read_control();
  void on_control(control::Received& received);
  void drain_kicks();
  void end_by_switch(const control::Json& message);

  // In memory.cc.
  template <class Come>
  bool await(Come come);
  Result<void*> adopt(RegisteredMemory memory);
  void on_registered(const control::Json& body);
  void register_again(Transport& transport);
  void on_results(control::Received& received);
  void leave_result_buffers();
  void share_again(uint64_t furthest);
  static Result<void> make_ordinary(SharedResults& results);
  Result<void> aim(OperationSpec& spec) const;

  enum class Attempt { kBack, kAgain, kOver };
  Result<void> connect();
  void disconnect();
  void go_away();
  void rejoin();
  Attempt try_rejoin(Nanos deadline, std::string& why);
  Attempt on_rejoin_answer(control::Received& answer, std::string& why);
  Attempt await_ready_again(std::string& why, uint64_t& buffers_shared);
  void come_back(uint32_t epoch, std::unique_ptr<Transport> transport);
  void await_return(Nanos deadline);
  Result<std::optional<control::Received>> next_message(Nanos deadline);
  bool going_on() const { return !stopping_.load() && failed_.load() == INA_OK; }
  std::string away_text() const;

  bool send_control(const control::Json& message, const std::vector<int>& descriptors = {});
  void send_leave();
  void end(int status, const std::string& text);
  int failure();
  Waited timed_out(Operation* operation, Nanos waited_ns, bool give_up);
  std::string describe(const Operation& operation) const;
  std::string explain();

  const Settings settings_;
  const uint32_t fork_generation_;
  std::string control_path_;
  control::TlsClient tls_;            ///< for a control_path_ that wants it
  FramePlace frame_place_;            ///< likewise
  FrameTransport* frames_ = nullptr;  ///< transport_, if that carries frames
  uint32_t job_id_ = 0;
  uint64_t job_key_ = 0;
  BulkCopier copier_;
  IdleStrategy idle_;  ///< of whoever waits; under mutex_

  /// Replaced by the background thread alone: it reads without connection_mutex_, others with.
  control::Connection control_;
  std::unique_ptr<Transport> transport_;      ///< replaced under mutex_ and connection_mutex_
  std::unique_ptr<Engine> engine_;            ///< under mutex_
  std::optional<EngineChannel> channel_;      ///< under mutex_; once it is needed
  std::optional<Executor> executor_;          ///< likewise
  std::optional<Reproducible> reproducible_;  ///< likewise
  std::vector<RegisteredMemory> registered_;  ///< under mutex_
  std::vector<SharedResults> shared_;         ///< under mutex_
  std::optional<Fused> fused_;                ///< under mutex_; once it is needed
  uint32_t groups_ = 0;                       ///< under mutex_: opened so far
  TransportCounters lost_counters_;           ///< under mutex_: of transports that were replaced
  Standing standing_;                         ///< background thread: when the switch went

  std::mutex sharing_mutex_;  ///< taken first: one request about memory at a time
  std::mutex mutex_;
  std::mutex connection_mutex_;     ///< taken last
  bool leave_sent_ = false;         ///< under connection_mutex_: on this connection
  std::atomic<int> contenders_{0};  ///< threads that want mutex_ from a driver
  std::atomic<bool> driving_{false};
  std::atomic<int> sleepers_{0};  ///< threads that sleep on cv_
  std::atomic<size_t> running_{0};
  std::atomic<bool> has_collected_{false};  ///< written under mutex_
  std::atomic<uint32_t> open_group_{0};     ///< written under mutex_
  std::atomic<bool> called_{false};         ///< something may have come while nothing was under way
  bool all_sent_ = true;                    ///< by the last progress(); under mutex_
  bool mismatch_reported_ = false;          ///< to this switch; under mutex_

  mutable std::mutex state_mutex_;  ///< what follows, and cv_
  std::condition_variable cv_;
  std::string last_error_;
  std::string explanation_;
  std::string dropped_text_;  ///< the last that the switch said of frames that it dropped
  std::string failure_text_;
  bool left_ = false;
  bool giving_up_ = false;
  std::optional<uint32_t> registering_;  ///< number of the memory that waits for an answer
  std::optional<Error> registered_answer_;
  std::optional<size_t> sharing_bytes_;  ///< of the result buffer that waits for an answer
  std::optional<SharedAnswer> shared_answer_;
  uint64_t buffers_shared_ = 0;  ///< requests for result buffers that were answered
  Nanos away_since_ = 0;         ///< written by the background thread
  std::string others_missing_;   ///< ranks for which the restarted switch waits

  std::atomic<bool> away_{false};  ///< written by the background thread under mutex_
  std::atomic<bool> leaving_{false};
  std::atomic<bool> leave_ever_sent_{false};
  std::atomic<int> failed_{INA_OK};  ///< status of what ended the job
  std::atomic<uint64_t> overflows_cleared_{0};
  Fd kick_event_;
  std::atomic<bool> kicked_{false};
  std::atomic<bool> stopping_{false};
  std::thread background_;
};

}  // namespace ina::client
