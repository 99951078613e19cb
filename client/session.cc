#include "client/session.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "client/context.h"
#include "client/link.h"
#include "common/clock.h"
#include "common/event_fd.h"
#include "common/system_text.h"
#include "control/client.h"

namespace ina::client {

// ---- fork: a child must neither use the parent's contexts nor keep its sockets open.

/// Sessions whose connections a forked child closes.
struct ForkRegistry {
  std::mutex mutex;
  std::vector<Session*> sessions;
  std::atomic<uint32_t> generation{0};

  static ForkRegistry& instance() {
    static ForkRegistry& registry = *new ForkRegistry;  // forks may come as the process ends
    static const int once = ::pthread_atfork([] { instance_lock(); }, [] { instance_unlock(); },
                                             [] { after_fork_in_child(); });
    (void)once;
    return registry;
  }

 private:
  static void instance_lock() { instance().mutex.lock(); }
  static void instance_unlock() { instance().mutex.unlock(); }
  static void after_fork_in_child() {
    ForkRegistry& registry = instance();
    registry.generation.fetch_add(1);
    for (Session* session : registry.sessions) {
      session->control_.close();
      session->kick_event_.reset();
      session->hurry_event_.reset();
    }
    registry.sessions.clear();
    registry.mutex.unlock();
  }
};

namespace {

// How long the background thread leaves a fresh operation to a caller who is about to wait for it.
constexpr int kGraceMs = 1;
// Messages of the switch before channels are driven again: it closes a connection that is full.
constexpr int kMessagesPerTurn = 64;
// Between looks at several channels of which none has anything.
constexpr Nanos kMostPauseNs = 200'000;

}  // namespace

uint32_t Session::fork_generation() {
  return ForkRegistry::instance().generation.load();
}

Session::Session(const Settings& settings)
    : settings_(settings),
      idle_(settings.idle == IdleMode::kSpin ? IdleMode::kYield : settings.idle),
      kick_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      hurry_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Session::~Session() {
  stop(INA_OK, "");
}

Result<void> Session::resolve(const Url& url) {
  path_ = url.path;
  if (url.scheme != "shm") {
    auto place = frame_place_of(url);
    if (!place) return tl::unexpected(place.error());
    frame_place_ = std::move(*place);
    path_ = url.get("control", control::kDefaultSocket);
  }
  trust_ = {.tls = {settings_.tls, control::is_tls(path_) ? control::host_of(path_) : ""},
            .user = settings_.switch_user};
  // Only once: a re-join must not wait for a name server while a fork() waits for the re-join.
  auto resolved = control::resolve(path_);
  if (!resolved) return tl::unexpected(resolved.error());
  path_ = std::move(*resolved);
  return {};
}

void Session::start(std::shared_ptr<Context> root) {
  {
    const std::lock_guard lock(channels_mutex_);
    root_ = std::move(root);
    open_.insert(open_.begin(), root_);
    changes_.fetch_add(1);  // the connection may have been lost before, with no channel known
  }
  // The background thread must not take the host program's signals.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  started_ = true;
  try {
    background_ = std::thread([this] { background(); });
  } catch (const std::system_error&) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    // They own this, and would stay in the job as a worker that never answers.
    const std::lock_guard lock(channels_mutex_);
    open_.clear();
    root_.reset();
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ForkRegistry& registry = ForkRegistry::instance();
  const std::lock_guard lock(registry.mutex);
  registry.sessions.push_back(this);
}

void Session::stop(int status, const std::string& text) {
  if (!background_.joinable()) return;
  stopping_ = true;
  kick();
  background_.join();
  {
    ForkRegistry& registry = ForkRegistry::instance();
    const std::lock_guard lock(registry.mutex);
    std::erase(registry.sessions, this);
  }
  channels_.clear();
  followers_.clear();
  std::vector<std::shared_ptr<Context>> left;
  std::vector<std::shared_ptr<Follower>> followers;
  {
    const std::lock_guard lock(channels_mutex_);
    left = std::move(open_);
    followers = std::move(followers_open_);
    open_.clear();
    followers_open_.clear();
    root_.reset();
  }
  if (status == INA_OK) return;
  for (const auto& channel : left)
    if (channel->channel() != 0) {
      channel->end(status, text);
      channel->run_callbacks();  // nobody else does any more
    }
  for (const auto& follower : followers) follower->follow();
}

// ---- channels

bool Session::add(std::shared_ptr<Context> channel, uint64_t losses) {
  {
    const std::lock_guard lock(channels_mutex_);
    if (losses != losses_) return false;
    if (stopping_.load()) return true;
    open_.push_back(std::move(channel));
    changes_.fetch_add(1);
  }
  kick();
  return true;
}

void Session::remove(const Context& channel) {
  {
    const std::lock_guard lock(channels_mutex_);
    std::erase_if(open_, [&](const auto& open) { return open.get() == &channel; });
    changes_.fetch_add(1);
  }
  kick();
}

void Session::add(std::shared_ptr<Follower> follower) {
  const std::lock_guard lock(channels_mutex_);
  if (stopping_.load()) return;
  followers_open_.push_back(std::move(follower));
  changes_.fetch_add(1);
}

void Session::remove(const Follower& follower) {
  {
    const std::lock_guard lock(channels_mutex_);
    std::erase_if(followers_open_, [&](const auto& open) { return open.get() == &follower; });
    changes_.fetch_add(1);
  }
  kick();
}

std::vector<std::shared_ptr<Context>> Session::groups() const {
  const std::lock_guard lock(channels_mutex_);
  return open_.empty() ? open_ : std::vector(open_.begin() + 1, open_.end());
}

/// On the background thread.
const std::vector<std::shared_ptr<Context>>& Session::channels() {
  if (const uint64_t changes = changes_.load(); changes != changes_known_) {
    const std::lock_guard lock(channels_mutex_);
    changes_known_ = changes;
    channels_ = open_;
    followers_ = followers_open_;
  }
  return channels_;
}

// ---- the connection

/// A child that is forked meanwhile must find the connection in control_ or not at all: a fork
/// waits for this, over TCP up to half a second while the switch's host does not answer.
Result<void> Session::open(Nanos timeout_ns, Nanos absent_ns) {
  std::unique_lock registered(ForkRegistry::instance().mutex, std::defer_lock);
  if (started_.load()) registered.lock();
  if (!kick_event_ || !hurry_event_)
    return tl::unexpected(system_error("cannot create an eventfd", EMFILE));
  auto connection = control::Connection::open(path_, timeout_ns, trust_, absent_ns);
  if (!connection) return tl::unexpected(connection.error());
  const std::lock_guard lock(connection_mutex_);
  control_ = std::move(*connection);
  leaves_sent_.clear();
  return {};
}

void Session::close() {
  const std::lock_guard registered(ForkRegistry::instance().mutex);
  const std::lock_guard lock(connection_mutex_);
  control_.close();
}

bool Session::send(uint32_t channel, const request::Message& message,
                   const std::vector<int>& descriptors) {
  const auto of_group = channel != 0 ? std::optional(channel) : std::nullopt;
  const std::string text = control::to_text(message, of_group);
  const std::lock_guard lock(connection_mutex_);
  const bool sent = control_.send_text(text, descriptors).has_value();
  if (control_.pending()) kick();  // the background thread sends the rest
  return sent;
}

bool Session::send_leave(uint32_t channel, const request::Leave& leave) {
  {
    const std::lock_guard lock(connection_mutex_);
    if (!leaves_sent_.insert(channel).second) return true;
  }
  if (send(channel, leave)) return true;
  const std::lock_guard lock(connection_mutex_);
  leaves_sent_.erase(channel);
  return false;
}

// ---- the background thread

void Session::kick() {
  if (kicked_.exchange(true)) return;
  ring_event(kick_event_.get());
  const std::lock_guard lock(asleep_mutex_);
  if (asleep_in_) asleep_in_->wake();
}

void Session::kick_at_once() {
  kick();
  if (!left_to_callers_.load()) return;
  ring_event(hurry_event_.get());
}

void Session::sleeps_in(Link* link) {
  const std::lock_guard lock(asleep_mutex_);
  asleep_in_ = link;
}

void Session::drain_kicks() {
  drain_event(kick_event_.get());
  kicked_ = false;
}

void Session::background() {
  ::pthread_setname_np(::pthread_self(), "ina-background");
  root_->rest_for_background();
  while (!stopping_.load()) {
    const auto& channels = this->channels();
    if (lost_ && !root_->failed()) {
      rejoin();
      // It took the kicks that were meant for this thread's next turn.
      for (const auto& channel : this->channels()) channel->run_callbacks();
      continue;
    }
    // Before the thread sleeps: the operation that a follower waits for may just have ended.
    for (const auto& follower : followers_) follower->follow();
    bool needed = false;
    bool alive = false;  // otherwise there is nothing more to hear
    Nanos idle_poll_ns = 0;
    for (const auto& channel : channels) {
      needed |= channel->needs_driver();
      alive |= !channel->failed() && !lost_;
      const Nanos poll_ns = channel->idle_poll_ns();
      if (poll_ns != 0)
        idle_poll_ns = idle_poll_ns == 0 ? poll_ns : std::min(idle_poll_ns, poll_ns);
    }
    pollfd fds[2] = {{control_.fd(), control_.events(), 0}, {kick_event_.get(), POLLIN, 0}};
    const nfds_t first = alive ? 0 : 1;
    const int idle_ms = idle_poll_ns == 0 ? -1 : static_cast<int>(idle_poll_ns / 1'000'000);
    const int events = ::poll(fds + first, 2 - first, needed ? 0 : alive ? idle_ms : -1);
    if (events == 0 && !needed)
      for (const auto& channel : channels) channel->look_for_packets();
    if (first == 0 && fds[0].revents != 0) read_control();
    if (fds[1].revents != 0) {
      if (!stopping_.load() && alive) leave_to_callers();
      drain_kicks();
    }
    for (const auto& channel : channels) channel->run_callbacks();
    // The thread that wanted the engine is about to drive it, too.
    if (needed && !drive(channels)) ::poll(fds, 1, kGraceMs);
  }
}

/// For a while, unless there are operations that no thread waits for.
void Session::leave_to_callers() {
  left_to_callers_ = true;
  pollfd fds[2] = {{control_.fd(), control_.events(), 0}, {hurry_event_.get(), POLLIN, 0}};
  if (std::ranges::none_of(channels(), [](const auto& open) { return open->unattended(); }))
    ::poll(fds, 2, kGraceMs);
  left_to_callers_ = false;
  if (fds[1].revents != 0) drain_event(hurry_event_.get());
}

/// False: left the engine to a thread that wants it.
bool Session::drive(const std::vector<std::shared_ptr<Context>>& channels) {
  Context* only = nullptr;
  size_t needing = 0;
  for (const auto& channel : channels)
    if (channel->needs_driver() && ++needing == 1) only = channel.get();
  if (needing == 0) return true;
  if (needing == 1) return only->drive_in_background();
  // None may sleep while others have something to do.
  bool busy = false;
  for (const auto& channel : channels)
    if (channel->needs_driver()) busy |= channel->drive_briefly();
  if (busy) {
    idle_.reset();
  } else if (const Nanos now = now_ns(); idle_.idle(now) == IdleStrategy::Step::kSleep) {
    pollfd fds[2] = {{control_.fd(), control_.events(), 0}, {kick_event_.get(), POLLIN, 0}};
    const timespec pause{0, static_cast<long>(std::min<Nanos>(idle_.sleep_ns(), kMostPauseNs))};
    ::ppoll(fds, 2, &pause, nullptr);
  }
  return true;
}

void Session::read_control() {
  for (int i = 0; i < kMessagesPerTurn || control_.buffered(); ++i) {
    auto heard = control::hear(control_, 0);
    if (!heard && heard.error().status == INA_ERR_INTERNAL)
      return end_all(INA_ERR_INTERNAL, heard.error().text);
    if (!heard) return lose();
    if (!*heard) return;
    dispatch(**heard);
  }
}

void Session::dispatch(control::Heard& heard) {
  const uint32_t id = heard.channel.value_or(0);
  const auto& channels = this->channels();
  const auto channel =
      std::ranges::find_if(channels, [&](const auto& open) { return open->channel() == id; });
  // Otherwise the group was left meanwhile.
  if (channel == channels.end()) return;
  const std::shared_ptr<Context> held = *channel;
  held->on_control(heard);
}

void Session::end_all(int status, const std::string& text) {
  for (const auto& channel : channels()) channel->end(status, text);
}

void Session::lose() {
  lost_ = true;
  {
    const std::lock_guard lock(channels_mutex_);
    ++losses_;
  }
  for (const auto& channel : channels()) channel->go_away();
  close();
  if (!root_ || root_->failed() == INA_OK) return;
  for (const auto& channel : channels())
    if (channel->channel() != 0)
      channel->end(INA_ERR_SWITCH_LOST,
                   "the switch at " + settings_.url +
                       " is gone, and the job of this group has ended: it cannot come back");
}

/// Tries until the job runs again, or has failed, or the session ends. Its groups come back by
/// themselves then.
void Session::rejoin() {
  root_->rejoin();
  if (stopping_.load()) return;
  if (const int status = root_->failed(); status != INA_OK) {
    // Without their job they have no way back.
    const std::string text = root_->last_failure();
    for (const auto& channel : channels())
      if (channel->channel() != 0) channel->end(status, "its job has ended: " + text);
    return;
  }
  lost_ = false;
  const auto groups = channels();
  for (const auto& channel : groups)
    if (channel->channel() != 0) channel->ask_to_rejoin();
}

}  // namespace ina::client
