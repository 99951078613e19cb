#include "client/context.h"

#include <chrono>
#include <thread>
#include <utility>
#include <variant>

#include "common/clock.h"
#include "control/client.h"
#include "membership/control_text.h"
#include "membership/forks.h"
#include "membership/joiner.h"

namespace ina::client {

namespace {

// Before a job that the switch has lost is joined once more.
constexpr Nanos kLossPauseNs = 5'000'000;
// A switch that goes again and again during a join is not waited for.
constexpr int kMostLosses = 8;

}  // namespace

Context::Context(const Settings& settings, std::shared_ptr<Session> session, uint32_t id)
    : settings_(settings),
      fork_generation_(membership::Forks::instance().generation()),
      session_(std::move(session)),
      id_(id),
      link_(settings.copy_threads, settings.world_size),
      attachment_(link_.copier()),
      operations_(settings_, link_),
      progress_(settings.idle, *session_, link_, operations_, callers_,
                [this] { peer_errors_.look_at_turn(); }),
      explanations_(settings_, session_->connection(), id_, attachment_, callers_, progress_),
      memory_(settings_, session_->connection(), id_, attachment_, link_, progress_, callers_,
              [this] { return explain(); }),
      writable_(settings.world_size, settings.rank),
      splits_(session_->connection(), id_, progress_.presence(), callers_),
      member_groups_(session_->connection(), id_, progress_.presence(), callers_),
      peer_errors_(session_->connection(), id_, link_, operations_, callers_, progress_),
      farewell_(settings_, session_->connection(), id_, link_, operations_, callers_, progress_,
                explanations_),
      member_({settings_, *session_, id_, link_, attachment_, callers_, progress_, memory_,
               explanations_, splits_, member_groups_, farewell_, peer_errors_}) {}

bool Context::forked() const {
  return fork_generation_ != membership::Forks::instance().generation();
}

// ---- joining

Result<std::shared_ptr<Context>> Context::join(const Settings& settings) {
  auto url = parse_url(settings.url);
  if (!url) return tl::unexpected(url.error());
  if (url->scheme != "shm" && !membership::carries_frames(*url))
    return fail(INA_ERR_INVALID,
                "url '" + settings.url + "' has no known transport: use " +
                    "shm:/path/of/switch.sock, udp:ADDRESS?control=..., " +
                    "dpdk:ADDRESS?control=... or memif:/path/of/memif.sock?ip=...");
  const Nanos deadline = now_ns() + settings.timeout_ns;
  for (int losses = 1;; ++losses) {
    bool job_is_gone = false;
    auto joined = join_once(settings, *url, deadline, job_is_gone);
    if (joined || !job_is_gone || losses == kMostLosses || now_ns() >= deadline) return joined;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kLossPauseNs));
  }
}

/// `job_is_gone`: the switch went before the job began, and the next one knows nothing of it. All
/// its workers may join once more.
Result<std::shared_ptr<Context>> Context::join_once(const Settings& settings, const Url& url,
                                                    Nanos deadline, bool& job_is_gone) {
  const auto session = std::make_shared<Session>(settings);
  std::shared_ptr<Context> context(new Context(settings, session, 0));
  const auto began = context->member_.join(url, deadline);
  if (!began) {
    job_is_gone = context->member_.job_is_gone();
    return tl::unexpected(began.error());
  }
  if (*began == membership::Joiner::Joined::kLost) {
    context->go_away();
    session->lose();
  }
  context->progress_.go_live();
  session->start(context);
  const bool lost = context->progress_.is_away();
  if (lost) context->progress_.await_return(deadline);
  const int status = context->callers_.report_failure();
  // A switch that goes now is for the job's operations to wait for.
  const bool away = lost && context->progress_.is_away();
  if (status == INA_OK && !away) return context;
  const std::string text =
      status != INA_OK ? context->last_error() : context->explanations_.away_text();
  job_is_gone = lost && context->member_.job_is_gone();
  context->close();
  return fail(status != INA_OK ? static_cast<ina_status>(status) : INA_ERR_TIMEOUT, text);
}

// ---- operations

WaitEnd Context::wait(Operation* operation, Nanos timeout_ns, bool give_up) {
  if (timeout_ns <= 0) timeout_ns = settings_.timeout_ns;
  const Nanos deadline = now_ns() + timeout_ns;
  start_collected(*operation);
  switch (progress_.wait(operation, deadline)) {
    case Progress::Waited::kDone:
      return {INA_OK, true};
    case Progress::Waited::kFailed:
      return {callers_.report_failure(), true};
    case Progress::Waited::kTimedOut:
      break;
  }
  return timed_out(operation, timeout_ns, give_up);
}

int Context::test(Operation* operation) {
  start_collected(*operation);
  const auto ended = progress_.test(operation);
  if (!ended) return INA_IN_PROGRESS;
  return *ended == Progress::Waited::kDone ? static_cast<int>(INA_OK) : callers_.report_failure();
}

WaitEnd Context::timed_out(Operation* operation, Nanos waited_ns, bool give_up) {
  std::string what;
  {
    const auto lock = progress_.lock();
    what = describe(*operation);
  }
  std::string text = "waited " + membership::seconds(waited_ns) + " for " + what;
  if (!give_up) return {set_error(INA_ERR_TIMEOUT, text + "; " + explain()), false};
  text += explanations_.give_up(text);
  if (const std::string away = explanations_.away_text(); !away.empty()) text += "; " + away;
  if (send_control(request::Abort{text})) {
    auto state = callers_.lock();
    callers_.await(state, membership::kExplainNs, [] { return false; });
    text += "; the switch did not answer either";
  }
  progress_.end(INA_ERR_TIMEOUT, text);
  const auto lock = progress_.lock();
  operations_.release(operation);
  return {callers_.report_failure(), true};
}

// ---- the background thread

void Context::rest_for_background() {
  const auto lock = progress_.lock();
  progress_.rest();
}

void Context::on_control(control::Heard& heard) {
  const auto end_by_switch = [&](const auto&) {
    explanations_.end_by_switch(control::error_of(heard.message));
  };
  const uint64_t losses = session_->losses();
  std::visit(
      control::Overloaded{
          [&](const answer::Abort& abort) { end_by_switch(abort); },
          [&](const answer::Refused& refused) { end_by_switch(refused); },
          [&](const answer::Wake&) { progress_.call(); },
          [&](const answer::Split& split) { splits_.on_split(split, losses); },
          [&](const answer::CreateGroup& created) { member_groups_.on_answer(created, losses); },
          [&](const answer::Joined& joined) { member_.on_joined(joined, heard); },
          [&](const answer::Ready& ready) { member_.on_ready(ready); },
          [&](const answer::Registered& registered) { memory_.on_registered(registered); },
          [&](const answer::Results& results) { memory_.on_results(results, heard); },
          [&](const answer::Epoch& epoch) {
            const auto lock = progress_.lock();
            if (link_.has_engine()) link_.engine().set_epoch(epoch.epoch, now_ns());
          },
          [&](const answer::Explain& explain) { explanations_.on_explain(explain); },
          [&](const answer::Dropped& dropped) { explanations_.on_dropped(dropped); },
          [&](const answer::Left&) { farewell_.on_left(); },
          [&](const answer::PeerLeft& left) { peer_errors_.on_peer_left(left); },
          [&](const answer::Waiting& waiting) { member_.on_waiting(waiting); }, [](const auto&) {}},
      heard.message);
}

bool Context::send_control(const request::Message& message) {
  return session_->connection().send(id_, message);
}

// ---- the end

int Context::leave(Nanos timeout_ns) {
  if (timeout_ns <= 0) timeout_ns = settings_.timeout_ns;
  const Nanos deadline = now_ns() + timeout_ns;
  if (const std::string running = farewell_.drain(deadline); !running.empty())
    return farewell_.leave_early(running, timeout_ns);
  if (callers_.failed() != INA_OK) return callers_.report_failure();
  // A job that all have left has no groups any more.
  if (id_ == 0)
    for (const auto& group : session_->groups())
      if (const std::string running = group->farewell_.leave_with_job(deadline); !running.empty())
        return farewell_.leave_early(running + ", in a group of it", timeout_ns);
  farewell_.say();
  if (farewell_.await_others(deadline)) return INA_OK;
  if (callers_.failed() != INA_OK) return callers_.report_failure();
  return set_error(INA_ERR_TIMEOUT, "left after waiting " + membership::seconds(timeout_ns) +
                                        " for the other ranks to call ina_finalize; " + explain());
}

void Context::close() {
  {
    const auto lock = progress_.lock();
    progress_.close();
  }
  if (id_ != 0) {
    // The connection stays open, so the others would not notice. One that has ended hears nothing.
    if (!farewell_.ever_said())
      send_control(request::Abort{"it left before its operations were complete"});
    session_->remove(*this);
  } else {
    session_->stop(INA_ERR_ABORTED,
                   "the job of this group was left (ina_finalize of the context that was split)");
  }
  const int failed = callers_.failed();
  progress_.completions().give_up(failed != INA_OK ? failed : static_cast<int>(INA_ERR_ABORTED));
}

void Context::call_back(Operation* operation, void (*call)(void*, int), void* argument) {
  start_collected(*operation);
  progress_.completions().add(operation, call, argument);
  // A group whose job was left has no background thread any more.
  if (session_->stopping()) return progress_.run_callbacks();
  session_->wakeups().kick_at_once();
}

void Context::set_hints(const scheduler::Hints& hints) {
  const auto lock = progress_.lock();
  link_.engine().set_hints(hints, now_ns());
}

void Context::stats(ina_stats& stats) {
  const auto lock = progress_.lock();
  const EngineCounters& engine = link_.engine().counters();
  const TransportCounters transport = link_.counters();
  stats.operations = operations_.completed();
  stats.fragments_sent = engine.fragments_sent;
  stats.fragments_resent = engine.fragments_resent;
  stats.results_received = engine.results;
  stats.bytes_sent = engine.bytes_sent;
  stats.bytes_received = engine.bytes_received;
  stats.sleeps = transport.sleeps;
  stats.dropped = transport.dropped + engine.results_ignored;
  stats.overflows = operations_.overflows();
  stats.queries = engine.queries;
  stats.bytes_by_switch = engine.bytes_received - engine.bytes_by_fallback;
  stats.bytes_by_fallback = engine.bytes_by_fallback;
  stats.bytes_copied = transport.bytes_copied + engine.bytes_copied;
  stats.packets_sent = engine.packets_sent;
  stats.packets_received = engine.packets_received;
  stats.payload_packets_sent = engine.payloads_sent;
  stats.payload_packets_received = engine.payloads_received;
  stats.priority = engine.priority;
}

bool Context::overflowed(bool clear) {
  const auto lock = progress_.lock();
  const uint64_t now = operations_.overflows();
  const bool result = now != overflows_cleared_.load();
  if (clear) overflows_cleared_ = now;
  return result;
}

}  // namespace ina::client
