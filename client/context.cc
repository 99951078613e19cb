#include "client/context.h"

#include <chrono>
#include <thread>
#include <utility>
#include <variant>

#include "client/control_text.h"
#include "client/joiner.h"
#include "common/clock.h"
#include "control/client.h"
#include "wire/text.h"

namespace ina::client {

namespace {

// Before a job that the switch has lost is joined once more.
constexpr Nanos kLossPauseNs = 5'000'000;
// A switch that goes again and again during a join is not waited for.
constexpr int kMostLosses = 8;

/// Compares numbers of operations, which are modulo 2^32.
bool comes_before(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a - b) < 0;
}

}  // namespace

Context::Context(const Settings& settings, std::shared_ptr<Session> session, uint32_t id)
    : settings_(settings),
      fork_generation_(Session::fork_generation()),
      session_(std::move(session)),
      id_(id),
      link_(settings.copy_threads, settings.world_size),
      operations_(settings_, link_),
      progress_(settings.idle, *session_, link_, operations_, callers_, [this] { look_at_turn(); }),
      memory_(settings_, *session_, id_, link_, progress_, callers_, [this] { return explain(); }),
      writable_(settings.world_size, settings.rank),
      admission_(settings_, *session_, id_, link_, memory_),
      splits_(*session_, id_, progress_, callers_),
      member_groups_(*session_, id_, progress_, callers_) {}

bool Context::forked() const {
  return fork_generation_ != Session::fork_generation();
}

// ---- joining

Result<std::shared_ptr<Context>> Context::join(const Settings& settings) {
  auto url = parse_url(settings.url);
  if (!url) return tl::unexpected(url.error());
  if (url->scheme != "shm" && url->scheme != "memif" && url->scheme != "udp" &&
      url->scheme != "dpdk")
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
  Joiner joiner(context->settings_, *session, context->link_, context->admission_);
  const auto began = joiner.join(url, deadline);
  if (!began) {
    job_is_gone = context->admission_.job_is_gone();
    return tl::unexpected(began.error());
  }
  if (*began == Joiner::Joined::kLost) {
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
  const std::string text = status != INA_OK ? context->last_error() : context->away_text();
  job_is_gone = lost && context->admission_.job_is_gone();
  context->close();
  return fail(status != INA_OK ? static_cast<ina_status>(status) : INA_ERR_TIMEOUT, text);
}

// ---- operations

/// Under the lock of progress_, after each turn: reports to the ranks the errors that the turn has
/// found.
void Context::look_at_turn() {
  if (const auto& mismatch = link_.engine().mismatch(); mismatch && !mismatch_reported_)
    report_mismatch(*mismatch);
  if (!mismatch_reported_ && !operations_.disagreement().empty()) report_disagreement();
  if (peer_left_) end_without_peer();
}

/// This worker, or the fallback in it, found that the ranks disagree. The switch tells them all.
void Context::report_mismatch(const aggregator::FallbackMismatch& mismatch) {
  mismatch_reported_ = send_control(request::Mismatch{wire::mismatch_text(
      mismatch.first, mismatch.first_signature, mismatch.other, mismatch.other_signature)});
}

/// All ranks have found the same; the switch tells it to those that wait.
void Context::report_disagreement() {
  mismatch_reported_ = send_control(request::Mismatch{operations_.disagreement()});
}

void Context::on_peer_left(const answer::PeerLeft& left) {
  const auto lock = progress_.lock();
  if (!peer_left_ || comes_before(left.operations, peer_left_->operations)) peer_left_ = left;
  end_without_peer();
}

/// Under the lock of progress_. An operation that a rank has not called before it left never
/// completes.
void Context::end_without_peer() {
  if (!link_.has_engine() || callers_.failed() != INA_OK) return;
  const Operation* const hopeless = link_.engine().find_running([&](const Operation& operation) {
    return !comes_before(operation.number, peer_left_->operations);
  });
  if (!hopeless) return;
  const std::string text = "rank " + std::to_string(peer_left_->rank) +
                           " has called ina_finalize without calling " + describe(*hopeless);
  send_control(request::Abort{text, peer_left_->rank});
  progress_.end(INA_ERR_PEER_LOST, text);
}

Context::Waited Context::wait(Operation* operation, Nanos timeout_ns, bool give_up) {
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

Context::Waited Context::timed_out(Operation* operation, Nanos waited_ns, bool give_up) {
  std::string what;
  {
    const auto lock = progress_.lock();
    what = describe(*operation);
  }
  std::string text = "waited " + seconds(waited_ns) + " for " + what;
  if (!give_up) return {set_error(INA_ERR_TIMEOUT, text + "; " + explain()), false};
  {
    const auto state = callers_.lock();
    giving_up_ = true;
    text += trouble_text(text);  // for the other ranks, too
  }
  if (const std::string away = away_text(); !away.empty()) text += "; " + away;
  if (send_control(request::Abort{text})) {
    auto state = callers_.lock();
    callers_.await(state, kExplainNs, [] { return false; });
    text += "; the switch did not answer either";
  }
  progress_.end(INA_ERR_TIMEOUT, text);
  const auto lock = progress_.lock();
  operations_.release(operation);
  return {callers_.report_failure(), true};
}

/// Under the lock of callers_. Text about this worker's lost frames that `said` does not contain
/// yet.
std::string Context::trouble_text(const std::string& said) const {
  std::string text;
  if (!dropped_text_.empty() && said.find("the switch dropped") == std::string::npos)
    text = "; " + dropped_text_;
  const std::string own = link_.frames() ? link_.frames()->trouble() : "";
  if (!own.empty() && said.find(own) == std::string::npos) text += "; " + own;
  return text;
}

std::string Context::explain() {
  if (std::string away = away_text(); !away.empty()) return away;
  auto state = callers_.lock();
  explanation_.clear();
  if (!send_control(request::Explain{})) return kNoAnswer;
  if (callers_.await(state, kExplainNs, [&] { return !explanation_.empty(); }))
    return explanation_ + trouble_text(explanation_);
  state.unlock();
  const std::string failure = callers_.failure_text();
  return failure.empty() ? kNoAnswer : failure;
}

// ---- the background thread

void Context::rest_for_background() {
  const auto lock = progress_.lock();
  progress_.rest();
}

void Context::on_control(control::Heard& heard) {
  std::visit(control::Overloaded{
                 [&](const answer::Abort&) { end_by_switch(control::error_of(heard.message)); },
                 [&](const answer::Refused&) { end_by_switch(control::error_of(heard.message)); },
                 [&](const answer::Wake&) { progress_.call(); },
                 [&](const answer::Split& split) { splits_.on_split(split); },
                 [&](const answer::CreateGroup& created) { member_groups_.on_answer(created); },
                 [&](const answer::Joined& joined) { on_joined(joined, heard); },
                 [&](const answer::Ready& ready) { on_ready(ready); },
                 [&](const answer::Registered& registered) { memory_.on_registered(registered); },
                 [&](const answer::Results& results) { memory_.on_results(results, heard); },
                 [&](const answer::Epoch& epoch) {
                   const auto lock = progress_.lock();
                   if (link_.has_engine()) link_.engine().set_epoch(epoch.epoch, now_ns());
                 },
                 [&](const answer::Explain& explain) {
                   callers_.tell([&] { explanation_ = explain.text; });
                 },
                 [&](const answer::Dropped& dropped) {
                   callers_.tell([&] { dropped_text_ = dropped.text; });
                 },
                 [&](const answer::Left&) { callers_.tell([&] { left_ = true; }); },
                 [&](const answer::PeerLeft& left) { on_peer_left(left); },
                 [&](const answer::Waiting& waiting) {
                   callers_.tell([&] {
                     if (progress_.is_away() || !progress_.is_live())
                       others_missing_ = missing_text(waiting);
                   });
                 },
                 [](const auto&) {}},
             heard.message);
}

bool Context::send_control(const request::Message& message) {
  return session_->send(id_, message);
}

// ---- errors and the end

void Context::end_by_switch(Error error) {
  bool giving_up = false;
  {
    const auto state = callers_.lock();
    giving_up = giving_up_;
    if (error.status == INA_ERR_ABORTED || error.status == INA_ERR_TIMEOUT)
      error.text += trouble_text(error.text);
  }
  progress_.end(giving_up && error.status == INA_ERR_ABORTED ? INA_ERR_TIMEOUT : error.status,
                error.text);
}

int Context::leave(Nanos timeout_ns) {
  if (timeout_ns <= 0) timeout_ns = settings_.timeout_ns;
  const Nanos deadline = now_ns() + timeout_ns;
  if (const std::string running = drain(deadline); !running.empty())
    return leave_early(running, timeout_ns);
  if (callers_.failed() != INA_OK) return callers_.report_failure();
  // A job that all have left has no groups any more.
  if (id_ == 0)
    for (const auto& group : session_->groups())
      if (const std::string running = group->leave_with_job(deadline); !running.empty())
        return leave_early(running + ", in a group of it", timeout_ns);
  // If the switch is away, the background thread says it once it is back.
  leaving_ = true;
  send_leave();
  auto state = callers_.lock();
  if (callers_.await(state, deadline - now_ns(), [&] { return left_; })) return INA_OK;
  state.unlock();
  if (callers_.failed() != INA_OK) return callers_.report_failure();
  return set_error(INA_ERR_TIMEOUT, "left after waiting " + seconds(timeout_ns) +
                                        " for the other ranks to call ina_finalize; " + explain());
}

void Context::send_leave() {
  const request::Leave leave{link_.engine().operations_submitted()};  // no call follows
  // Or it could reach the next switch, which refuses it while the job gathers.
  const auto state = callers_.lock();
  if (!progress_.is_away() && session_->send_leave(id_, leave)) leave_ever_sent_ = true;
}

/// Waits for what is under way: its buffers are the caller's once the context is left. Returns what
/// did not end in time, or nothing.
std::string Context::drain(Nanos deadline) {
  {
    const auto lock = progress_.lock();
    if (callers_.failed() != INA_OK) return {};
    operations_.submit_collected(now_ns());
    progress_.count();
  }
  for (;;) {
    progress_.drain(deadline);
    progress_.run_all_callbacks();  // which may start more
    const auto lock = progress_.lock();
    if (callers_.failed() != INA_OK) return {};
    if (link_.engine().running() == 0) {
      if (!progress_.has_callbacks()) return {};
    } else if (now_ns() >= deadline) {
      return std::to_string(link_.engine().running()) +
             " operations running, the oldest: " + describe(*link_.engine().oldest());
    }
  }
}

/// The others hear why: to the switch the closed connection is that of a lost worker.
int Context::leave_early(const std::string& running, Nanos waited_ns) {
  const std::string text =
      "left with " + running + ", for which it waited " + seconds(waited_ns) + "; " + explain();
  if (callers_.failed() != INA_OK) return callers_.report_failure();
  send_control(request::Abort{text, settings_.rank});
  return set_error(INA_ERR_TIMEOUT, text);
}

/// Its job is left, and it with it, once nothing is under way. Returns what did not end in time, or
/// nothing.
std::string Context::leave_with_job(Nanos deadline) {
  if (!progress_.is_live()) return {};
  if (std::string running = drain(deadline); !running.empty()) return running;
  if (callers_.failed() != INA_OK) return {};
  leaving_ = true;
  send_leave();
  return {};
}

void Context::close() {
  {
    const auto lock = progress_.lock();
    progress_.close();
  }
  if (id_ != 0) {
    // The connection stays open, so the others would not notice. One that has ended hears nothing.
    if (!leave_ever_sent_.load())
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
  session_->kick_at_once();
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
