#include "client/context.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "client/control_text.h"
#include "client/listener.h"
#include "common/clock.h"
#include "control/client.h"
#include "scheduler/policies.h"
#include "transport/shm_join.h"
#include "wire/text.h"

namespace ina::client {

namespace {

// Between requests to join a switch that has no room, doubling.
constexpr Nanos kFirstPauseNs = 5'000'000;
constexpr Nanos kLongestPauseNs = 200'000'000;
// How long a switch that is not there is waited for, unless somebody said how long.
constexpr Nanos kAbsentNs = 500'000'000;
// How long a worker that gave up waits for the switch to say for whom it waited.
constexpr Nanos kExplainNs = 1'000'000'000;
// A switch that goes again and again while somebody joins is not waited for.
constexpr int kMostLosses = 8;
/// Of numbers of operations, which are modulo 2^32.
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
      memory_(settings_, *session_, id_, link_, progress_, callers_),
      splits_(*session_, id_, progress_, callers_) {}

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
    std::this_thread::sleep_for(std::chrono::nanoseconds(kFirstPauseNs));
  }
}

/// `job_is_gone`: the switch went before the job began, and the next one knows nothing of it. All
/// its workers may join once more.
Result<std::shared_ptr<Context>> Context::join_once(const Settings& settings, const Url& url,
                                                    Nanos deadline, bool& job_is_gone) {
  const auto session = std::make_shared<Session>(settings);
  std::shared_ptr<Context> context(new Context(settings, session, 0));
  if (auto opened = context->open(url, deadline); !opened) {
    job_is_gone = context->job_is_gone_.load();
    return tl::unexpected(opened.error());
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
  job_is_gone = lost && context->job_is_gone_.load();
  context->close();
  return fail(status != INA_OK ? static_cast<ina_status>(status) : INA_ERR_TIMEOUT, text);
}

Result<void> Context::open(const Url& url, Nanos deadline) {
  if (url.scheme == "memif")
    if (auto served = await_listener(url.path, absent_ns()); !served) return served;
  if (url.scheme != "shm") {
    if (auto opened = open_frames(url, deadline); !opened) return opened;
  } else if (auto known = url.check_keys({}); !known) {
    return known;
  }
  if (auto resolved = session_->resolve(url); !resolved) return resolved;
  auto reply = ask_to_join(deadline);
  if (!reply) return tl::unexpected(reply.error());
  const auto* joined = std::get_if<answer::Joined>(&reply->message);
  if (!joined) return tl::unexpected(control::error_of(reply->message));
  if (auto set = set_up(*joined, *reply); !set) return set;
  return await_ready(deadline);
}

Result<void> Context::open_frames(const Url& url, Nanos deadline) {
  auto opened = open_frame_transport(url, deadline - now_ns());
  if (!opened) return tl::unexpected(opened.error());
  link_.open(std::move(*opened));
  return {};
}

/// By which rules this worker plays.
EngineConfig Context::engine_config(const answer::Joined& joined) const {
  const answer::Place& place = joined.place;
  const answer::Rules& rules = joined.rules;
  EngineConfig config;
  config.rank = Rank{static_cast<uint8_t>(settings_.rank)};
  config.workers = settings_.world_size;
  config.results_stay = link_.frames() == nullptr;
  config.lossy_link = link_.frames() != nullptr;
  config.epoch = place.epoch;
  config.window = place.window;
  config.slot_bytes = place.slot_bytes;
  config.lanes = place.lanes;
  const auto policy = value_in(scheduler::kPolicyNames, rules.policy);
  config.fixed_slots = policy && !scheduler::traits(*policy).hashed;
  config.home = value_in(kHomeNames, rules.home).value_or(Home::kSpill);
  config.priority_max = rules.priority_max;
  config.congestion_window = rules.ecn;
  config.aggregator_window = rules.aggregator_window;
  config.rto_min_ns = rules.rto_min_us * 1000;
  config.rto_max_ns = rules.rto_max_us * 1000;
  if (rules.help) {
    config.in_switch = rules.help->in_switch;
    config.park_room = rules.help->park_room;
  }
  // Contributions that find no slot meet in the workers' rows for payloads, maybe all in one's.
  if (place.shm && !config.fixed_slots)
    config.first_window = std::max(1u, config.lanes * place.shm->side_rows / config.workers);
  return config;
}

/// Makes engine and transport as `joined` says, and attaches. `heard`: in which it came.
Result<void> Context::set_up(const answer::Joined& joined, control::Heard& heard) {
  const answer::Place& place = joined.place;
  const EngineConfig config = engine_config(joined);
  if (config.window == 0 || config.lanes == 0)
    return fail(INA_ERR_INTERNAL, "the switch granted an empty window");
  job_id_ = place.job_id;
  job_key_ = place.job_key;
  link_.make_engine(config);
  auto transport = attach(place, heard);
  if (!transport) return tl::unexpected(transport.error());
  link_.connect(std::move(*transport));
  return {};
}

/// Connects, and says `join`; again if the switch has no room just now, until `deadline`.
Result<control::Heard> Context::ask_to_join(Nanos deadline) {
  const request::Join join{.member = member(), .window_bytes = settings_.window_bytes};
  std::optional<control::Heard> refusal;
  for (Nanos pause_ns = kFirstPauseNs;; pause_ns = std::min(2 * pause_ns, kLongestPauseNs)) {
    // Nobody asked to wait for a switch to start: then there is none, and its user wants to know.
    if (auto opened = session_->open(deadline - now_ns(), absent_ns()); !opened)
      return fail(opened.error().status, opened.error().text + absent_hint(opened.error().status));
    auto reply = control::ask(session_->control(), join, deadline - now_ns());
    if (!reply) {
      // It closed the connection without a word.
      job_is_gone_ = reply.error().status == INA_ERR_SWITCH_LOST;
      return tl::unexpected(reply.error());
    }
    // An attempt that the deadline cuts short says less than the one before.
    if (!*reply && refusal) return std::move(*refusal);
    if (!*reply)
      return fail(INA_ERR_TIMEOUT,
                  "the switch at " + session_->path() + " did not answer the request to join");
    if (!answer::is_no_room((*reply)->message) || now_ns() + pause_ns >= deadline)
      return std::move(**reply);
    refusal = std::move(**reply);
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause_ns));
  }
}

/// How long a switch that is not there is waited for.
Nanos Context::absent_ns() const {
  return settings_.waits_for_switch ? INT64_MAX : kAbsentNs;
}

/// What is to be added to the text of an error with `status`.
std::string Context::absent_hint(ina_status status) const {
  if (status != INA_ERR_NO_SWITCH || settings_.waits_for_switch) return {};
  return "; INA_TIMEOUT_US (or ina_config.timeout_us) would have this wait for a switch that is "
         "about to start";
}

/// Who joins, and how it is reached.
request::Member Context::member() const {
  request::Member member;
  member.job = settings_.job;
  member.rank = settings_.rank;
  member.world_size = settings_.world_size;
  if (id_ == 0) {  // the session is known to the switch when it speaks of groups
    member.version = control::kControlVersion;
    member.library = ina_version();
    if (!settings_.job_owner.empty()) member.owner = settings_.job_owner;
    member.ticket = settings_.ticket;
    if (member.ticket.empty() && control::is_remote(session_->path()))
      member.token = settings_.token;
  }
  if (link_.frames()) {
    member.reach = reach_of(*link_.frames(), session_->frame_place());
    member.reach.frame->multicast = link_.frames()->takes_groups();
  }
  member.reach.parks = true;
  return member;
}

/// Attaches. The transport to go on with; nullptr: the one that carries frames.
Result<std::unique_ptr<Transport>> Context::attach(const answer::Place& place,
                                                   control::Heard& joined) {
  if (!link_.frames()) return attach_shm(place, joined);
  if (auto attached = attach_frames(place); !attached) return tl::unexpected(attached.error());
  return std::unique_ptr<Transport>();
}

Result<std::unique_ptr<Transport>> Context::attach_shm(const answer::Place& place,
                                                       control::Heard& joined) {
  auto transport = join_shm(place, joined, link_.copier());
  if (!transport) return tl::unexpected(transport.error());
  memory_.register_again(**transport);
  if (!send_control(request::Attach{}, {(*transport)->region_fd()})) return switch_closed();
  return std::unique_ptr<Transport>(std::move(*transport));
}

Result<void> Context::attach_frames(const answer::Place& place) {
  if (place.group)
    if (auto done = link_.frames()->join_group(*place.group); !done) return done;
  if (auto bound = bind_frames(place, settings_.url, *link_.frames()); !bound) return bound;
  if (send_control(request::Attach{})) return {};
  return switch_closed();
}

tl::unexpected<Error> Context::switch_closed() {
  job_is_gone_ = true;
  return fail(INA_ERR_SWITCH_LOST, "the switch closed the connection");
}

Result<void> Context::await_ready(Nanos deadline) {
  std::string missing = "the other ranks";
  for (;;) {
    auto message = control::hear(session_->control(), std::max<Nanos>(0, deadline - now_ns()));
    if (!message && message.error().status == INA_ERR_SWITCH_LOST) {
      // The job may run already: the switch tells one worker after the other.
      go_away();
      session_->lose();
      return {};
    }
    if (!message) return tl::unexpected(message.error());
    if (!*message)
      return fail(INA_ERR_TIMEOUT, "rank " + std::to_string(settings_.rank) + " of job '" +
                                       settings_.job + "' waited " + seconds(settings_.timeout_ns) +
                                       " for " + missing + " to join at " + settings_.url);
    const answer::Message& said = (*message)->message;
    if (std::holds_alternative<answer::Ready>(said)) return {};
    if (const auto* waiting = std::get_if<answer::Waiting>(&said))
      missing = missing_text(*waiting);
    else if (const auto* epoch = std::get_if<answer::Epoch>(&said))
      link_.engine().set_epoch(epoch->epoch, now_ns());  // the fallback server was started again
    else
      return tl::unexpected(control::error_of(said));
  }
}

// ---- operations

Result<Operation*> Context::start(OperationSpec spec, const OperationSource& source) {
  if (callers_.failed() != INA_OK) return callers_.failure();
  const auto lock = progress_.lock();
  if (auto aimed = memory_.aim(spec, source); !aimed) return tl::unexpected(aimed.error());
  const size_t running = link_.engine().running();
  if (Operation* const collected = operations_.collect(spec, now_ns())) {
    if (link_.engine().running() != running) progress_.send();
    return collected;
  }
  Operation* const operation = operations_.submit(spec, source, now_ns());
  progress_.send();
  return operation;
}

/// Under the lock of progress_, after each turn: what the ranks must be told of it.
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

/// Under the lock of callers_. What is known of this worker's frames beyond what `said` says of
/// them.
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
  if (!send_control(request::Explain{})) return "the switch does not answer";
  if (callers_.await(state, kExplainNs, [&] { return !explanation_.empty(); }))
    return explanation_ + trouble_text(explanation_);
  state.unlock();
  const std::string failure = callers_.failure_text();
  return failure.empty() ? "the switch does not answer" : failure;
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

bool Context::send_control(const request::Message& message, const std::vector<int>& descriptors) {
  return session_->send(id_, message, descriptors);
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
  {
    const auto lock = progress_.lock();
    if (callers_.failed() != INA_OK) return callers_.report_failure();
    operations_.submit_collected(now_ns());
    // The switch takes the closed connection for a lost worker, which is what the others must hear.
    if (link_.engine().running() != 0)
      return set_error(INA_ERR_ABORTED, "left with " + running_text());
  }
  // A job that all have left has no groups any more.
  if (id_ == 0)
    for (const auto& group : session_->groups())
      if (const std::string running = group->leave_with_job(); !running.empty())
        return set_error(INA_ERR_ABORTED, "left with " + running + ", in a group of it");
  // If the switch is away, the background thread says it once it is back.
  leaving_ = true;
  send_leave();
  auto state = callers_.lock();
  if (callers_.await(state, timeout_ns, [&] { return left_; })) return INA_OK;
  state.unlock();
  if (callers_.failed() != INA_OK) return callers_.report_failure();
  const std::string away = away_text();
  return set_error(INA_ERR_TIMEOUT,
                   "left after waiting " + seconds(timeout_ns) +
                       (away.empty() ? " for the other ranks to call ina_finalize" : ": " + away));
}

void Context::send_leave() {
  const request::Leave leave{link_.engine().operations_submitted()};  // no call follows
  // Or it could reach the next switch, which refuses it while the job gathers.
  const auto state = callers_.lock();
  if (!progress_.is_away() && session_->send_leave(id_, leave)) leave_ever_sent_ = true;
}

/// Under mutex_; something runs.
std::string Context::running_text() const {
  return std::to_string(link_.engine().running()) +
         " operations running, the oldest: " + describe(*link_.engine().oldest());
}

/// Its job is left, and it with it, unless something is still under way. Returns what, or nothing.
std::string Context::leave_with_job() {
  {
    const auto lock = progress_.lock();
    if (!progress_.is_live() || callers_.failed() != INA_OK) return {};
    if (link_.engine().running() != 0) return running_text();
  }
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
  // Of a group whose job was left: there is no background thread any more.
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
