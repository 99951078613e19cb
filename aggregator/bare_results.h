// Results without bytes, put together into runs (docs/protocol.md, "Joined bare results"): most
// workers of a scatter or a reduction to one rank would otherwise get a message for each fragment.
#pragma once

#include <array>
#include <limits>
#include <vector>

#include "aggregator/packet.h"
#include "wire/rules.h"

namespace ina::aggregator {

/// How long a job's runs are filled. Without patience they are sent at the end of each burst.
struct Joining {
  uint32_t most = 1;   ///< fragments of this lane: a run of so many goes at the end of its burst
  Nanos patience = 0;  ///< a run waits for no more than twice that

  /// A quarter of a worker's fragments in the switch. With that held back it still has three
  /// quarters to send in, so no worker ever waits for a run to be filled.
  static Joining of(uint32_t in_switch, uint32_t lanes, Nanos patience) {
    return {std::max(1u, in_switch / lanes / 4), patience};
  }
};

/// For each worker of each job a run of fragments one after the other in the lane. A run kept here
/// is like a packet on its way: nothing depends on when it arrives.
class BareResults {
 public:
  static constexpr Nanos kNever = std::numeric_limits<Nanos>::max();

  BareResults(uint32_t max_jobs, uint32_t lanes) : lanes_(lanes), jobs_(max_jobs) {
    active_.reserve(max_jobs);
  }

  /// `start`: the first fragment that may come.
  void add_job(JobIndex index, const Joining& joining, Seq start) {
    Job& job = jobs_[index];
    job.joining = joining;
    job.prompt = WorkerSet::first(kMaxWorkers);  // until they say something else
    for (Run& run : job.runs) run.end = start.low();
    job.newest.fill(start.low());
  }
  /// Another job may get its place.
  void remove_job(JobIndex index) {
    if (rule(Rule::kJoinForget)) jobs_[index].forget();
  }
  /// The worker's window is too small now for results to be kept from it, or large enough again. A
  /// message that later ones of this worker overtook does not say the latter: it is out of date.
  void set_prompt(JobIndex index, Rank rank, uint32_t seq, bool prompt) {
    Job& job = jobs_[index];
    uint32_t& newest = job.newest[value(rank)];
    const bool overtaken = is_before(seq, newest);
    if (!overtaken) newest = seq;
    if (prompt)
      job.prompt.insert(rank);
    else if (!overtaken)
      job.prompt.erase(rank);
  }

  /// A bare RESULT for the workers in its bitmap. `send(job, rank, message)` gets what it cannot
  /// be put together with.
  template <class Send>
  void add(JobIndex index, const wire::Message& message, Send&& send) {
    Job& job = jobs_[index];
    if (!job.waiting.empty() && !goes_with(job.first, message)) send_runs(index, job.waiting, send);
    if (job.waiting.empty()) job.first = message;
    if (!job.active) active_.push_back(index);
    job.active = true;
    for (const Rank rank : message.bitmap) {
      Run& run = job.runs[value(rank)];
      if (job.waiting.contains(rank)) {
        if (const uint32_t length = length_with(run, message.seq); length != 0) {
          run.length = run.bare_length = static_cast<uint16_t>(length);
          note_length(job, rank);
          continue;
        }
        send_runs(index, WorkerSet::of(rank), send);
      }
      const bool late = is_before(message.seq, run.end) && rule(Rule::kJoinLate);
      run = {message.seq, late ? run.end : message.seq, 1, 1};
      job.waiting.insert(rank);
      if (late) job.full.insert(rank);
      note_length(job, rank);
    }
  }

  /// A RESULT that is not bare goes to `receivers`. A run goes on over a fragment of which its
  /// worker gets the bytes (`runs_on`: not that of a switch below, which cannot tell).
  void passed(JobIndex index, const wire::Message& message, WorkerSet receivers, bool runs_on) {
    for (const Rank receiver : receivers) pass(jobs_[index], message, receiver, runs_on);
  }
  /// The result of the closing fragment stands for all that is missing.
  void passed_to_all(JobIndex index, const wire::Message& message) {
    Job& job = jobs_[index];
    if (!job.waiting.empty() && message.operation == job.first.operation && message.elements == 0)
      job.forget();
  }

  /// At the end of a burst, and when due() has come: sends what has waited long enough.
  template <class Send>
  void flush(Nanos now, Send&& send) {
    due_ = kNever;
    for (size_t i = 0; i < active_.size();) {
      const JobIndex index = active_[i];
      Job& job = jobs_[index];
      WorkerSet go = job.full | (rule(Rule::kJoinPrompt) ? job.prompt : WorkerSet());
      if (job.joining.patience == 0) go = job.waiting;
      if (job.tick_at == 0) job.tick_at = now + job.joining.patience;
      const bool tick = now >= job.tick_at;
      if (tick) go |= job.old;
      send_runs(index, go & job.waiting, send);
      if (tick) {
        job.old = job.waiting;
        job.tick_at = now + job.joining.patience;
      }
      if (job.waiting.empty()) {
        job.active = false;
        job.tick_at = 0;
        active_[i] = active_.back();
        active_.pop_back();
        continue;
      }
      due_ = std::min(due_, job.tick_at);
      ++i;
    }
  }
  /// When flush() is to be called though nothing comes; kNever: nothing is kept.
  Nanos due() const { return due_; }

  /// True if the bare result of a fragment is kept from a worker. Not for the packet path.
  bool keeps(JobIndex index, Rank rank, uint32_t seq) const {
    const Job& job = jobs_[index];
    const Run& run = job.runs[value(rank)];
    const uint32_t distance = seq - run.seq;
    return job.waiting.contains(rank) && distance % lanes_ == 0 &&
           distance / lanes_ < run.bare_length;
  }

 private:
  static constexpr uint16_t kLongest = UINT16_MAX;

  struct Run {
    uint32_t seq = 0;
    uint32_t end = 0;          ///< behind the last fragment that the worker was given anything of
    uint16_t length = 0;       ///< fragments
    uint16_t bare_length = 0;  ///< of these, up to the last one that is bare
  };
  struct Job {
    Joining joining;
    wire::Message first;     ///< the fields that all runs have in common
    WorkerSet waiting = {};  ///< workers with a run
    WorkerSet full = {};     ///< of these, those with one of `joining.most` fragments
    WorkerSet old = {};      ///< of these, those that had theirs a patience ago
    WorkerSet prompt = {};
    std::array<uint32_t, kMaxWorkers> newest{};  ///< of a worker's fragments, by rank
    Nanos tick_at = 0;                           ///< `old` is renewed; 0: unknown
    bool active = false;                         ///< in active_
    std::array<Run, kMaxWorkers> runs{};

    void forget() { waiting = full = old = {}; }
  };

  static bool goes_with(const wire::Message& first, const wire::Message& message) {
    return message.operation == first.operation && message.epoch == first.epoch &&
           message.origin == first.origin && message.flags == first.flags &&
           message.instance == first.instance;
  }
  /// The length of the run together with that fragment; 0: they do not join.
  uint32_t length_with(const Run& run, uint32_t seq) const {
    if (run.length == kLongest) return 0;
    if (rule(Rule::kJoinNext)) return seq == run.seq + run.length * lanes_ ? run.length + 1u : 0;
    const uint32_t place = (seq - run.seq) / lanes_;
    return place >= run.length && place < kLongest ? place + 1 : 0;
  }
  void pass(Job& job, const wire::Message& message, Rank receiver, bool runs_on) const {
    Run& run = job.runs[value(receiver)];
    if (!job.waiting.contains(receiver)) {
      if (!is_before(message.seq, run.end)) run.end = message.seq + lanes_;
    } else if (runs_on && message.seq == run.seq + run.length * lanes_ && run.length != kLongest &&
               message.operation == job.first.operation) {
      ++run.length;
      note_length(job, receiver);
    } else {
      // The worker's window must not fill with results that follow the run.
      job.full.insert(receiver);
    }
  }
  static bool is_before(uint32_t seq, uint32_t other) {
    return static_cast<int32_t>(seq - other) < 0;
  }
  void note_length(Job& job, Rank rank) const {
    Run& run = job.runs[value(rank)];
    if (const uint32_t end = run.seq + run.length * lanes_; is_before(run.end, end)) run.end = end;
    if (run.length >= job.joining.most && rule(Rule::kJoinLimit)) job.full.insert(rank);
  }
  template <class Send>
  void send_runs(JobIndex index, WorkerSet ranks, Send&& send) {
    Job& job = jobs_[index];
    job.waiting -= ranks;
    job.full -= ranks;
    job.old -= ranks;
    wire::Message message = job.first;
    for (const Rank rank : ranks) {
      const Run& run = job.runs[value(rank)];
      message.seq = run.seq;
      message.elements = run.bare_length;
      message.bitmap = WorkerSet::of(rank);
      send(index, rank, message);
    }
  }

  uint32_t lanes_;
  std::vector<Job> jobs_;
  std::vector<JobIndex> active_;  ///< jobs with runs, and some that had them
  Nanos due_ = kNever;
};

}  // namespace ina::aggregator
