#include "client/src/context.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "client/src/shm_transport.h"
#include "common/clock.h"
#include "control/client.h"

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

std::string seconds(Nanos ns) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g s", static_cast<double>(ns) * 1e-9);
  return text;
}

std::string rank_list(const Json& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + ranks[i].dump();
  return text;
}

Error error_of(const Json& message) {
  return {static_cast<ina_status>(message.value("status", static_cast<int>(INA_ERR_INTERNAL))),
          message.value("text", std::string("the switch gave no reason"))};
}

// How long a worker that gave up waits for the switch to say for whom it waited.
constexpr Nanos kExplainNs = 1'000'000'000;
// How long the background thread leaves a fresh operation to a caller who is about to wait for it.
constexpr int kGraceMs = 1;
// While the engine is driven in the background the control socket is looked at this often.
constexpr Nanos kBackgroundSleepNs = 5'000'000;

}  // namespace

Context::Context(const Settings& settings)
    : settings_(settings),
      fork_generation_(fork_generation.load()),
      copier_(settings.copy_threads, settings.world_size),
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

// ---- joining

Result<std::unique_ptr<Context>> Context::join(const Settings& settings) {
  auto url = parse_url(settings.url);
  if (!url) return tl::unexpected(url.error());
  if (url->scheme != "shm" && url->scheme != "memif")
    return fail(INA_ERR_INVALID,
                "url '" + settings.url + "' has no known transport: use " +
                    "shm:/path/of/switch.sock or memif:/path/of/memif.sock?ip=...");
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
  return context;
}

Result<void> Context::open(const Url& url, Nanos deadline) {
  std::unique_ptr<FrameTransport> frames;
  std::string control_path = url.path;
  if (url.scheme == "memif") {
    auto opened = open_frame_transport(url.text, deadline - now_ns());
    if (!opened) return tl::unexpected(opened.error());
    frames = std::move(*opened);
    control_path = url.get("control", control::kDefaultSocket);
  } else if (auto known = url.check_keys({}); !known) {
    return known;
  }
  auto connection = control::Connection::open(control_path, deadline - now_ns());
  if (!connection) return tl::unexpected(connection.error());
  control_ = std::move(*connection);
  Json join = {{"type", "join"},
               {"version", control::kControlVersion},
               {"library", ina_version()},
               {"job", settings_.job},
               {"rank", settings_.rank},
               {"world_size", settings_.world_size},
               {"window_bytes", settings_.window_bytes},
               {"transport", frames ? "frame" : "shm"}};
  if (frames) {
    const wire::Address own = frames->address();
    join["address"] = {{"mac", own.mac}, {"ip", own.ip}, {"udp_port", own.udp_port}};
    join["port"] = url.get("port");
  }
  if (auto sent = control_.send(join); !sent) return sent;
  auto reply = control_.receive(deadline - now_ns());
  if (!reply) return tl::unexpected(reply.error());
  if (!*reply)
    return fail(INA_ERR_TIMEOUT,
                "the switch at " + control_path + " did not answer the request to join");
  try {
    control::Received& received = **reply;
    const Json& body = received.body;
    if (body.at("type") != "joined") return tl::unexpected(error_of(body));
    EngineConfig config;
    config.rank = Rank{static_cast<uint8_t>(settings_.rank)};
    config.workers = settings_.world_size;
    config.results_stay = !frames;
    config.epoch = body.at("epoch").get<uint32_t>();
    config.window = body.at("window").get<uint32_t>();
    config.slot_bytes = body.at("slot_bytes").get<uint32_t>();
    config.lanes = body.at("lanes").get<uint32_t>();
    if (config.window == 0 || config.lanes == 0)
      return fail(INA_ERR_INTERNAL, "the switch granted an empty window");
    engine_ = std::make_unique<Engine>(config);
    auto attached = frames ? attach_frames(std::move(frames), body) : attach_shm(received);
    if (!attached) return attached;
  } catch (const Json::exception& e) {
    return fail(INA_ERR_INTERNAL, std::string("malformed answer of the switch: ") + e.what());
  }
  return await_ready(deadline);
}

Result<void> Context::attach_shm(control::Received& joined) {
  const EngineConfig& config = engine_->config();
  const Json& shm = joined.body.at("shm");
  if (const auto layout = shm.at("layout").get<uint32_t>(); layout != io::shm::kLayoutVersion)
    return fail(INA_ERR_VERSION, "the switch (" + joined.body.value("library", std::string("?")) +
                                     ") uses shm layout " + std::to_string(layout) + ", libina " +
                                     ina_version() + " layout " +
                                     std::to_string(io::shm::kLayoutVersion));
  const io::shm::Geometry geometry{config.lanes, shm.at("tx_depth").get<uint32_t>(),
                                   shm.at("rx_depth").get<uint32_t>(), config.slot_bytes,
                                   shm.at("result_rows").get<uint32_t>()};
  if (joined.fds.size() != 2 + config.lanes)
    return fail(INA_ERR_INTERNAL, "the switch sent an incomplete answer to the request to join");
  std::vector<Fd> events(std::make_move_iterator(joined.fds.begin() + 2),
                         std::make_move_iterator(joined.fds.end()));
  auto transport =
      ShmTransport::create(geometry, joined.fds[0], joined.fds[1], std::move(events), copier_);
  if (!transport) return tl::unexpected(transport.error());
  const int region = (*transport)->region_fd();
  transport_ = std::move(*transport);
  return control_.send({{"type", "attach"}}, {region});
}

Result<void> Context::attach_frames(std::unique_ptr<FrameTransport> frames, const Json& joined) {
  const EngineConfig& config = engine_->config();
  if (config.slot_bytes > frames->max_slot_bytes())
    return fail(INA_ERR_INVALID, "fragments of the switch's " + std::to_string(config.slot_bytes) +
                                     "-byte slots do not fit the frames of " + settings_.url +
                                     ", which carry " + std::to_string(frames->max_slot_bytes()) +
                                     " bytes: raise mtu");
  const Json& address = joined.at("address");
  FrameBinding binding;
  binding.own = frames->address();
  binding.switch_address = {address.at("mac").get<wire::MacAddress>(),
                            address.at("ip").get<uint32_t>(),
                            address.at("udp_port").get<uint16_t>()};
  binding.job = JobId{joined.at("job_id").get<uint32_t>()};
  binding.job_key = joined.at("job_key").get<uint64_t>();
  binding.lanes = static_cast<uint16_t>(config.lanes);
  binding.slot_bytes = config.slot_bytes;
  frames->bind(binding);
  transport_ = std::move(frames);
  return control_.send({{"type", "attach"}});
}

Result<void> Context::await_ready(Nanos deadline) {
  std::string missing = "the other ranks";
  for (;;) {
    auto message = control_.receive(std::max<Nanos>(0, deadline - now_ns()));
    if (!message) return tl::unexpected(message.error());
    if (!*message)
      return fail(INA_ERR_TIMEOUT, "rank " + std::to_string(settings_.rank) + " of job '" +
                                       settings_.job + "' waited " + seconds(settings_.timeout_ns) +
                                       " for " + missing + " to join at " + settings_.url);
    const Json& body = (*message)->body;
    const std::string type = body.value("type", std::string());
    if (type == "ready") return {};
    if (type == "waiting" && body.contains("missing"))
      missing = rank_list(body["missing"]);
    else
      return tl::unexpected(error_of(body));
  }
}

// ---- operations

std::unique_lock<std::mutex> Context::lock_engine() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) return lock;
  contenders_.fetch_add(1);
  transport_->wake();
  lock.lock();
  contenders_.fetch_sub(1);
  return lock;
}

Result<Operation*> Context::start(const OperationSpec& spec) {
  if (failed_.load() != INA_OK) {
    const int status = failure();
    return fail(static_cast<ina_status>(status), last_error());
  }
  Operation* operation = nullptr;
  {
    const auto lock = lock_engine();
    operation = submit(spec, now_ns());
    progress();
    running_.store(engine_->running(), std::memory_order_relaxed);
  }
  return operation;
}

/// Sums of floats go another way if they are to be reproducible.
Operation* Context::submit(const OperationSpec& spec, Nanos now) {
  if (!settings_.reproducible || spec.elements == 0 || !Reproducible::handles(spec))
    return engine_->submit(spec, now);
  if (!reproducible_) reproducible_.emplace(*engine_, settings_.world_size);
  return reproducible_->start(spec, now);
}

void Context::release(Operation* operation) {
  if (!reproducible_ || !reproducible_->release(operation)) engine_->release(operation);
}

uint64_t Context::overflows() const {
  return engine_->counters().overflows + (reproducible_ ? reproducible_->counters().overflows : 0);
}

bool Context::progress() {
  RxPacket received[Engine::kBurst];
  TxPacket to_send[Engine::kBurst];
  const Nanos now = now_ns();
  const uint64_t operations = engine_->counters().operations;
  const size_t arrived = transport_->rx_burst(received);
  if (arrived != 0) {
    engine_->on_packets(std::span(received, arrived), now, copier_);
    transport_->rx_release();
  }
  const size_t ready = engine_->prepare(to_send, now);
  size_t sent = 0;
  if (ready != 0) {
    sent = transport_->tx_burst(std::span(to_send, ready));
    engine_->sent(sent, now);
  }
  if (engine_->counters().operations != operations) {
    running_.store(engine_->running(), std::memory_order_relaxed);
    if (sleepers_.load() != 0) cv_.notify_all();
  }
  return arrived + sent != 0;
}

void Context::drive(const Operation& operation, Nanos deadline) {
  driving_ = true;
  IdleStrategy idle(settings_.idle);
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
  for (;;) {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock) {
      if (failed_.load() == INA_OK) drive(*operation, deadline);
      const bool done = operation->done.load(std::memory_order_acquire);
      const bool failed = failed_.load() != INA_OK;
      if (done || failed) release(operation);
      const bool more = engine_->running() != 0;
      lock.unlock();
      if (sleepers_.load() != 0) cv_.notify_all();
      if (more && !failed) kick();
      if (done) return {INA_OK, true};
      if (failed) return {failure(), true};
      if (now_ns() >= deadline) return timed_out(operation, timeout_ns, give_up);
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
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock && !operation->done.load(std::memory_order_acquire)) return INA_IN_PROGRESS;
  if (!lock) lock = lock_engine();
  const bool failed = failed_.load() != INA_OK;
  if (!failed && !operation->done.load(std::memory_order_acquire)) progress();
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
  const std::string text = "waited " + seconds(waited_ns) + " for " + what;
  if (!give_up) return {set_error(INA_ERR_TIMEOUT, text + "; " + explain()), false};
  {
    const std::lock_guard state(state_mutex_);
    giving_up_ = true;
  }
  (void)control_.send({{"type", "abort"}, {"text", text}});
  {
    std::unique_lock state(state_mutex_);
    sleepers_.fetch_add(1);
    cv_.wait_for(state, std::chrono::nanoseconds(kExplainNs),
                 [&] { return failed_.load() != INA_OK; });
    sleepers_.fetch_sub(1);
  }
  end(INA_ERR_TIMEOUT, text + "; the switch did not answer either");
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

std::string Context::explain() {
  std::unique_lock state(state_mutex_);
  explanation_.clear();
  if (!control_.send({{"type", "explain"}})) return "the switch does not answer";
  sleepers_.fetch_add(1);
  cv_.wait_for(state, std::chrono::nanoseconds(kExplainNs),
               [&] { return !explanation_.empty() || failed_.load() != INA_OK; });
  sleepers_.fetch_sub(1);
  if (!explanation_.empty()) return explanation_;
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
  while (!stopping_.load()) {
    const bool needed = running_.load() != 0 && !driving_.load() && failed_.load() == INA_OK;
    pollfd fds[2] = {{control_.fd(), POLLIN, 0}, {kick_event_.get(), POLLIN, 0}};
    // A context whose switch is gone has nothing more to hear.
    const nfds_t first = failed_.load() == INA_OK ? 0 : 1;
    ::poll(fds + first, 2 - first, needed ? 0 : -1);
    if (first == 0 && fds[0].revents != 0) read_control();
    if (fds[1].revents != 0) {
      uint64_t count;
      [[maybe_unused]] const ssize_t got = ::read(kick_event_.get(), &count, sizeof(count));
      if (!stopping_.load()) ::poll(fds, 1, kGraceMs);
      kicked_ = false;
    }
    if (needed) drive_in_background();
  }
}

void Context::drive_in_background() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) {
    ::usleep(100);
    return;
  }
  IdleStrategy idle(settings_.idle == IdleMode::kSpin ? IdleMode::kYield : settings_.idle);
  while (engine_->running() != 0 && contenders_.load() == 0 && sleepers_.load() == 0 &&
         failed_.load() == INA_OK && !stopping_.load()) {
    if (progress()) {
      idle.reset();
      continue;
    }
    const Nanos now = now_ns();
    if (idle.idle(now) == IdleStrategy::Step::kSleep) {
      const Nanos left = engine_->next_deadline() - now;
      if (left > 0) transport_->wait(std::min({idle.sleep_ns(), left, kBackgroundSleepNs}));
      break;
    }
  }
  lock.unlock();
  ::sched_yield();
}

void Context::read_control() {
  auto received = control_.receive(0);
  if (!received)
    return end(INA_ERR_SWITCH_LOST,
               "the switch at " + settings_.url + " is gone: " + received.error().text);
  if (!*received) return;
  const Json& body = (*received)->body;
  const Json type = body.value("type", Json());
  if (type == "abort" || type == "refused") {
    bool giving_up = false;
    {
      const std::lock_guard state(state_mutex_);
      giving_up = giving_up_;
    }
    const Error error = error_of(body);
    return end(giving_up && error.status == INA_ERR_ABORTED ? INA_ERR_TIMEOUT : error.status,
               error.text);
  }
  {
    const std::lock_guard state(state_mutex_);
    if (type == "explain") explanation_ = error_of(body).text;
    if (type == "left") left_ = true;
  }
  cv_.notify_all();
}

// ---- errors and the end

void Context::end(int status, const std::string& text) {
  {
    const std::lock_guard state(state_mutex_);
    if (failed_.load() != INA_OK) return;
    failure_text_ = text;
    failed_.store(status);
  }
  cv_.notify_all();
  transport_->wake();
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
    // The switch takes the closed connection for a lost worker, which is what the others must hear.
    if (engine_->running() != 0)
      return set_error(INA_ERR_ABORTED,
                       "left with " + std::to_string(engine_->running()) +
                           " operations running, the oldest: " + describe(*engine_->oldest()));
  }
  if (auto sent = control_.send({{"type", "leave"}}); !sent)
    return set_error(INA_ERR_SWITCH_LOST, sent.error().text);
  std::unique_lock state(state_mutex_);
  const bool ended = cv_.wait_for(state, std::chrono::nanoseconds(timeout_ns),
                                  [&] { return left_ || failed_.load() != INA_OK; });
  if (left_) return INA_OK;
  last_error_ = ended ? failure_text_
                      : "left after waiting " + seconds(timeout_ns) +
                            " for the other ranks to call ina_finalize";
  return ended ? failed_.load() : static_cast<int>(INA_ERR_TIMEOUT);
}

void Context::stats(ina_stats& stats) {
  const auto lock = lock_engine();
  const EngineCounters& engine = engine_->counters();
  const TransportCounters transport = transport_->counters();
  stats.operations = engine.operations;
  if (reproducible_) {
    const ReproducibleCounters& composed = reproducible_->counters();
    stats.operations += composed.operations - composed.parts;
  }
  stats.fragments_sent = engine.fragments_sent;
  stats.fragments_resent = engine.fragments_resent;
  stats.results_received = engine.results;
  stats.bytes_sent = engine.bytes_sent;
  stats.bytes_received = engine.bytes_received;
  stats.sleeps = transport.sleeps;
  stats.dropped = transport.dropped + engine.results_ignored;
  stats.overflows = overflows();
}

bool Context::overflowed(bool clear) {
  const auto lock = lock_engine();
  const uint64_t now = overflows();
  const bool result = now != overflows_cleared_.load();
  if (clear) overflows_cleared_ = now;
  return result;
}

}  // namespace ina::client
