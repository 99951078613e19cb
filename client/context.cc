#include "client/context.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
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

using control::Json;
using namespace std::chrono_literals;

// ---- fork: a child must neither use the parent's context nor keep its sockets open.

std::atomic<uint32_t> fork_generation{0};
std::mutex registry_mutex;
std::vector<Context*> registry;

void before_fork() {
  registry_mutex.lock();
}
void after_fork_in_parent() {
  registry_mutex.unlock();
}
void after_fork_in_child() {
  fork_generation.fetch_add(1);
  for (Context* context : registry) context->close_after_fork();
  registry.clear();
  registry_mutex.unlock();
}

void register_context(Context* context) {
  static const int once = ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  (void)once;
  const std::lock_guard lock(registry_mutex);
  registry.push_back(context);
}

void unregister_context(Context* context) {
  const std::lock_guard lock(registry_mutex);
  std::erase(registry, context);
}

// Between requests to join a switch that has no room, doubling.
constexpr Nanos kFirstPauseNs = 5'000'000;
constexpr Nanos kLongestPauseNs = 200'000'000;
// How long a switch that is not there is waited for, unless somebody said how long.
constexpr Nanos kAbsentNs = 500'000'000;
// How long a worker that gave up waits for the switch to say for whom it waited.
constexpr Nanos kExplainNs = 1'000'000'000;
// How long the background thread leaves a fresh operation to a caller who is about to wait for it.
constexpr int kGraceMs = 1;
// While the engine is driven in the background the control socket is looked at this often.
constexpr Nanos kBackgroundSleepNs = 5'000'000;
// How long the background thread waits for more after it was called.
constexpr Nanos kLingerNs = 1'000'000;
// Scratch memory of all schedules that are under way: two reproducible sums of large tensors.
constexpr size_t kScratchBytes = size_t{5} << 20;

}  // namespace

Context::Context(const Settings& settings)
    : settings_(settings),
      fork_generation_(fork_generation.load()),
      copier_(settings.copy_threads, settings.world_size),
      idle_(settings.idle),
      kick_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Context::~Context() {
  if (background_.joinable()) {
    stopping_ = true;
    kick();
    background_.join();
    unregister_context(this);
  }
}

bool Context::forked() const {
  return fork_generation_ != fork_generation.load();
}

void Context::close_after_fork() {
  control_.close();
  kick_event_.reset();
}

/// A child that is forked meanwhile must find the connection in control_ or not at all: a fork
/// waits for this, over TCP up to half a second while the switch's host does not answer.
Result<void> Context::connect() {
  const std::lock_guard registered(registry_mutex);
  auto connection = control::Connection::open(control_path_, 0, tls_);
  if (!connection) return tl::unexpected(connection.error());
  const std::lock_guard lock(connection_mutex_);
  control_ = std::move(*connection);
  leave_sent_ = false;
  return {};
}

void Context::disconnect() {
  const std::lock_guard registered(registry_mutex);
  const std::lock_guard lock(connection_mutex_);
  control_.close();
}

// ---- joining

Result<std::unique_ptr<Context>> Context::join(const Settings& settings) {
  auto url = parse_url(settings.url);
  if (!url) return tl::unexpected(url.error());
  if (url->scheme != "shm" && url->scheme != "memif" && url->scheme != "udp" &&
      url->scheme != "dpdk")
    return fail(INA_ERR_INVALID,
                "url '" + settings.url + "' has no known transport: use " +
                    "shm:/path/of/switch.sock, udp:ADDRESS?control=..., " +
                    "dpdk:ADDRESS?control=... or memif:/path/of/memif.sock?ip=...");
  const Nanos deadline = now_ns() + settings.timeout_ns;
  std::unique_ptr<Context> context(new Context(settings));
  if (auto opened = context->open(*url, deadline); !opened) return tl::unexpected(opened.error());
  // The background thread must not take the host program's signals.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  context->background_ = std::thread([raw = context.get()] { raw->background(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  register_context(context.get());
  if (context->away_.load()) context->await_return(deadline);
  if (const int status = context->failure(); status != INA_OK)
    return fail(static_cast<ina_status>(status), context->last_error());
  if (context->away_.load()) return fail(INA_ERR_TIMEOUT, context->away_text());
  return context;
}

Result<void> Context::open(const Url& url, Nanos deadline) {
  control_path_ = url.path;
  if (url.scheme == "memif")
    if (auto served = await_listener(url.path, absent_ns()); !served) return served;
  if (url.scheme != "shm") {
    auto opened = open_frame_transport(url, deadline - now_ns());
    if (!opened) return tl::unexpected(opened.error());
    frames_ = opened->get();
    transport_ = std::move(*opened);
    auto place = frame_place_of(url);
    if (!place) return tl::unexpected(place.error());
    frame_place_ = std::move(*place);
    control_path_ = url.get("control", control::kDefaultSocket);
  } else if (auto known = url.check_keys({}); !known) {
    return known;
  }
  tls_ = {settings_.tls, control::is_tls(control_path_) ? control::host_of(control_path_) : ""};
  // Once: who comes back must not wait for a name server while a fork waits for it.
  auto resolved = control::resolve(control_path_);
  if (!resolved) return tl::unexpected(resolved.error());
  control_path_ = std::move(*resolved);
  auto reply = ask_to_join(deadline);
  if (!reply) return tl::unexpected(reply.error());
  try {
    control::Received& received = *reply;
    const Json& body = received.body;
    if (body.at("type") != "joined") return tl::unexpected(error_of(body));
    EngineConfig config;
    config.rank = Rank{static_cast<uint8_t>(settings_.rank)};
    config.workers = settings_.world_size;
    config.results_stay = frames_ == nullptr;
    config.lossy_link = frames_ != nullptr;
    config.epoch = body.at("epoch").get<uint32_t>();
    config.window = body.at("window").get<uint32_t>();
    config.slot_bytes = body.at("slot_bytes").get<uint32_t>();
    config.lanes = body.at("lanes").get<uint32_t>();
    const auto policy =
        value_in(scheduler::kPolicyNames, body.at("policy").get_ref<const std::string&>());
    config.fixed_slots = policy && !scheduler::traits(*policy).hashed;
    config.home =
        value_in(kHomeNames, body.at("home").get_ref<const std::string&>()).value_or(Home::kSpill);
    config.priority_max = body.at("priority_max").get<uint8_t>();
    config.congestion_window = body.at("ecn").get<bool>();
    config.aggregator_window = body.at("aggregator_window").get<bool>();
    config.rto_min_ns = body.at("rto_min_us").get<Nanos>() * 1000;
    config.rto_max_ns = body.at("rto_max_us").get<Nanos>() * 1000;
    config.in_switch = body.value("in_switch", uint32_t{0});  // only where stragglers get help
    config.park_room = body.value("park_room", uint32_t{0});
    // Contributions that find no slot meet in the workers' rows for payloads, maybe all in one's.
    if (!frames_ && !config.fixed_slots)
      config.first_window = std::max(
          1u, config.lanes * body.at("shm").at("side_rows").get<uint32_t>() / config.workers);
    if (config.window == 0 || config.lanes == 0)
      return fail(INA_ERR_INTERNAL, "the switch granted an empty window");
    job_id_ = body.at("job_id").get<uint32_t>();
    job_key_ = body.at("job_key").get<uint64_t>();
    engine_ = std::make_unique<Engine>(config);
    if (frames_) {
      if (auto attached = attach_frames(body); !attached) return attached;
    } else {
      auto attached = attach_shm(received);
      if (!attached) return tl::unexpected(attached.error());
      transport_ = std::move(*attached);
    }
  } catch (const Json::exception& e) {
    return fail(INA_ERR_INTERNAL, std::string("malformed answer of the switch: ") + e.what());
  }
  return await_ready(deadline);
}

/// Connects, and says `join`; again if the switch has no room just now, until `deadline`.
Result<control::Received> Context::ask_to_join(Nanos deadline) {
  Json join = join_message("join");
  join["window_bytes"] = settings_.window_bytes;
  std::optional<control::Received> refusal;
  for (Nanos pause_ns = kFirstPauseNs;; pause_ns = std::min(2 * pause_ns, kLongestPauseNs)) {
    // Nobody asked to wait for a switch to start: then there is none, and its user wants to know.
    auto connection =
        control::Connection::open(control_path_, deadline - now_ns(), tls_, absent_ns());
    if (!connection)
      return fail(connection.error().status,
                  connection.error().text + absent_hint(connection.error().status));
    control_ = std::move(*connection);
    auto reply = control_.ask(join, deadline - now_ns());
    if (!reply) return tl::unexpected(reply.error());
    // An attempt that the deadline cuts short says less than the one before.
    if (!*reply && refusal) return std::move(*refusal);
    if (!*reply)
      return fail(INA_ERR_TIMEOUT,
                  "the switch at " + control_path_ + " did not answer the request to join");
    if (!control::is_no_room((*reply)->body) || now_ns() + pause_ns >= deadline)
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

Json Context::join_message(const char* type) const {
  Json message = {{"type", type},
                  {"version", control::kControlVersion},
                  {"library", ina_version()},
                  {"job", settings_.job},
                  {"rank", settings_.rank},
                  {"world_size", settings_.world_size},
                  {"parks", true},
                  {"transport", "shm"}};
  if (!settings_.job_owner.empty()) message["owner"] = settings_.job_owner;
  if (!settings_.ticket.empty())
    message["ticket"] = settings_.ticket;
  else if (control::is_remote(control_path_) && !settings_.token.empty())
    message["token"] = settings_.token;
  if (frames_) {
    add_frames(message, *frames_, frame_place_);
    message["multicast"] = frames_->takes_groups();
  }
  return message;
}

Result<std::unique_ptr<Transport>> Context::attach_shm(control::Received& joined) {
  auto transport = join_shm(joined, copier_);
  if (!transport) return tl::unexpected(transport.error());
  register_again(**transport);
  if (auto sent = control_.send({{"type", "attach"}}, {(*transport)->region_fd()}); !sent)
    return tl::unexpected(sent.error());
  return std::unique_ptr<Transport>(std::move(*transport));
}

Result<void> Context::attach_frames(const Json& joined) {
  if (joined.contains("group"))
    if (auto done = frames_->join_group(address_of(joined.at("group"))); !done) return done;
  if (auto bound = bind_frames(joined, settings_.url, *frames_); !bound) return bound;
  return control_.send({{"type", "attach"}});
}

Result<void> Context::await_ready(Nanos deadline) {
  std::string missing = "the other ranks";
  for (;;) {
    auto message = control_.receive(std::max<Nanos>(0, deadline - now_ns()));
    if (!message && message.error().status == INA_ERR_SWITCH_LOST) {
      // The job may run already: the switch tells one worker after the other.
      go_away();
      return {};
    }
    if (!message) return tl::unexpected(message.error());
    if (!*message)
      return fail(INA_ERR_TIMEOUT, "rank " + std::to_string(settings_.rank) + " of job '" +
                                       settings_.job + "' waited " + seconds(settings_.timeout_ns) +
                                       " for " + missing + " to join at " + settings_.url);
    const Json& body = (*message)->body;
    const std::string type = body.value("type", std::string());
    if (type == "ready") return {};
    if (type == "waiting" && body.contains("missing"))
      missing = missing_text(body);
    else if (type == "epoch")  // the fallback server was started again meanwhile
      engine_->set_epoch(body.value("epoch", uint32_t{0}), now_ns());
    else
      return tl::unexpected(error_of(body));
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
  const std::lock_guard lock(connection_mutex_);
  transport_->wake();
}

Result<Operation*> Context::start(OperationSpec spec) {
  if (failed_.load() != INA_OK) {
    const int status = failure();
    return fail(static_cast<ina_status>(status), last_error());
  }
  Operation* operation = nullptr;
  {
    const auto lock = lock_engine();
    if (!shared_.empty())
      if (auto aimed = aim(spec); !aimed) return tl::unexpected(aimed.error());
    if (Operation* collected = collect(spec)) return collected;
    transport_->set_idle(false);
    operation = submit(spec, now_ns());
    progress();
    running_.store(engine_->running(), std::memory_order_relaxed);
    rest();
  }
  return operation;
}

/// Sums of floats go another way if they are to be reproducible.
Operation* Context::submit(const OperationSpec& spec, Nanos now) {
  if (!settings_.reproducible || spec.elements == 0 || !Reproducible::handles(spec))
    return engine_->submit(spec, now);
  if (!reproducible_) reproducible_.emplace(executor(), settings_.world_size);
  return reproducible_->start(spec, now);
}

void Context::release(Operation* operation) {
  if (fused_ && fused_->release(operation)) return;
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
  return engine_->counters().overflows + (reproducible_ ? reproducible_->overflows() : 0);
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
  if (away_.load(std::memory_order_relaxed)) return false;
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
  if (const aggregator::Fallback* fallback = engine_->fallback();
      fallback && fallback->mismatch() && !mismatch_reported_)
    report_mismatch(*fallback->mismatch());
  if (engine_->counters().operations != operations) {
    running_.store(engine_->running(), std::memory_order_relaxed);
    if (sleepers_.load() != 0) cv_.notify_all();
  }
  return arrived + sent != 0;
}

/// The fallback in this worker found that the ranks disagree. The switch tells them all.
void Context::report_mismatch(const aggregator::FallbackMismatch& mismatch) {
  mismatch_reported_ =
      send_control({{"type", "mismatch"},
                    {"text", wire::mismatch_text(mismatch.first, mismatch.first_signature,
                                                 mismatch.other, mismatch.other_signature)}});
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
    if (failed_.load(std::memory_order_relaxed) != INA_OK) break;
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
      if (failed_.load() == INA_OK && !away_.load()) drive(*operation, deadline);
      const bool done = operation->done.load(std::memory_order_acquire);
      const bool failed = failed_.load() != INA_OK;
      if (done || failed) release(operation);
      const bool more = engine_->running() != 0;
      rest();
      lock.unlock();
      if (sleepers_.load() != 0) cv_.notify_all();
      if (more && !failed) kick();
      if (done) return {INA_OK, true};
      if (failed) return {failure(), true};
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
    std::unique_lock state(state_mutex_);
    sleepers_.fetch_add(1);
    cv_.wait_for(state, 1ms);
    sleepers_.fetch_sub(1);
  }
}

int Context::test(Operation* operation) {
  start_collected(*operation);
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock && !operation->done.load(std::memory_order_acquire)) return INA_IN_PROGRESS;
  if (!lock) lock = lock_engine();
  const bool failed = failed_.load() != INA_OK;
  if (!failed && !operation->done.load(std::memory_order_acquire)) progress();
  rest();
  const bool done = operation->done.load(std::memory_order_acquire);
  if (!done && !failed) return INA_IN_PROGRESS;
  release(operation);
  lock.unlock();
  return done ? static_cast<int>(INA_OK) : failure();
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
    const std::lock_guard state(state_mutex_);
    giving_up_ = true;
    text += trouble_text(text);  // for the other ranks, too
  }
  if (const std::string away = away_text(); !away.empty()) text += "; " + away;
  if (send_control({{"type", "abort"}, {"text", text}})) {
    std::unique_lock state(state_mutex_);
    sleepers_.fetch_add(1);
    cv_.wait_for(state, std::chrono::nanoseconds(kExplainNs),
                 [&] { return failed_.load() != INA_OK; });
    sleepers_.fetch_sub(1);
    text += "; the switch did not answer either";
  }
  end(INA_ERR_TIMEOUT, text);
  const auto lock = lock_engine();
  release(operation);
  return {failure(), true};
}

std::string Context::describe(const Operation& operation) const {
  const OperationSpec& spec = operation.spec;
  std::string text = "operation " + std::to_string(operation.number) + " (";
  if (spec.collective == Collective::kBarrier)
    text += "barrier";
  else
    text += std::string(name(spec.collective)) + " of " + std::to_string(spec.elements) + " " +
            std::string(name(spec.dtype)) + " " + std::string(name(spec.op));
  return text + "): " + std::to_string(operation.complete) + " of " +
         std::to_string(operation.fragments) + " fragments complete";
}

/// Under state_mutex_. What is known of this worker's frames beyond what `said` says of them.
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
  std::unique_lock state(state_mutex_);
  explanation_.clear();
  if (!send_control({{"type", "explain"}})) return "the switch does not answer";
  sleepers_.fetch_add(1);
  cv_.wait_for(state, std::chrono::nanoseconds(kExplainNs),
               [&] { return !explanation_.empty() || failed_.load() != INA_OK; });
  sleepers_.fetch_sub(1);
  if (!explanation_.empty()) return explanation_ + trouble_text(explanation_);
  return failure_text_.empty() ? "the switch does not answer" : failure_text_;
}

// ---- the background thread

void Context::kick() {
  if (kicked_.exchange(true)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(kick_event_.get(), &one, sizeof(one));
}

void Context::background() {
  ::pthread_setname_np(::pthread_self(), "ina-background");
  const Nanos idle_poll_ns = transport_->idle_poll_ns();
  const int idle_poll_ms = idle_poll_ns == 0 ? -1 : static_cast<int>(idle_poll_ns / 1'000'000);
  {
    const auto lock = lock_engine();
    rest();
  }
  while (!stopping_.load()) {
    if (away_.load() && failed_.load() == INA_OK) {
      rejoin();
      continue;
    }
    const bool needed =
        (running_.load() != 0 || called_.load()) && !driving_.load() && failed_.load() == INA_OK;
    pollfd fds[2] = {{control_.fd(), control_.events(), 0}, {kick_event_.get(), POLLIN, 0}};
    // A context whose switch is gone has nothing more to hear.
    const nfds_t first = failed_.load() == INA_OK ? 0 : 1;
    const int events = ::poll(fds + first, 2 - first, needed ? 0 : first == 0 ? idle_poll_ms : -1);
    if (events == 0 && !needed) called_ = true;
    if (first == 0 && fds[0].revents != 0) read_control();
    if (fds[1].revents != 0) {
      if (!stopping_.load()) ::poll(fds, first == 0 ? 1 : 0, kGraceMs);
      drain_kicks();
    }
    // Whoever wanted the engine is about to drive it, too.
    if (needed && !drive_in_background()) ::poll(fds, 1, kGraceMs);
  }
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
    if (contenders_.load() != 0 || failed_.load() != INA_OK || stopping_.load()) return false;
    return engine_->running() != 0 ? sleepers_.load() == 0 : called;
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
      if (left > 0) transport_->wait(std::min({idle.sleep_ns(), left, kBackgroundSleepNs}));
      break;
    }
  }
  rest();
  const bool wanted = contenders_.load() != 0;
  lock.unlock();
  ::sched_yield();
  return !wanted;
}

void Context::drain_kicks() {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = ::read(kick_event_.get(), &count, sizeof(count));
  kicked_ = false;
}

void Context::read_control() {
  do {
    auto received = control_.receive(0);
    if (!received && received.error().status == INA_ERR_INTERNAL)
      return end(INA_ERR_INTERNAL, received.error().text);
    if (!received) return go_away();
    if (!*received) return;
    try {
      on_control(**received);
    } catch (const Json::exception& e) {
      return end(INA_ERR_INTERNAL, std::string("malformed message of the switch: ") + e.what());
    }
  } while (control_.buffered());
}

void Context::on_control(control::Received& received) {
  const Json& body = received.body;
  const Json type = body.value("type", Json());
  if (type == "abort" || type == "refused") return end_by_switch(body);
  if (type == "wake") {
    called_ = true;
    return;
  }
  if (type == "registered") return on_registered(body);
  if (type == "results") return on_results(received);
  if (type == "epoch") {
    const auto lock = lock_engine();
    engine_->set_epoch(body.value("epoch", uint32_t{0}), now_ns());
    return;
  }
  {
    const std::lock_guard state(state_mutex_);
    if (type == "explain") explanation_ = error_of(body).text;
    if (type == "dropped") dropped_text_ = error_of(body).text;
    if (type == "left") left_ = true;
  }
  cv_.notify_all();
}

bool Context::send_control(const Json& message, const std::vector<int>& descriptors) {
  const std::lock_guard lock(connection_mutex_);
  const bool sent = control_.send(message, descriptors).has_value();
  if (control_.pending()) kick();  // the background thread sends the rest
  return sent;
}

// ---- errors and the end

void Context::end_by_switch(const Json& message) {
  bool giving_up = false;
  Error error = error_of(message);
  {
    const std::lock_guard state(state_mutex_);
    giving_up = giving_up_;
    if (error.status == INA_ERR_ABORTED || error.status == INA_ERR_TIMEOUT)
      error.text += trouble_text(error.text);
  }
  end(giving_up && error.status == INA_ERR_ABORTED ? INA_ERR_TIMEOUT : error.status, error.text);
}

void Context::end(int status, const std::string& text) {
  {
    const std::lock_guard state(state_mutex_);
    if (failed_.load() != INA_OK) return;
    failure_text_ = text;
    failed_.store(status);
  }
  cv_.notify_all();
  wake_driver();
  kick();
}

int Context::failure() {
  const std::lock_guard state(state_mutex_);
  last_error_ = failure_text_;
  return failed_.load();
}

int Context::set_error(int status, std::string text) {
  const std::lock_guard state(state_mutex_);
  last_error_ = std::move(text);
  return status;
}

std::string Context::last_error() const {
  const std::lock_guard state(state_mutex_);
  return last_error_;
}

int Context::leave(Nanos timeout_ns) {
  if (timeout_ns <= 0) timeout_ns = settings_.timeout_ns;
  {
    const auto lock = lock_engine();
    if (failed_.load() != INA_OK) return failure();
    if (fused_) fused_->submit_collected(now_ns());
    // The switch takes the closed connection for a lost worker, which is what the others must hear.
    if (engine_->running() != 0)
      return set_error(INA_ERR_ABORTED,
                       "left with " + std::to_string(engine_->running()) +
                           " operations running, the oldest: " + describe(*engine_->oldest()));
  }
  // If the switch is away, the background thread says it once it is back.
  leaving_ = true;
  send_leave();
  std::unique_lock state(state_mutex_);
  const bool ended = cv_.wait_for(state, std::chrono::nanoseconds(timeout_ns),
                                  [&] { return left_ || failed_.load() != INA_OK; });
  if (left_) return INA_OK;
  if (ended) {
    last_error_ = failure_text_;
    return failed_.load();
  }
  state.unlock();
  const std::string away = away_text();
  return set_error(INA_ERR_TIMEOUT,
                   "left after waiting " + seconds(timeout_ns) +
                       (away.empty() ? " for the other ranks to call ina_finalize" : ": " + away));
}

void Context::send_leave() {
  const std::lock_guard lock(connection_mutex_);
  if (away_.load() || leave_sent_) return;
  leave_sent_ = control_.send({{"type", "leave"}}).has_value();
  if (leave_sent_) leave_ever_sent_ = true;
  if (control_.pending()) kick();
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
  stats.bytes_copied = lost_counters_.bytes_copied + transport.bytes_copied + engine.bytes_copied;
}

bool Context::overflowed(bool clear) {
  const auto lock = lock_engine();
  const uint64_t now = overflows();
  const bool result = now != overflows_cleared_.load();
  if (clear) overflows_cleared_ = now;
  return result;
}

}  // namespace ina::client
