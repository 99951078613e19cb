#include "programs/memif/server.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "common/clock.h"
#include "common/event_fd.h"
#include "common/logging/record.h"
#include "control/work_timer.h"

namespace ina::memif {

namespace {

using control::Json;

// Nobody announces a frame: an interface is looked at again after this, doubling.
constexpr Nanos kFirstSleepNs = 50'000;
constexpr Nanos kLongestSleepNs = 1'000'000;
// Between packets the control connections are looked at this often.
constexpr Nanos kControlNs = 1'000'000;
constexpr Nanos kNobodyNs = 1'000'000'000;
// As the switch's control.join_timeout and control.max_unjoined.
constexpr Nanos kJoinTimeoutNs = 10'000'000'000;
constexpr size_t kMaxUnjoined = 64;
constexpr int kAcceptedPerTurn = 4;
constexpr Nanos kRefusedPauseNs = 10'000'000;
// In polled_; after these the worker and the switch of each session.
enum Polled : size_t { kEvent, kListener, kDoorman, kFirstSession };

// memif takes and gives a frame within a burst: buffers beyond a few bursts are of no use.
constexpr uint16_t kDescriptors = 256;
constexpr uint16_t kMaxLanes = 64;  // switch.lcores
constexpr uint32_t kHeaderBytesInMtu = wire::kFrameHeaderBytes - wire::kEthernetBytes;

std::string device_of(const ServerConfig& config, uint32_t number) {
  const uint32_t frame_bytes = config.mtu + static_cast<uint32_t>(wire::kEthernetBytes);
  return fmt::format("net_memif{},role=server,id={},socket={},socket-abstract=no,rsize=10,bsize={}",
                     number, number, config.memif_socket, (frame_bytes + 63) / 64 * 64);
}

}  // namespace

uint64_t packet_memory_bytes(const ServerConfig& config) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  constexpr uint64_t kBuffers = 2 * kDescriptors;  // what lies in caches and bursts included
  // Most of the constant are two pools' caches, one for each of 128 lcores.
  return 32 * kMiB + config.interfaces * (4 * kMiB + kBuffers * (config.mtu + 2048));
}

Server::Server(ServerConfig config, control::Doorman* doorman)
    : config_(std::move(config)),
      doorman_(doorman),
      event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Server::~Server() = default;

void Server::ring() {
  ring_event(event_.get());
}

void Server::stop() {
  stopping_ = true;
  ring();
}

void Server::request_report() {
  report_wanted_ = true;
  ring();
}

Result<void> Server::open() {
  for (uint32_t number = 0; number < config_.interfaces; ++number) {
    io::EthdevPortConfig port;
    port.name = fmt::format("memif{}", number);
    port.device = device_of(config_, number);
    port.ip = config_.ip;
    port.relayed_lanes = kMaxLanes;
    port.mtu = config_.mtu;
    port.rx_descriptors = kDescriptors;
    port.tx_descriptors = kDescriptors;
    port.slot_bytes = config_.mtu - kHeaderBytesInMtu;
    port.max_endpoints = 1;
    auto opened = io::EthdevPort::open(port);
    if (!opened) return tl::unexpected(opened.error());
    interfaces_.push_back(std::make_unique<Interface>(std::move(opened->front())));
  }
  // Last: a client that reaches it finds everything else there.
  auto listener = control::Listener::open(config_.socket, config_.mode.value_or(0600));
  if (!listener) return tl::unexpected(listener.error());
  listener_.emplace(std::move(*listener));
  listener_->set_doorman(doorman_);
  return {};
}

void Server::run() {
  logging::info("serving")("socket", config_.socket)("memif", config_.memif_socket)(
      "interfaces", config_.interfaces)("mtu", config_.mtu)("switch", config_.switch_socket);
  IdleStrategy idle(config_.idle);
  Nanos sleep_ns = kFirstSleepNs;
  Nanos control_at = 0;
  while (!stopping_) {
    const bool busy = poll_interfaces();
    const Nanos now = now_ns();
    if (busy) {
      idle.reset();
      sleep_ns = kFirstSleepNs;
    }
    Nanos timeout_ns = 0;
    if (!busy && idle.idle(now) == IdleStrategy::Step::kSleep) {
      timeout_ns = sleep_ns;
      sleep_ns = std::min(2 * sleep_ns, kLongestSleepNs);
    }
    if (std::ranges::none_of(interfaces_, [](auto& one) { return one->relay.attached(); }))
      timeout_ns = kNobodyNs;
    if (timeout_ns == 0 && now < control_at) continue;
    turn(timeout_ns);
    control_at = now_ns() + kControlNs;
    logging::report_omitted(now_ns());
  }
  report();
  // The switch learns of it by the closed connections, and the workers, too.
  connected_.clear();
  listener_.reset();
  interfaces_.clear();
}

bool Server::poll_interfaces() {
  bool busy = false;
  for (const auto& interface : interfaces_)
    if (interface->relay.attached()) busy = interface->relay.poll() || busy;
  return busy;
}

// ---- control connections

/// Waits at most `timeout_ns` for one of the connections, and passes messages on.
void Server::turn(Nanos timeout_ns) {
  if (!wait(timeout_ns)) return;
  const auto ready = [this](size_t i) { return polled_[i].revents != 0; };
  for (size_t i = 0; i < connected_.size(); ++i) {
    Connected& one = connected_[i];
    // One that has used up its share within this turn waits for the next.
    const Nanos now = now_ns();
    const bool worker_ready =
        ready(kFirstSession + 2 * i) && !(one.heard && free_at(one, now) > now);
    const bool switch_ready = ready(kFirstSession + 2 * i + 1);
    const bool goes_on = serve(one, worker_ready, switch_ready);
    // Messages of many connections must not add up to a pause for those with packets.
    if (worker_ready || switch_ready) (void)poll_interfaces();
    if (!goes_on) close(one);
  }
  std::erase_if(connected_, [](const Connected& one) { return !one.session; });
  doorman_->turn();
  if (ready(kDoorman)) charge_for_doorman();
  if (ready(kListener)) accept_workers();
  if (!ready(kEvent)) return;
  drain_event(event_.get());
  if (report_wanted_.exchange(false)) report();
}

/// Its entry is left to the caller.
void Server::close(Connected& one) {
  const control::WorkTimer timer;
  const control::PeerCredentials peer = one.session->peer();
  logging::info("connection closed", peer.source())("worker", one.session->name());
  one.session.reset();
  budget_.charge(peer.key(), timer.spent_ns(), timer.began_ns());
}

/// When its user may take more of the thread's time; not after `now`: at once.
Nanos Server::free_at(const Connected& one, Nanos now) {
  const control::PeerCredentials& peer = one.session->peer();
  return peer.is_trusted() ? now : budget_.free_at(peer.key(), now);
}

/// False: a signal came.
bool Server::wait(Nanos timeout_ns) {
  const Nanos now = now_ns();
  const auto until = [&](Nanos time) {
    if (time > now) timeout_ns = std::min(timeout_ns, time - now);
    return time <= now;
  };
  polled_.assign({{event_.get(), POLLIN, 0},
                  {until(accept_again_) ? listener_->fd() : -1, POLLIN, 0},  // -1: not looked at
                  {doorman_->alive() ? doorman_->fd() : -1, POLLIN, 0}});
  for (Connected& one : connected_) {
    one.heard = until(free_at(one, now));
    // Without events: whether it has gone.
    polled_.push_back({one.session->worker_fd(), static_cast<short>(one.heard ? POLLIN : 0), 0});
    polled_.push_back({one.session->switch_fd(), POLLIN, 0});
  }
  const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  return ::ppoll(polled_.data(), polled_.size(), &timeout, nullptr) >= 0;
}

/// False: this is its end.
bool Server::serve(Connected& one, bool worker_ready, bool switch_ready) {
  const control::WorkTimer timer;
  const Nanos now = timer.began_ns();
  // Whatever else it says: questions alone hold no place.
  const auto stays = [&] { return one.session->has_worker() || now - one.since <= kJoinTimeoutNs; };
  if (!worker_ready && !switch_ready) return stays();
  // The switch's last messages before its end come first.
  const bool goes_on = (!switch_ready || one.session->on_switch()) &&
                       (!worker_ready || (one.heard && one.session->on_worker()));
  budget_.charge(one.session->peer().key(), timer.spent_ns(), now);
  return goes_on && stays();
}

void Server::charge_for_doorman() {
  while (const auto answer = doorman_->next())
    budget_.charge(control::PeerCredentials{.uid = answer->user}.key(), answer->cpu_ns, now_ns());
}

void Server::accept_workers() {
  // Those who still wait are next turn's: the interfaces are looked at in between.
  for (int i = 0; i < kAcceptedPerTurn; ++i) {
    if (doorman_->has_too_many()) {
      logging::warn("no connection accepted", "accept")("text", "too many wait to be closed");
      accept_again_ = now_ns() + control::kAcceptPauseNs;
      return;
    }
    auto accepted = listener_->accept();
    if (!accepted) {
      logging::warn("no connection accepted", "accept")("text", accepted.error().text);
      accept_again_ = now_ns() + control::kAcceptPauseNs;
      return;
    }
    if (!*accepted) return;
    const control::WorkTimer timer;
    const uint64_t user = (*accepted)->peer().key();
    take_in(std::move(**accepted));
    budget_.charge(user, timer.spent_ns(), timer.began_ns());
  }
}

void Server::take_in(control::Connection worker) {
  const control::PeerCredentials peer = worker.peer();
  const Nanos now = now_ns();
  std::string text;
  if (!peer.is_trusted() && budget_.free_at(peer.key(), now) > now) {
    text = "this user keeps ina-memif busier than it may: its share is a tenth of the time";
    // Nor may it come back at once: refusals take time, too.
    accept_again_ = now + kRefusedPauseNs;
  } else {
    text = no_room(peer);
  }
  if (!text.empty()) {
    logging::warn("connection refused", peer.source())("peer", peer.text())("text", text);
    const control::answer::Refused refused{.status = INA_ERR_REFUSED, .text = text, .retry = true};
    (void)worker.send_text(control::to_text(refused));
    return;
  }
  // At the switch a worker's job is the bridge's user's.
  std::string barred;
  if (!config_.mode && !peer.is_trusted())
    barred = fmt::format("ina-memif serves its own user (uid {}) and root, not uid {}; see --mode",
                         ::geteuid(), peer.uid);
  connected_.push_back(
      {std::make_unique<Session>(std::move(worker), std::move(barred), config_.switch_socket,
                                 config_.trust, static_cast<Interfaces&>(*this)),
       now});
}

/// Why a connection cannot be served; empty if it can.
std::string Server::no_room(const control::PeerCredentials& peer) {
  std::vector<Place> places;
  for (const Connected& one : connected_)
    places.push_back({one.session->peer().key(), one.session->has_worker()});
  const size_t most = interfaces_.size() + kMaxUnjoined;
  const size_t own = places_of(places, peer.key());
  if (!peer.is_trusted() && own >= places_per_user(most))
    return fmt::format("uid {} has {} connections to ina-memif already, of {} for all users",
                       peer.uid, own, most);
  if (places.size() < most || make_room(peer.key(), places)) return {};
  return fmt::format("ina-memif has {} connections already", places.size());
}

/// Closes a connection of a user who has more of them without a worker than the newcomer.
bool Server::make_room(uint64_t newcomer, const std::vector<Place>& places) {
  const auto place = place_to_give_up(places, newcomer);
  if (!place) return false;
  const auto one = connected_.begin() + static_cast<ptrdiff_t>(*place);
  one->session->give_way(
      "ina-memif needs the place of this connection, which has no worker, for others");
  close(*one);
  connected_.erase(one);
  return true;
}

// ---- interfaces

Result<wire::Address> Server::attach(uint32_t number, const Binding& binding,
                                     client::ShmTransport& transport) {
  if (number >= interfaces_.size())
    return fail(INA_ERR_INVALID,
                fmt::format("ina-memif has no memif interface {}: its --workers is {}", number,
                            interfaces_.size()));
  Interface& interface = *interfaces_[number];
  if (binding.slot_bytes + kHeaderBytesInMtu > config_.mtu)
    return fail(
        INA_ERR_INVALID,
        fmt::format("the switch's slots of {} bytes need frames for which ina-memif's "
                    "--mtu must be {}, it is {}",
                    binding.slot_bytes, binding.slot_bytes + kHeaderBytesInMtu, config_.mtu));
  if (interface.relay.attached())
    return fail(INA_ERR_REFUSED,
                fmt::format("memif interface {} of ina-memif has a worker already", number));
  const auto endpoint =
      interface.port->bind(binding.worker, binding.job, binding.job_key, 0, Rank{});
  if (!endpoint) return tl::unexpected(endpoint.error());
  interface.relay.attach(*endpoint, transport, binding.lanes, binding.slot_bytes);
  return interface.port->address();
}

void Server::detach(uint32_t number) {
  Interface& interface = *interfaces_[number];
  const io::EndpointIndex endpoint = interface.relay.endpoint();
  interface.relay.detach();
  interface.port->unbind(endpoint);
}

void Server::report() const {
  for (size_t number = 0; number < interfaces_.size(); ++number) {
    const Interface& interface = *interfaces_[number];
    const io::PortCounters& port = interface.port->counters();
    const RelayCounters& relay = interface.relay.counters();
    if (port.rx_packets == 0 && port.tx_packets == 0) continue;
    std::string drops;
    for (size_t i = 0; i < kDropReasons; ++i) {
      const auto reason = static_cast<DropReason>(i);
      if (const uint64_t count = port.drops[reason] + relay.drops[reason]; count != 0)
        drops += fmt::format("{}{}={}", drops.empty() ? "" : ",", name(reason), count);
    }
    logging::info("interface")("interface", number)("rx_packets", port.rx_packets)(
        "tx_packets", port.tx_packets)("to_switch", relay.to_switch)("to_worker", relay.to_worker)(
        "send_ring_full", relay.send_ring_full)("drops", drops);
  }
}

}  // namespace ina::memif
