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

// Of a thread that waits while another drives.
constexpr Nanos kNapNs = 1'000'000;
// Between requests to join a switch that has no room, doubling.
constexpr Nanos kFirstPauseNs = 5'000'000;
constexpr Nanos kLongestPauseNs = 200'000'000;
// How long a switch that is not there is waited for, unless somebody said how long.
constexpr Nanos kAbsentNs = 500'000'000;
// How long a worker that gave up waits for the switch to say for whom it waited.
constexpr Nanos kExplainNs = 1'000'000'000;
// While the engine is driven in the background the control socket is looked at this often.
constexpr Nanos kBackgroundSleepNs = 5'000'000;
// How long the background thread waits for more after it was called.
constexpr Nanos kLingerNs = 1'000'000;
// A switch that goes again and again while somebody joins is not waited for.
constexpr int kMostLosses = 8;
// Bursts of a channel after which others have their turn.
constexpr int kBriefRounds = 16;
// Scratch memory of all schedules that are under way: two reproducible reductions of large tensors.
constexpr size_t kScratchBytes = size_t{5} << 20;

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
      copier_(settings.copy_threads, settings.world_size),
      idle_(settings.idle),
      result_buffers_(settings.world_size, static_cast<uint32_t>(settings.rank),
                      settings.reproducible) {}

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
  context->live_ = true;
  session->start(context);
  const bool lost = context->away_.load();
  if (lost) context->await_return(deadline);
  const int status = context->callers_.report_failure();
  // A switch that goes now is for the job's operations to wait for.
  const bool away = lost && context->away_.load();
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
  take_frames(std::move(*opened));
  return {};
}

void Context::take_frames(std::unique_ptr<FrameTransport> frames) {
  frames_ = frames.get();
  transport_ = std::move(frames);
}

/// By which rules this worker plays.
EngineConfig Context::engine_config(const answer::Joined& joined) const {
  const answer::Place& place = joined.place;
  const answer::Rules& rules = joined.rules;
  EngineConfig config;
  config.rank = Rank{static_cast<uint8_t>(settings_.rank)};
  config.workers = settings_.world_size;
  config.results_stay = frames_ == nullptr;
  config.lossy_link = frames_ != nullptr;
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
  engine_ = std::make_unique<Engine>(config);
  if (frames_) {
    if (auto attached = attach_frames(place); !attached) return attached;
  } else {
    auto attached = attach_shm(place, heard);
    if (!attached) return tl::unexpected(attached.error());
    const std::lock_guard lock(transport_mutex_);
    transport_ = std::move(*attached);
  }
  idle_poll_ns_ = transport_->idle_poll_ns();
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
  if (frames_) {
    member.reach = reach_of(*frames_, session_->frame_place());
    member.reach.frame->multicast = frames_->takes_groups();
  }
  member.reach.parks = true;
  return member;
}

Result<std::unique_ptr<Transport>> Context::attach_shm(const answer::Place& place,
                                                       control::Heard& joined) {
  auto transport = join_shm(place, joined, copier_);
  if (!transport) return tl::unexpected(transport.error());
  register_again(**transport);
  if (!send_control(request::Attach{}, {(*transport)->region_fd()})) return switch_closed();
  return std::unique_ptr<Transport>(std::move(*transport));
}

Result<void> Context::attach_frames(const answer::Place& place) {
  if (place.group)
    if (auto done = frames_->join_group(*place.group); !done) return done;
  if (auto bound = bind_frames(place, settings_.url, *frames_); !bound) return bound;
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
      engine_->set_epoch(epoch->epoch, now_ns());  // the fallback server was started again
    else
      return tl::unexpected(control::error_of(said));
  }
}

// ---- operations

std::unique_lock<std::mutex> Context::lock_engine() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) return lock;
  contenders_.fetch_add(1);
  wake_driver();
  lock.lock();
  contenders_.fetch_sub(1);
  return lock;
}

/// Whoever drives may be asleep in the transport, which may be replaced meanwhile.
void Context::wake_driver() {
  const std::lock_guard lock(transport_mutex_);
  if (transport_) transport_->wake();
}

Result<Operation*> Context::start(OperationSpec spec, const CollectiveCall* call,
                                  const PlanPointer* plan) {
  if (callers_.failed() != INA_OK) return callers_.failure();
  Operation* operation = nullptr;
  {
    const auto lock = lock_engine();
    if (!result_buffers_.empty())
      if (auto aimed = plan   ? result_buffers_.refuse(spec.recv, (*plan)->peak_bytes(),
                                                       "ina_redistribute: buffer")
                       : call ? result_buffers_.aim(spec, *call)
                              : result_buffers_.aim(spec);
          !aimed)
        return tl::unexpected(aimed.error());
    if (Operation* collected = collect(spec)) return collected;
    transport_->set_idle(false);
    operation = submit(spec, call, plan, now_ns());
    progress();
    running_.store(engine_->running(), std::memory_order_relaxed);
    rest();
  }
  return operation;
}

/// Reductions of floats go other ways if they are to be reproducible.
Operation* Context::submit(const OperationSpec& spec, const CollectiveCall* call,
                           const PlanPointer* plan, Nanos now) {
  if (plan) return submit_redistribution(spec, *plan, now);
  if (call && call->counted) return submit_counted(spec, *call, now);
  if (!settings_.reproducible || spec.elements == 0) return engine_->submit(spec, now);
  if (RankOrder::handles(spec, settings_.world_size)) {
    if (!rank_order_)
      rank_order_.emplace(executor(), RankOrder::Job{.workers = settings_.world_size,
                                                     .rank = engine_->config().rank,
                                                     .slot_bytes = engine_->config().slot_bytes});
    return rank_order_->start(spec, now);
  }
  if (!Reproducible::handles(spec)) return engine_->submit(spec, now);
  if (!reproducible_)
    reproducible_.emplace(executor(),
                          Reproducible::Job{.workers = settings_.world_size,
                                            .rank = engine_->config().rank,
                                            .slot_bytes = engine_->config().slot_bytes});
  return reproducible_->start(spec, now);
}

void Context::release(Operation* operation) {
  if (fused_ && fused_->release(operation)) return;
  if (counted_ && counted_->release(operation)) return;
  if (redistributions_ && redistributions_->release(operation)) return;
  if (!executor_ || !executor_->release(operation)) engine_->release(operation);
}

/// Under mutex_.
Executor& Context::executor() {
  if (!executor_) {
    if (!channel_) channel_.emplace(*engine_);
    Channel* const channels[] = {&*channel_};
    executor_.emplace(channels, kScratchBytes);
  }
  return *executor_;
}

uint64_t Context::overflows() const {
  return engine_->counters().overflows + (reproducible_ ? reproducible_->overflows() : 0) +
         (rank_order_ ? rank_order_->overflows() : 0);
}

size_t Context::receive(Nanos now) {
  RxPacket received[Engine::kBurst];
  const size_t arrived = transport_->rx_burst(received);
  if (arrived != 0) {
    engine_->on_packets(std::span(received, arrived), now, copier_);
    transport_->rx_release();
  }
  return arrived;
}

bool Context::progress() {
  if (away_.load(std::memory_order_relaxed) || closed_) return false;
  TxPacket to_send[Engine::kBurst];
  const Nanos now = now_ns();
  const uint64_t operations = engine_->counters().operations;
  const size_t arrived = receive(now);
  const size_t ready = engine_->prepare(to_send, now);
  size_t sent = 0;
  if (ready != 0) {
    sent = transport_->tx_burst(std::span(to_send, ready));
    engine_->sent(sent, now);
  }
  all_sent_ = sent == ready && ready < Engine::kBurst;
  if (const auto& mismatch = engine_->mismatch(); mismatch && !mismatch_reported_)
    report_mismatch(*mismatch);
  if (!mismatch_reported_ && !disagreement().empty()) report_disagreement();
  if (peer_left_) end_without_peer();
  if (engine_->counters().operations != operations) {
    running_.store(engine_->running(), std::memory_order_relaxed);
    if (callers_.any_asleep()) callers_.wake();
    announce();
  }
  return arrived + sent != 0;
}

/// This worker, or the fallback in it, found that the ranks disagree. The switch tells them all.
void Context::report_mismatch(const aggregator::FallbackMismatch& mismatch) {
  mismatch_reported_ = send_control(request::Mismatch{wire::mismatch_text(
      mismatch.first, mismatch.first_signature, mismatch.other, mismatch.other_signature)});
}

void Context::on_peer_left(const answer::PeerLeft& left) {
  const auto lock = lock_engine();
  if (!peer_left_ || comes_before(left.operations, peer_left_->operations)) peer_left_ = left;
  end_without_peer();
}

/// Under mutex_. An operation that a rank has not called before it left never completes.
void Context::end_without_peer() {
  if (!engine_ || callers_.failed() != INA_OK) return;
  const Operation* const hopeless = engine_->find_running([&](const Operation& operation) {
    return !comes_before(operation.number, peer_left_->operations);
  });
  if (!hopeless) return;
  const std::string text = "rank " + std::to_string(peer_left_->rank) +
                           " has called ina_finalize without calling " + describe(*hopeless);
  send_control(request::Abort{text, peer_left_->rank});
  end(INA_ERR_PEER_LOST, text);
}

/// Under mutex_, by whoever stops driving. When nothing is under way, the switch is to call if
/// something comes for this worker after all: a question by others, or parts of their sums.
void Context::rest() {
  if (engine_->running() != 0 || away_.load()) return;
  if (!transport_->set_idle(true) && all_sent_) return;
  called_ = true;
  kick();
}

void Context::drive(const Operation& operation, Nanos deadline) {
  driving_ = true;
  IdleStrategy& idle = idle_;
  idle.reset();
  while (!operation.done.load(std::memory_order_relaxed)) {
    if (progress()) {
      idle.reset();
      if (contenders_.load(std::memory_order_relaxed) != 0) break;
      continue;
    }
    if (callers_.failed(std::memory_order_relaxed) != INA_OK) break;
    const Nanos now = now_ns();
    if (now >= deadline) break;
    if (idle.idle(now) == IdleStrategy::Step::kSleep) {
      const Nanos until = std::min(deadline, engine_->next_deadline());
      if (until > now) transport_->wait(std::min(idle.sleep_ns(), until - now));
    }
    if (contenders_.load(std::memory_order_relaxed) != 0) break;
  }
  driving_ = false;
}

Context::Waited Context::wait(Operation* operation, Nanos timeout_ns, bool give_up) {
  if (timeout_ns <= 0) timeout_ns = settings_.timeout_ns;
  const Nanos deadline = now_ns() + timeout_ns;
  start_collected(*operation);
  for (;;) {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock) {
      if (callers_.failed() == INA_OK && !away_.load()) drive(*operation, deadline);
      const bool done = operation->done.load(std::memory_order_acquire);
      const bool failed = callers_.failed() != INA_OK;
      if (done || failed) release(operation);
      const bool more = engine_->running() != 0;
      rest();
      lock.unlock();
      if (callers_.any_asleep()) callers_.wake();
      if (more && !failed) kick();
      if (done) return {INA_OK, true};
      if (failed) return {callers_.report_failure(), true};
      if (now_ns() >= deadline) return timed_out(operation, timeout_ns, give_up);
      if (away_.load())
        await_return(deadline);
      else
        ::sched_yield();  // for whoever contends
      continue;
    }
    if (now_ns() >= deadline && !operation->done.load(std::memory_order_acquire))
      return timed_out(operation, timeout_ns, give_up);
    if (operation->done.load(std::memory_order_acquire)) {
      const auto held = lock_engine();
      release(operation);
      return {INA_OK, true};
    }
    // Another thread drives; it notifies when an operation completes or when it stops driving.
    callers_.nap(kNapNs);
  }
}

int Context::test(Operation* operation) {
  start_collected(*operation);
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock && !operation->done.load(std::memory_order_acquire)) return INA_IN_PROGRESS;
  if (!lock) lock = lock_engine();
  const bool failed = callers_.failed() != INA_OK;
  if (!failed && !operation->done.load(std::memory_order_acquire)) progress();
  rest();
  const bool done = operation->done.load(std::memory_order_acquire);
  if (!done && !failed) return INA_IN_PROGRESS;
  release(operation);
  lock.unlock();
  return done ? static_cast<int>(INA_OK) : callers_.report_failure();
}

Context::Waited Context::timed_out(Operation* operation, Nanos waited_ns, bool give_up) {
  std::string what;
  {
    const auto lock = lock_engine();
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
  end(INA_ERR_TIMEOUT, text);
  const auto lock = lock_engine();
  release(operation);
  return {callers_.report_failure(), true};
}

std::string Context::describe(const Operation& operation) const {
  const OperationSpec& spec = operation.spec;
  std::string text = "operation " + std::to_string(operation.number) + " (";
  if (spec.collective == Collective::kBarrier)
    text += "barrier";
  else
    text += std::string(name(spec.collective)) + " of " + std::to_string(spec.elements) + " " +
            std::string(name(spec.dtype)) +
            (is_moved(spec.collective) ? "" : " " + std::string(name(spec.op)));
  return text + "): " + std::to_string(operation.complete) + " of " +
         std::to_string(operation.fragments) + " fragments complete";
}

/// Under the lock of callers_. What is known of this worker's frames beyond what `said` says of them.
std::string Context::trouble_text(const std::string& said) const {
  std::string text;
  if (!dropped_text_.empty() && said.find("the switch dropped") == std::string::npos)
    text = "; " + dropped_text_;
  const std::string own = frames_ ? frames_->trouble() : "";
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
  const auto lock = lock_engine();
  rest();
}

/// False: left it to somebody who wants the engine.
bool Context::drive_in_background() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) {
    ::usleep(100);
    return true;
  }
  const bool called = called_.exchange(false);
  if (called) transport_->set_idle(false);
  IdleStrategy idle(settings_.idle == IdleMode::kSpin ? IdleMode::kYield : settings_.idle);
  Nanos linger_until = 0;
  const auto mine = [&] {
    if (contenders_.load() != 0 || !going_on() || completions_.due()) return false;
    return engine_->running() != 0 ? !callers_.any_asleep() : called;
  };
  while (mine()) {
    if (progress()) {
      idle.reset();
      linger_until = now_ns() + kLingerNs;
      continue;
    }
    const Nanos now = now_ns();
    if (engine_->running() == 0) {
      // What comes next is cheaper to take in while still here.
      if (now >= linger_until) break;
      transport_->wait(linger_until - now);
    } else if (idle.idle(now) == IdleStrategy::Step::kSleep) {
      const Nanos left = engine_->next_deadline() - now;
      if (left > 0) {
        session_->sleeps_in(this);
        transport_->wait(std::min({idle.sleep_ns(), left, kBackgroundSleepNs}));
        session_->sleeps_in(nullptr);
      }
      break;
    }
  }
  rest();
  const bool wanted = contenders_.load() != 0;
  lock.unlock();
  ::sched_yield();
  return !wanted;
}

bool Context::drive_briefly() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || callers_.failed() != INA_OK) return false;
  if (called_.exchange(false)) transport_->set_idle(false);
  bool any = false;
  for (int rounds = 0; rounds < kBriefRounds && contenders_.load() == 0 && progress(); ++rounds)
    any = true;
  rest();
  return any;
}

void Context::on_control(control::Heard& heard) {
  std::visit(
      control::Overloaded{
          [&](const answer::Abort&) { end_by_switch(control::error_of(heard.message)); },
          [&](const answer::Refused&) { end_by_switch(control::error_of(heard.message)); },
          [&](const answer::Wake&) { called_ = true; },
          [&](const answer::Split& split) { on_split(split); },
          [&](const answer::Joined& joined) { on_joined(joined, heard); },
          [&](const answer::Ready& ready) { on_ready(ready); },
          [&](const answer::Registered& registered) { on_registered(registered); },
          [&](const answer::Results& results) { on_results(results, heard); },
          [&](const answer::Epoch& epoch) {
            const auto lock = lock_engine();
            if (engine_) engine_->set_epoch(epoch.epoch, now_ns());
          },
          [&](const answer::Explain& explain) { callers_.tell([&] { explanation_ = explain.text; }); },
          [&](const answer::Dropped& dropped) { callers_.tell([&] { dropped_text_ = dropped.text; }); },
          [&](const answer::Left&) { callers_.tell([&] { left_ = true; }); },
          [&](const answer::PeerLeft& left) { on_peer_left(left); },
          [&](const answer::Waiting& waiting) {
            callers_.tell([&] {
              if (away_.load() || !live_.load()) others_missing_ = missing_text(waiting);
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
  end(giving_up && error.status == INA_ERR_ABORTED ? INA_ERR_TIMEOUT : error.status, error.text);
}

void Context::end(int status, const std::string& text) {
  if (!callers_.fail(status, text)) return;
  wake_driver();
  announce();
  kick();
}

int Context::leave(Nanos timeout_ns) {
  if (timeout_ns <= 0) timeout_ns = settings_.timeout_ns;
  {
    const auto lock = lock_engine();
    if (callers_.failed() != INA_OK) return callers_.report_failure();
    if (fused_) fused_->submit_collected(now_ns());
    // The switch takes the closed connection for a lost worker, which is what the others must hear.
    if (engine_->running() != 0) return set_error(INA_ERR_ABORTED, "left with " + running_text());
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
  const request::Leave leave{engine_->operations_submitted()};  // no call follows
  // Or it could reach the next switch, which refuses it while the job gathers.
  const auto state = callers_.lock();
  if (!away_.load() && session_->send_leave(id_, leave)) leave_ever_sent_ = true;
}

/// Under mutex_; something runs.
std::string Context::running_text() const {
  return std::to_string(engine_->running()) +
         " operations running, the oldest: " + describe(*engine_->oldest());
}

/// Its job is left, and it with it, unless something is still under way. Returns what, or nothing.
std::string Context::leave_with_job() {
  {
    const auto lock = lock_engine();
    if (!live_.load() || callers_.failed() != INA_OK) return {};
    if (engine_->running() != 0) return running_text();
  }
  leaving_ = true;
  send_leave();
  return {};
}

void Context::close() {
  {
    const auto lock = lock_engine();
    closed_ = true;
    running_ = 0;
    called_ = false;
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
  completions_.give_up(failed != INA_OK ? failed : static_cast<int>(INA_ERR_ABORTED));
}

void Context::call_back(Operation* operation, void (*call)(void*, int), void* argument) {
  start_collected(*operation);
  completions_.add(operation, call, argument);
  // Of a group whose job was left: there is no background thread any more.
  if (session_->stopping()) return run_callbacks();
  session_->kick_at_once();
}

/// Operations have completed, or the job has failed.
void Context::announce() {
  if (completions_.announce()) kick();
}

void Context::run_callbacks() {
  completions_.run(callers_.failed_status(), [this](Operation* operation, bool done) {
    {
      const auto lock = lock_engine();
      release(operation);
    }
    return done ? static_cast<int>(INA_OK) : callers_.report_failure();
  });
}

void Context::set_hints(const scheduler::Hints& hints) {
  const auto lock = lock_engine();
  engine_->set_hints(hints, now_ns());
}

void Context::stats(ina_stats& stats) {
  const auto lock = lock_engine();
  const EngineCounters& engine = engine_->counters();
  const TransportCounters transport = transport_->counters();
  stats.operations = engine.operations;
  if (executor_)
    stats.operations += executor_->counters().schedules - executor_->counters().operations;
  if (fused_) stats.operations += fused_->counters().tensors - fused_->counters().operations;
  stats.fragments_sent = engine.fragments_sent;
  stats.fragments_resent = engine.fragments_resent;
  stats.results_received = engine.results;
  stats.bytes_sent = engine.bytes_sent;
  stats.bytes_received = engine.bytes_received;
  stats.sleeps = lost_counters_.sleeps + transport.sleeps;
  stats.dropped = lost_counters_.dropped + transport.dropped + engine.results_ignored;
  stats.overflows = overflows();
  stats.queries = engine.queries;
  stats.bytes_by_switch = engine.bytes_received - engine.bytes_by_fallback;
  stats.bytes_by_fallback = engine.bytes_by_fallback;
  stats.bytes_copied = lost_counters_.bytes_copied + transport.bytes_copied + engine.bytes_copied;
  stats.packets_sent = engine.packets_sent;
  stats.packets_received = engine.packets_received;
  stats.payload_packets_sent = engine.payloads_sent;
  stats.payload_packets_received = engine.payloads_received;
  stats.priority = engine.priority;
}

bool Context::overflowed(bool clear) {
  const auto lock = lock_engine();
  const uint64_t now = overflows();
  const bool result = now != overflows_cleared_.load();
  if (clear) overflows_cleared_ = now;
  return result;
}

}  // namespace ina::client
