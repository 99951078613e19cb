// One worker's membership in a job, or in a group of its ranks: a channel of a session
// (client/session.h). Both the C interface and the session's background thread call it. A context
// turns results and errors into a status and a text; its parts do the work:
//
//   Link, Operations         the engine with its transport, and the paths that operations take
//   Progress, Callers        the driving thread, sleeping ones, and how all hear of the end
//   DirectMemory             memory that the switch reads or writes where it lies
//   Splits, MemberGroups     requests for groups
//   PeerErrors, Explanations errors of the ranks together, and texts about waits and ends
//   Farewell                 how it is left
//   Attachment, ChannelMember how it gets its place at the switch, and comes back to it
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "client/channel_member.h"
#include "client/collective_call.h"
#include "client/direct_memory.h"
#include "client/explanations.h"
#include "client/farewell.h"
#include "client/link.h"
#include "client/operations.h"
#include "client/peer_errors.h"
#include "client/progress.h"
#include "client/session.h"
#include "client/settings.h"
#include "client/writable_memory.h"
#include "fragments/engine.h"
#include "membership/attachment.h"
#include "membership/callers.h"
#include "membership/member_groups.h"
#include "membership/splits.h"
#include "transport/url.h"

namespace ina::client {

/// How a wait for an operation ended.
struct WaitEnd {
  int status;
  bool released;  ///< the operation is no longer the caller's
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  /// Joins the job and waits for all its workers, at most settings.timeout_ns.
  static Result<std::shared_ptr<Context>> join(const Settings& settings);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Settings& settings() const { return settings_; }

  Result<Operation*> start(OperationSpec spec, const OperationSource& source = {});
  /// A collective other than all-reduce and barrier. Errors as check() has them leave everything as
  /// it was.
  Result<Operation*> start(CollectiveCall& call);
  /// Carries a plan out in `buffer`, of `bytes` bytes. Errors likewise.
  Result<Operation*> start(const PlanPointer& plan, void* buffer, size_t bytes,
                           std::string_view function);
  /// Waits; timeout_ns 0: the default. When the time has passed, the operation goes on, or, with
  /// `give_up`, the job is ended for all its workers.
  WaitEnd wait(Operation* operation, Nanos timeout_ns, bool give_up);
  /// INA_OK or an error (released), or INA_IN_PROGRESS.
  int test(Operation* operation);
  /// Waits for what is under way, says goodbye, and waits until all have, all of it within the
  /// time. The context is of no use afterwards.
  int leave(Nanos timeout_ns);
  /// Stops all work on this context, also operations under way; the context of ina_init ends its
  /// groups with it. To be called before the last reference goes.
  void close();

  /// Collective: the group of the workers that gave the same colour, in the order of `key` and then
  /// of ranks. nullptr: this worker gave a negative one, and is in none. In groups.cc.
  Result<std::shared_ptr<Context>> split(int32_t colour, int32_t key);
  /// The group of `ranks`, in this order, which all of them ask for, with the same `tag`, and no
  /// others. In groups.cc.
  Result<std::shared_ptr<Context>> create_group(const std::vector<uint32_t>& ranks, uint64_t tag);

  /// Has the background thread look after operations under way.
  void kick() { session_->kick(); }
  void kick_if_running() { progress_.kick_if_running(); }

  // Operations that are part of a Schedule over several contexts (hierarchy.h).
  /// Submits one that waits for let_go(), as do later operations. `spec.listener` is called under
  /// this context's lock.
  Operation* submit_held(const OperationSpec& spec, Nanos now);
  void let_go(Operation* operation, const std::byte* send, std::byte* recv, uint64_t elements,
              std::shared_ptr<const scheduler::BlockTable> blocks);
  void forget(Operation* operation);
  /// While another thread drives, by drive_briefly(), the background thread does not.
  void add_driver() { progress_.add_driver(); }
  void remove_driver() { progress_.remove_driver(); }
  bool unattended() const { return progress_.completions().unattended(); }
  /// Has the background thread look at its followers, if it drives. From a listener, too.
  void interrupt_background() { progress_.completions().set_due(); }
  /// Ends the job, or group, for all its workers. Nothing touches a caller's memory afterwards.
  /// `mismatch`: all ranks have found that they disagree.
  void give_up(int status, const std::string& text, bool mismatch = false);
  uint32_t slot_bytes() const { return link_.engine().config().slot_bytes; }
  /// The operation under way, and the switch's explanation of its wait.
  std::string explain_oldest();
  /// For measurements: carries packets instead of the transport, which it is given. While nothing
  /// is under way.
  void replace_transport(const Link::Made& made);
  const std::shared_ptr<Session>& session() const { return session_; }

  // Completion that nobody waits for.
  /// Calls `call(argument, status)` on the background thread, without a lock, once the operation
  /// has ended; the operation is not the caller's any more. When the context ends before, it is
  /// called then, with INA_ERR_ABORTED.
  void call_back(Operation* operation, void (*call)(void* argument, int status), void* argument);
  /// An eventfd that can be read after operations have completed. It is the context's.
  Result<int> completion_fd() { return progress_.completions().fd(); }

  // Fused groups. Each has a number, from 1.
  int start_group();
  int end_group();
  /// 0: none.
  uint32_t open_group() const { return operations_.open_group(); }
  /// INA_ERR_INVALID, with a text, while a group is open.
  int refuse_in_group(std::string_view function);
  /// INA_ERR_INVALID, with a text, while `group` is open.
  int refuse_in_group(std::string_view function, uint32_t group);

  /// Its memory that the switch reads or writes where it lies.
  DirectMemory& memory() { return memory_; }
  /// INA_ERR_INVALID: `memory`, the `argument` of `function`, cannot be written to.
  Result<void> check_writable(std::span<const std::byte> memory, std::string_view function,
                              std::string_view argument);

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
  /// INA_OK, or the status of the error that ended the job.
  int failed() const { return callers_.failed(); }
  std::string last_failure() const { return callers_.failure_text(); }
  bool needs_driver() const { return progress_.needs_driver(); }
  bool drive_in_background() { return progress_.drive_in_background(); }
  /// Drives without ever sleeping. True: something was done. From any thread.
  bool drive_briefly() { return progress_.drive_briefly(); }
  /// Transport::idle_poll_ns().
  Nanos idle_poll_ns() const { return progress_.is_live() ? link_.idle_poll_ns() : 0; }
  void look_for_packets() { progress_.look_for_packets(); }
  void on_control(control::Heard& heard);
  void rest_for_background();
  /// Calls back for operations that have ended.
  void run_callbacks() { progress_.run_callbacks(); }
  void go_away() { member_.go_away(); }
  /// Tries until the job runs again, or has failed, or the session ends.
  void rejoin() { member_.rejoin(); }
  /// Asks to come back as a group whose job runs again: the switch's answers do the rest.
  void ask_to_rejoin() { member_.ask_to_rejoin(); }
  /// From any thread: it has failed.
  void end(int status, const std::string& text) { progress_.end(status, text); }

 private:
  Context(const Settings& settings, std::shared_ptr<Session> session, uint32_t id);

  static Result<std::shared_ptr<Context>> join_once(const Settings& settings, const Url& url,
                                                    Nanos deadline, bool& job_is_gone);
  /// Starts what is collected if this is among it: somebody asks for its result.
  void start_collected(const Operation& operation);
  WaitEnd timed_out(Operation* operation, Nanos waited_ns, bool give_up);

  bool send_control(const request::Message& message);
  std::string explain() { return explanations_.explain(); }

  // Groups (groups.cc).
  Result<membership::GroupOffer> ask_to_split(int32_t colour, int32_t key);
  Result<std::shared_ptr<Context>> enter_group(const membership::GroupOffer& offer, Nanos deadline);
  tl::unexpected<Error> give_up_waiting(const char* function);
  Result<void> join_group(const membership::Attachment& parent, uint64_t losses, Nanos deadline);

  const Settings settings_;
  const uint32_t fork_generation_;
  const std::shared_ptr<Session> session_;
  const uint32_t id_;  ///< of its group; 0: of the job itself
  // Its parts, each of which uses those above it.
  Link link_;
  membership::Attachment attachment_;
  Operations operations_;
  membership::Callers callers_;
  Progress progress_;
  Explanations explanations_;
  DirectMemory memory_;
  WritableMemory writable_;
  membership::Splits splits_;
  membership::MemberGroups member_groups_;
  PeerErrors peer_errors_;
  Farewell farewell_;
  ChannelMember member_;
  CallTables call_tables_;

  std::atomic<uint64_t> overflows_cleared_{0};
};

}  // namespace ina::client
