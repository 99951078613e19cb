// Scripted traces: the switch, engine and fallback objects of the daemon and of libina, and a
// network that moves a message only when the script says so. A worker or a fallback sends its
// messages at once; they are then in flight, to be delivered, dropped, doubled or held back. Each
// worker has a clock of its own that stands still until the script lets a time-out pass.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "aggregator/serve.h"
#include "fragments/engine.h"
#include "io/port.h"
#include "wire/rules.h"

namespace ina::sim {

/// Where a message goes next, besides the ranks of the workers.
inline constexpr int kServer = 64;  ///< a dedicated fallback
inline constexpr int kSwitch = 100;
inline constexpr int kAny = -1;

/// Picks messages in flight.
struct Match {
  std::optional<wire::Type> type;
  int of = kAny;   ///< the worker whose contribution, question or answer it is
  int to = kAny;   ///< where it goes next
  int seq = kAny;  ///< the low 32 bits
  int job = 0;
  std::optional<bool> bare{};  ///< without a payload, where there could be one
};

struct ScriptJob {
  uint32_t workers = 2;
  uint32_t window = 4;
  uint8_t priority = 10;
  scheduler::Quota quota{};
  /// Straggler help: aggregator::JobSpec::park_after, and the fragments that workers keep. 0: none.
  uint32_t park_after = 0;
  uint32_t park_room = 0;
};

/// The sender and the receiver of a fragment of an operation: 1 + rank; 0: all.
struct ScriptFragment {
  uint16_t source = 0;
  uint16_t receiver = 0;
};

/// An accident to the nth message of all, counted from 0, or right after it.
struct Accident {
  enum class Kind : uint8_t { kLost, kDoubled, kLate, kSwitchRestarts, kFallbackRestarts };
  size_t nth = 0;
  Kind kind{};
};

struct Script {
  scheduler::PolicyOptions policy{.kind = scheduler::PolicyKind::kEsa};
  Home home = Home::kWorkers;
  uint32_t slots = 16;  ///< one: all fragments collide
  std::vector<ScriptJob> jobs{ScriptJob{}};
  /// Besides what the script itself does; restarts happen in deliver_all(). Late ones and second
  /// copies are held until release().
  std::vector<Accident> accidents{};
  /// Complete buffers are their user's again, and are written to at once.
  bool scribbles = false;
};

/// A rule of the protocol is off while this lives.
class Without {
 public:
  explicit Without(Rule rule);
  ~Without();
  Without(const Without&) = delete;
  Without& operator=(const Without&) = delete;
};

class Rack {
 public:
  explicit Rack(const Script& script);
  ~Rack();

  /// The worker submits an operation of values.size() fragments; values[f] is every element of its
  /// fragment f.
  void submit(uint32_t rank, const std::vector<float>& values, uint32_t job = 0,
              bool in_place = false);
  /// The worker submits another collective: a fragment lies at its place in both buffers.
  void submit(uint32_t rank, Collective collective, const std::vector<ScriptFragment>& fragments,
              const std::vector<float>& values, uint32_t job = 0, bool in_place = false);
  /// All workers of the job; rank r contributes values[r] to the only fragment.
  void submit_all(const std::vector<float>& values, uint32_t job = 0);

  // Messages in flight. All but count() fail the test where nothing matches.
  size_t count(const Match& match) const;
  size_t in_flight() const { return in_flight_.size(); }
  /// Each message that matches now goes to its next hop, in the order of sending.
  void deliver(const Match& match);
  /// All the way, over the switch.
  void pass(const Match& match);
  void drop(const Match& match);
  /// A second copy that stays in flight, held back until release().
  void duplicate(const Match& match);
  /// Held back until release().
  void hold(const Match& match);
  void release(const Match& match);
  /// release() of all held messages.
  void release_all() { in_flight_.splice(in_flight_.end(), held_); }
  /// Delivers all that is in flight and not held, and the consequences, until all is silent.
  void deliver_all();

  /// Time passes at one worker, until its next deadline.
  void time_out(uint32_t rank, uint32_t job = 0);
  void restart_switch();
  void restart_fallback(uint32_t job = 0);
  /// The worker is told of the new epoch.
  void rejoin(uint32_t rank, uint32_t job = 0);
  /// The worker is gone: messages to it are lost.
  void leave(uint32_t rank, uint32_t job = 0);
  /// Overwrites a finished operation's buffers, as their owner may.
  void scribble(uint32_t rank, uint32_t job = 0);

  /// True if the worker's latest operation is done, or an earlier one, counted from 0.
  bool done(uint32_t rank, uint32_t job = 0, int operation = kAny) const;
  /// One value per fragment, if it is done; empty otherwise. -1: nothing was written there.
  std::vector<float> got(uint32_t rank, uint32_t job = 0, int operation = kAny) const;
  /// got() of all workers, of the first fragment; -1 where the operation is not done.
  std::vector<float> got_all(uint32_t job = 0) const;
  const client::Engine& engine(uint32_t rank, uint32_t job = 0) const;
  /// The fallback of a home besides the workers.
  const aggregator::Fallback& fallback(uint32_t job = 0) const;
  const aggregator::Counters& counters() const;
  /// Messages sent so far, lost ones included.
  size_t sent() const { return sent_; }
  /// Why the switch dropped the packet it had last; nothing if it did not.
  std::optional<DropReason> dropped() const { return dropped_; }
  uint32_t epoch(uint32_t job = 0) const;

 private:
  using JobIndex = aggregator::JobIndex;
  struct InFlight {
    JobIndex job = 0;
    int from = 0;
    int to = 0;
    wire::Message message;
    std::vector<std::byte> payload;
  };
  struct Worker;
  struct Job;
  struct Switch;
  using Messages = std::list<InFlight>;

  static bool matches(const Match& match, const InFlight& message);
  void send(JobIndex job, int from, int to, const wire::Message& message, const std::byte* payload,
            uint32_t payload_bytes);
  void arrive(const InFlight& message);
  void arrive_at_switch(const InFlight& message);
  void step(Worker& worker);
  static void scribble_over(Worker& worker);
  void serve_fallback(Job& job);
  std::unique_ptr<aggregator::Fallback> make_fallback(const Job& job) const;
  void start_switch();
  void add_to_switch(Job& job);
  Worker& worker(uint32_t rank, uint32_t job) const;
  void start(Worker& worker, client::OperationSpec spec, const std::vector<float>& values,
             bool in_place);
  static Seq results_end(const Job& job);

  Script script_;
  Messages in_flight_;
  Messages held_;
  size_t sent_ = 0;
  bool switch_restarts_ = false;
  bool fallback_restarts_ = false;
  std::vector<std::unique_ptr<Job>> jobs_;
  std::unique_ptr<Switch> switch_;
  std::optional<DropReason> dropped_;
};

}  // namespace ina::sim
