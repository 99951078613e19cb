// One worker's membership in a job, or in a group of its ranks: a channel of a session
// (client/session.h). A context joins, drives the engine over a transport, waits, and turns
// failures into a status and a text.
//
// Threads. A thread that waits drives the engine itself, under mutex_. Other waiting threads sleep
// meanwhile (client/callers.h). The session's background thread hands over what the switch says. It also drives
// the engine when operations are under way and no thread waits, or when the switch calls because
// others have a question for this worker.
//
// When the control connection breaks, the context is away: no thread drives the engine, and callers
// wait. The background thread tries to re-join the job until it succeeds or the time for it has
// passed, and then its groups (rejoin.cc).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "client/callers.h"
#include "client/collective_call.h"
#include "client/completions.h"
#include "client/memory.h"
#include "client/result_buffers.h"
#include "client/session.h"
#include "client/settings.h"
#include "common/idle.h"
#include "control/appearance.h"
#include "control/socket.h"
#include "engine/counted_moves.h"
#include "engine/engine.h"
#include "engine/fused.h"
#include "engine/rank_order.h"
#include "engine/redistributions.h"
#include "engine/reproducible.h"
#include "engine/transport.h"
#include "transport/bulk_copy.h"
#include "transport/frame_transport.h"
#include "transport/url.h"

namespace ina::client {

class Context : public std::enable_shared_from_this<Context> {
 public:
  using PlanPointer = std::shared_ptr<const redistribution::Plan>;

  /// Joins the job and waits for all its workers, at most settings.timeout_ns.
  static Result<std::shared_ptr<Context>> join(const Settings& settings);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Settings& settings() const { return settings_; }

  /// `call`: of which it comes, but for all-reduce and barrier.
  Result<Operation*> start(OperationSpec spec, const CollectiveCall* call = nullptr,
                           const PlanPointer* plan = nullptr);
  /// A collective other than all-reduce and barrier (collective_calls.cc). Errors as check() has
  /// them leave everything as it was.
  Result<Operation*> start(CollectiveCall& call);
  /// Carries a plan out in `buffer`, of `bytes` bytes (redistribution_calls.cc). Errors likewise.
  Result<Operation*> start(const PlanPointer& plan, void* buffer, size_t bytes,
                           std::string_view function);
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
  /// Nothing happens on this context any more, whatever is under way; that of ina_init ends its
  /// groups with it. Before the last reference goes.
  void close();

  /// Collective: the group of those that gave the same colour, in the order of `key` and then of
  /// ranks. nullptr: this worker gave a negative one, and is in none. In groups.cc.
  Result<std::shared_ptr<Context>> split(int32_t colour, int32_t key);

  /// Has the background thread look after what is under way.
  void kick() { session_->kick(); }
  void kick_if_running();

  // Of operations that are part of a Schedule over several contexts (hierarchy.h).
  /// Submits one that waits for let_go(), as does what is started after it. `spec.listener` is
  /// called under this context's lock.
  Operation* submit_held(const OperationSpec& spec, Nanos now);
  void let_go(Operation* operation, const std::byte* send, std::byte* recv, uint64_t elements,
              std::shared_ptr<const scheduler::BlockTable> blocks);
  void forget(Operation* operation);
  /// While somebody else drives, by drive_briefly(), the background thread does not.
  void add_driver() { other_drivers_.fetch_add(1); }
  void remove_driver() { other_drivers_.fetch_sub(1); }
  /// Has the background thread look at its followers, if it drives. From a listener, too.
  bool unattended() const { return completions_.unattended(); }
  void interrupt_background() { completions_.set_due(); }
  /// Ends the job, or group, for all its workers. Nothing touches a caller's memory afterwards.
  /// `mismatch`: all ranks have found that they disagree.
  void give_up(int status, const std::string& text, bool mismatch = false);
  /// INA_ERR_UNSUPPORTED if a result buffer lies there.
  Result<void> refuse_result_buffers(const void* memory, uint64_t bytes, std::string_view what);
  uint32_t slot_bytes() const { return engine_->config().slot_bytes; }
  /// What is under way, and what the switch says of it.
  std::string explain_oldest();
  /// For measurements: carries packets instead of the transport, which it is given. While nothing
  /// is under way.
  void replace_transport(
      const std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)>& made);
  const std::shared_ptr<Session>& session() const { return session_; }

  // Completion that nobody waits for.
  /// Calls `call(argument, status)` on the background thread, without a lock, once the operation
  /// has ended; the operation is not the caller's any more. When the context ends before, it is
  /// called then, with INA_ERR_ABORTED.
  void call_back(Operation* operation, void (*call)(void* argument, int status), void* argument);
  /// An eventfd that can be read after operations have completed. It is the context's.
  Result<int> completion_fd() { return completions_.fd(); }

  // Fused groups (fused_calls.cc). Each has a number, from 1.
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
  std::string last_error() const { return callers_.last_error(); }
  int set_error(int status, std::string text) {
    return callers_.set_error(status, std::move(text));
  }
  /// True in a child of the process that joined.
  bool forked() const;

  // For the session, on its background thread.
  /// The id of its group; 0: of the job itself.
  uint32_t channel() const { return id_; }
  /// INA_OK, or the status of what ended it.
  int failed() const { return callers_.failed(); }
  std::string last_failure() const { return callers_.failure_text(); }
  /// Operations are under way, or packets wait, and no thread drives.
  bool needs_driver() const {
    return live_.load() && (running_.load() != 0 || called_.load()) && !driving_.load() &&
           other_drivers_.load() == 0 && !away_.load() && callers_.failed() == INA_OK;
  }
  /// False: left it to somebody who wants the engine.
  bool drive_in_background();
  /// The same without ever sleeping. True: something was done.
  bool drive_briefly();
  /// Transport::idle_poll_ns().
  Nanos idle_poll_ns() const { return live_.load() ? idle_poll_ns_ : 0; }
  void look_for_packets() { called_ = live_.load(); }
  void on_control(control::Heard& heard);
  void rest_for_background();
  /// Of operations that have ended.
  void run_callbacks();
  void wake_driver();
  void go_away();
  /// Of the job: tries until it runs again, or has failed, or the session ends.
  void rejoin();
  /// Of a group, whose job runs again: the switch's answers do the rest.
  void ask_to_rejoin();
  /// From any thread: it has failed.
  void end(int status, const std::string& text);

 private:
  Context(const Settings& settings, std::shared_ptr<Session> session, uint32_t id);

  static Result<std::shared_ptr<Context>> join_once(const Settings& settings, const Url& url,
                                                    Nanos deadline, bool& job_is_gone);
  Result<void> open(const Url& url, Nanos deadline);
  tl::unexpected<Error> switch_closed();
  void await_another_attempt(control::Appearance& appearance, Nanos& appeared_at, Nanos pause);
  Result<void> open_frames(const Url& url, Nanos deadline);
  void take_frames(std::unique_ptr<FrameTransport> frames);
  Result<void> set_up(const answer::Joined& joined, control::Heard& heard);
  EngineConfig engine_config(const answer::Joined& joined) const;
  std::string trouble_text(const std::string& said) const;
  Nanos absent_ns() const;
  std::string absent_hint(ina_status status) const;
  request::Member member() const;
  Result<control::Heard> ask_to_join(Nanos deadline);
  /// Makes the transport that `place`, of a `joined`, describes and tells the switch.
  Result<std::unique_ptr<Transport>> attach_shm(const answer::Place& place, control::Heard& joined);
  /// The same with frames_, which exists already.
  Result<void> attach_frames(const answer::Place& place);
  Result<void> await_ready(Nanos deadline);
  std::unique_lock<std::mutex> lock_engine();
  Operation* submit(const OperationSpec& spec, const CollectiveCall* call, const PlanPointer* plan,
                    Nanos now);
  Operation* submit_counted(const OperationSpec& spec, const CollectiveCall& call, Nanos now);
  Operation* submit_redistribution(const OperationSpec& spec, const PlanPointer& plan, Nanos now);
  const std::string& disagreement() const;
  void report_disagreement();
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
  void announce();
  void end_by_switch(Error error);
  void on_peer_left(const answer::PeerLeft& left);
  void end_without_peer();

  // In groups.cc.
  struct SplitAnswer {
    Error error{INA_OK, ""};
    uint32_t job_id = 0;  ///< of the group; 0: this worker is in none
    std::string name = "";
    uint32_t rank = 0;
    uint32_t world_size = 0;
    uint64_t losses = 0;  ///< Session::losses() when it came
  };
  Result<SplitAnswer> ask_to_split(int32_t colour, int32_t key);
  void on_split(const answer::Split& split);
  void split_again(uint64_t furthest);
  Result<void> join_group(FrameTransport* frames, uint64_t losses, Nanos deadline);
  void on_joined(const answer::Joined& joined, control::Heard& heard);
  void on_ready(const answer::Ready& ready);

  template <class Come>
  bool await(Come come);

  // In context_memory.cc.
  Result<void*> adopt(RegisteredMemory memory);
  void on_registered(const answer::Registered& registered);
  void register_again(Transport& transport);
  void on_results(const answer::Results& results, control::Heard& heard);
  void share_again(uint64_t furthest);

  enum class Attempt { kBack, kAgain, kOver };
  request::Rejoin rejoin_message() const;
  Attempt try_rejoin(Nanos deadline, std::string& why);
  Attempt on_rejoin_answer(control::Heard& heard, std::string& why);
  std::string changed_text(const answer::Joined& joined) const;
  Result<std::unique_ptr<Transport>> attach_again(const answer::Place& place,
                                                  control::Heard& joined);
  Attempt await_ready_again(std::string& why, answer::Ready& ready);
  void come_back(const EngineConfig& told, std::unique_ptr<Transport> transport,
                 const answer::Ready& ready);
  void await_return(Nanos deadline);
  Result<std::optional<control::Heard>> next_message(Nanos deadline);
  bool going_on() const { return !session_->stopping() && callers_.failed() == INA_OK; }
  std::string away_text() const;

  bool send_control(const request::Message& message, const std::vector<int>& descriptors = {});
  void send_leave();
  std::string leave_with_job();
  std::string running_text() const;
  Waited timed_out(Operation* operation, Nanos waited_ns, bool give_up);
  std::string describe(const Operation& operation) const;
  std::string explain();

  const Settings settings_;
  const uint32_t fork_generation_;
  const std::shared_ptr<Session> session_;
  const uint32_t id_;                 ///< of its group; 0: of the job itself
  FrameTransport* frames_ = nullptr;  ///< transport_, if that carries frames
  uint32_t job_id_ = 0;
  uint64_t job_key_ = 0;
  BulkCopier copier_;
  IdleStrategy idle_;  ///< of whoever waits; under mutex_

  std::unique_ptr<Transport> transport_;            ///< replaced under mutex_ and transport_mutex_
  Nanos idle_poll_ns_ = 0;                          ///< of transport_
  std::unique_ptr<Engine> engine_;                  ///< under mutex_
  std::optional<EngineChannel> channel_;            ///< under mutex_; once it is needed
  std::optional<Executor> executor_;                ///< likewise
  std::optional<Reproducible> reproducible_;        ///< likewise
  std::optional<RankOrder> rank_order_;             ///< likewise
  std::optional<CountedMoves> counted_;             ///< likewise
  std::optional<Redistributions> redistributions_;  ///< likewise
  CallTables call_tables_;
  std::vector<RegisteredMemory> registered_;  ///< under mutex_
  ResultBuffers result_buffers_;              ///< under mutex_
  std::optional<Fused> fused_;                ///< under mutex_; once it is needed
  uint32_t groups_ = 0;                       ///< under mutex_: fused groups opened so far
  TransportCounters lost_counters_;           ///< under mutex_: of transports that were replaced
  Standing standing_;                         ///< background thread: when the switch went

  /// Background thread: what a group goes on with once it is `ready` again.
  struct Return {
    EngineConfig told;
    std::unique_ptr<Transport> transport;
  };
  std::optional<Return> return_;

  std::mutex splitting_mutex_;  ///< taken first: one split at a time
  std::mutex sharing_mutex_;    ///< taken first: one request about memory at a time
  std::mutex mutex_;
  std::mutex transport_mutex_;      ///< taken last
  bool closed_ = false;             ///< under mutex_
  std::atomic<bool> live_{false};   ///< all its workers have joined
  std::atomic<int> contenders_{0};  ///< threads that want mutex_ from a driver
  std::atomic<bool> driving_{false};
  std::atomic<int> other_drivers_{0};  ///< by drive_briefly()
  std::atomic<size_t> running_{0};
  std::atomic<bool> has_collected_{false};  ///< written under mutex_
  std::atomic<uint32_t> open_group_{0};     ///< written under mutex_
  std::atomic<bool> called_{false};         ///< something may have come while nothing was under way
  bool all_sent_ = true;                    ///< by the last progress(); under mutex_
  std::optional<answer::PeerLeft> peer_left_;  ///< that called the fewest operations; under mutex_
  bool mismatch_reported_ = false;          ///< to this switch; under mutex_

  Callers callers_;
  // Under the lock of callers_, as far as it says nothing else.
  std::string explanation_;
  std::string dropped_text_;  ///< the last that the switch said of frames that it dropped
  bool left_ = false;
  bool giving_up_ = false;
  std::optional<uint32_t> registering_;  ///< number of the memory that waits for an answer
  std::optional<Error> registered_answer_;
  std::optional<size_t> sharing_bytes_;  ///< of the result buffer that waits for an answer
  std::optional<SharedAnswer> shared_answer_;
  uint64_t buffers_shared_ = 0;              ///< requests for result buffers that were answered
  std::optional<request::Split> splitting_;  ///< what was asked for, until it is answered
  bool split_sent_ = false;                  ///< on this connection
  std::optional<SplitAnswer> split_answer_;
  uint32_t splits_ = 0;         ///< that were answered
  Nanos away_since_ = 0;        ///< written by the background thread
  std::string others_missing_;  ///< ranks for which the restarted switch waits

  Completions completions_;

  std::atomic<bool> away_{false};  ///< written by the background thread under mutex_
  std::atomic<bool> leaving_{false};
  std::atomic<bool> leave_ever_sent_{false};
  /// What the switch did last leaves no doubt that it does not know the job.
  std::atomic<bool> job_is_gone_{false};
  std::atomic<uint64_t> overflows_cleared_{0};
};

/// Waits for what the background thread brings, at most the default time. `come` is called under
/// the lock of callers_. False: it did not come.
template <class Come>
bool Context::await(Come come) {
  auto state = callers_.lock();
  return callers_.await(state, settings_.timeout_ns, come);
}

}  // namespace ina::client
