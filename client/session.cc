#include "client/session.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <system_error>

#include "client/context.h"
#include "common/clock.h"

namespace ina::client {

namespace {

// How long the background thread leaves a fresh operation to a caller who is about to wait for it.
constexpr int kGraceMs = 1;
// Messages of the switch before channels are driven again: it closes a connection that is full.
constexpr int kMessagesPerTurn = 64;
// Between looks at several channels of which none has anything.
constexpr Nanos kMostIdlePauseNs = 200'000;

}  // namespace

Session::Session(const Settings& settings)
    : url_(settings.url),
      connection_([this] { wakeups_.kick(); }),
      channels_(stopping_),
      idle_(settings.idle == IdleMode::kSpin ? IdleMode::kYield : settings.idle) {}

Session::~Session() {
  stop(INA_OK, "");
}

/// A child must not keep its parent's sockets open.
void Session::close_in_child() {
  connection_.close_in_child();
  wakeups_.close_in_child();
}

void Session::start(std::shared_ptr<Context> root) {
  channels_.set_root(std::move(root));
  // The background thread must not take the host program's signals.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  connection_.let_forks_wait();
  try {
    background_ = std::thread([this] { background(); });
  } catch (const std::system_error&) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    // They own this, and would stay in the job as a worker that never answers.
    channels_.take_all();
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  membership::Forks::instance().add(*this);
}

void Session::stop(int status, const std::string& text) {
  if (!background_.joinable()) return;
  stopping_ = true;
  kick();
  background_.join();
  membership::Forks::instance().remove(*this);
  const Channels::Left left = channels_.take_all();
  if (status == INA_OK) return;
  for (const auto& channel : left.channels)
    if (channel->channel() != 0) {
      channel->end(status, text);
      channel->run_callbacks();  // nobody else does any more
    }
  for (const auto& follower : left.followers) follower->follow();
}

bool Session::add(std::shared_ptr<Context> channel, uint64_t losses) {
  const auto added = channels_.add(std::move(channel), losses);
  if (added == Channels::Added::kYes) kick();
  return added != Channels::Added::kSwitchGone;
}

void Session::remove(const Context& channel) {
  channels_.remove(channel);
  kick();
}

void Session::remove(const Follower& follower) {
  channels_.remove(follower);
  kick();
}

// ---- the background thread

void Session::background() {
  ::pthread_setname_np(::pthread_self(), "ina-background");
  channels_.root()->rest_for_background();
  while (!stopping_.load()) {
    const auto& channels = channels_.current();
    if (lost_ && !channels_.root()->failed()) {
      rejoin();
      // It took the kicks that were meant for this thread's next turn.
      for (const auto& channel : channels_.current()) channel->run_callbacks();
      continue;
    }
    // Before the thread sleeps: the operation that a follower waits for may just have ended.
    for (const auto& follower : channels_.followers()) follower->follow();
    wait(channels);
  }
}

/// Until there is something to do, and does it.
void Session::wait(const Channels::List& channels) {
  bool needed = false;
  bool alive = false;  // otherwise there is nothing more to hear
  Nanos idle_poll_ns = 0;
  for (const auto& channel : channels) {
    needed |= channel->needs_driver();
    alive |= !channel->failed() && !lost_;
    const Nanos poll_ns = channel->idle_poll_ns();
    if (poll_ns != 0) idle_poll_ns = idle_poll_ns == 0 ? poll_ns : std::min(idle_poll_ns, poll_ns);
  }
  pollfd fds[2] = {control_events(), {wakeups_.fd(), POLLIN, 0}};
  const nfds_t first = alive ? 0 : 1;
  const int idle_ms = idle_poll_ns == 0 ? -1 : static_cast<int>(idle_poll_ns / 1'000'000);
  const int events = ::poll(fds + first, 2 - first, needed ? 0 : alive ? idle_ms : -1);
  if (events == 0 && !needed)
    for (const auto& channel : channels) channel->look_for_packets();
  if (first == 0 && fds[0].revents != 0) read_control();
  if (fds[1].revents != 0) {
    if (!stopping_.load() && alive)
      wakeups_.leave_to_callers(control_events(), kGraceMs, [this] {
        return std::ranges::any_of(channels_.current(),
                                   [](const auto& open) { return open->unattended(); });
      });
    wakeups_.drain();
  }
  for (const auto& channel : channels) channel->run_callbacks();
  // The thread that wanted the engine is about to drive it, too.
  if (needed && !drive(channels)) ::poll(fds, 1, kGraceMs);
}

pollfd Session::control_events() const {
  const control::Connection& control = connection_.control();
  return {control.fd(), control.events(), 0};
}

/// False: left the engine to a thread that wants it.
bool Session::drive(const Channels::List& channels) {
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
    pollfd fds[2] = {control_events(), {wakeups_.fd(), POLLIN, 0}};
    const timespec pause{0, static_cast<long>(std::min<Nanos>(idle_.sleep_ns(), kMostIdlePauseNs))};
    ::ppoll(fds, 2, &pause, nullptr);
  }
  return true;
}

void Session::read_control() {
  for (int i = 0; i < kMessagesPerTurn || connection_.control().buffered(); ++i) {
    auto heard = control::hear(connection_.control(), 0);
    if (!heard && heard.error().status == INA_ERR_INTERNAL)
      return end_all(INA_ERR_INTERNAL, heard.error().text);
    if (!heard) return lose();
    if (!*heard) return;
    dispatch(**heard);
  }
}

void Session::dispatch(control::Heard& heard) {
  const uint32_t id = heard.channel.value_or(0);
  const auto& channels = channels_.current();
  const auto channel =
      std::ranges::find_if(channels, [&](const auto& open) { return open->channel() == id; });
  // Otherwise the group was left meanwhile.
  if (channel == channels.end()) return;
  const std::shared_ptr<Context> held = *channel;
  held->on_control(heard);
}

void Session::end_all(int status, const std::string& text) {
  for (const auto& channel : channels_.current()) channel->end(status, text);
}

void Session::lose() {
  lost_ = true;
  channels_.count_loss();
  for (const auto& channel : channels_.current()) channel->go_away();
  connection_.close();
  if (!channels_.root() || channels_.root()->failed() == INA_OK) return;
  for (const auto& channel : channels_.current())
    if (channel->channel() != 0)
      channel->end(INA_ERR_SWITCH_LOST,
                   "the switch at " + url_ +
                       " is gone, and the job of this group has ended: it cannot come back");
}

/// Tries until the job runs again, or has failed, or the session ends. Its groups come back by
/// themselves then.
void Session::rejoin() {
  const std::shared_ptr<Context>& root = channels_.root();
  root->rejoin();
  if (stopping_.load()) return;
  if (const int status = root->failed(); status != INA_OK) {
    // Without their job they have no way back.
    const std::string text = root->last_failure();
    for (const auto& channel : channels_.current())
      if (channel->channel() != 0) channel->end(status, "its job has ended: " + text);
    return;
  }
  lost_ = false;
  const auto groups = channels_.current();
  for (const auto& channel : groups)
    if (channel->channel() != 0) channel->ask_to_rejoin();
}

}  // namespace ina::client
