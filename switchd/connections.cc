// Who gets a connection, who keeps it, and how much of the conductor's time it may take. No user
// and no address decides that for the others: see docs/security.md, "What a peer may use".
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/logging/record.h"
#include "switchd/conductor_state.h"
#include "switchd/work_timer.h"

namespace ina::switchd {

namespace {

constexpr int kAcceptsPerTurn = 32;
// How long connections wait in the backlog when no descriptor is left for them.
constexpr Nanos kAcceptPauseNs = 100'000'000;
// A connection on a place that is kept for workers that come back says `rejoin` by then.
constexpr Nanos kReturnNs = 2'000'000'000;
constexpr Nanos kLongestPauseNs = 1'000'000'000;

}  // namespace

/// Root and the switch's own user, on this host: they could stop the switch.
bool Conductor::is_trusted(const control::PeerCredentials& peer) {
  return !peer.remote && (peer.uid == 0 || peer.uid == ::geteuid());
}

uint32_t Conductor::connections_per_user() const {
  if (config_.max_connections_per_user != 0) return config_.max_connections_per_user;
  return std::max(1u, config_.max_connections / 2);
}

// ---- places

/// A connection that nobody would miss: it has joined no job, or its job has ended.
bool Conductor::is_idle(const Client& client) {
  return client.role == Client::Role::kWorker && !client.returning &&
         (client.state == Client::State::kNew || client.state == Client::State::kEnded);
}

Conductor::Places Conductor::count_places() const {
  Places places;
  for (const auto& [fd, client] : clients_) {
    Places::Use& use = places.of[client->peer.key()];
    ++use.total;
    use.idle += is_idle(*client);
    const bool unjoined = client->state == Client::State::kNew;
    use.unjoined += unjoined;
    const bool guest = client->returning && unjoined;
    use.guests += guest;
    places.guests += guest;
  }
  for (const auto& job : jobs_)
    if (job && job->state == Job::State::kRejoining)
      places.missing += job->workers - static_cast<uint32_t>(std::popcount(job->members_present()));
  return places;
}

/// How many of those that `peer` may be are missing from jobs that wait for them to come back.
uint32_t Conductor::missing_of(const control::PeerCredentials& peer) const {
  uint32_t own = 0;
  uint32_t any = 0;
  for (const auto& job : jobs_) {
    if (!job || job->state != Job::State::kRejoining) continue;
    const auto missing =
        job->workers - static_cast<uint32_t>(std::popcount(job->members_present()));
    const bool of_tenant = !job->tenant.empty();
    if (!peer.remote && !of_tenant && job->uid == peer.uid)
      own += missing;
    else if (!job->ticket.empty() || (peer.remote && of_tenant))
      any += missing;  // who it is it says later: nobody has them all
  }
  return own + (any + 1) / 2;
}

/// Why a connection cannot be served; empty if it can. `returning`: only as one that comes back.
std::string Conductor::no_room(const control::PeerCredentials& peer, Places& places,
                               bool& returning) {
  const Places::Use use = places.of[peer.key()];
  if (peer.remote && use.unjoined >= config_.max_unjoined)
    return fmt::format(
        "{} connections from this address have not joined yet "
        "(control.max_unjoined)",
        use.unjoined);
  std::string text;
  if (!peer.remote && !is_trusted(peer) && use.total >= connections_per_user())
    text = fmt::format("uid {} has {} connections already (control.max_connections_per_user)",
                       peer.uid, use.total);
  // Places are kept for members that come back, but never most of them.
  const uint32_t kept = std::min(places.missing, config_.max_connections / 4 * 3);
  const size_t others = clients_.size() - places.guests;
  if (text.empty() && others >= config_.max_connections - kept && !make_room(peer, places))
    text =
        fmt::format("the switch serves {} connections already (control.max_connections)", others);
  if (text.empty()) return {};
  returning = use.guests < missing_of(peer) && clients_.size() < config_.max_connections;
  return returning ? std::string() : text;
}

/// Closes an idle connection of whoever has most of them, if that is more than `peer` has.
bool Conductor::make_room(const control::PeerCredentials& peer, Places& places) {
  const auto greediest =
      std::ranges::max_element(places.of, {}, [](const auto& entry) { return entry.second.idle; });
  if (greediest == places.of.end() || greediest->second.idle <= places.of[peer.key()].idle + 1)
    return false;
  Client* oldest = nullptr;
  for (const auto& [fd, client] : clients_)
    if (client->peer.key() == greediest->first && is_idle(*client) &&
        (!oldest || client->since < oldest->since))
      oldest = client.get();
  if (!oldest) return false;
  refuse_for_now(*oldest,
                 "the switch needs the place of this connection, which is in no job, for "
                 "others (control.max_connections)");
  --greediest->second.idle;
  --greediest->second.total;
  close_client(oldest->connection.fd());
  return true;
}

/// A refusal that time may change: libina tries again.
void Conductor::refuse_for_now(Client& client, const std::string& text) {
  logging::warn("refused", client.source())("peer", client.peer.text())("status", INA_ERR_REFUSED)(
      "text", text);
  send(client, control::no_room_message(text));
  client.told = true;
}

void Conductor::accept_clients(const control::Listener& listener) {
  std::optional<Places> places;
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    const WorkTimer timer;
    Result<std::optional<control::Connection>> accepted =
        fail(INA_ERR_NO_MEMORY, "too many connections wait to be closed");
    if (!doorman_busy()) accepted = listener.accept();
    if (!accepted) {
      logging::warn("no connection accepted", "accept")("ms", kAcceptPauseNs / 1'000'000)(
          "text", accepted.error().text);
      for (const int fd : listening()) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
      accept_again_ = timer.began_ns() + kAcceptPauseNs;
      return;
    }
    if (!*accepted) return;
    if (!places) places = count_places();
    accept_client(std::move(**accepted), *places, timer);
  }
}

void Conductor::accept_client(control::Connection connection, Places& places,
                              const WorkTimer& timer) {
  const Nanos now = timer.began_ns();
  const control::PeerCredentials peer = connection.peer();
  bool returning = false;
  std::string text = no_room(peer, places, returning);
  if (text.empty() && !is_trusted(peer) && budget_.free_at(peer.key(), now) > now && !returning)
    text =
        "this user or address keeps the switch busier than it may: its share is a quarter of "
        "the time";
  if (!text.empty()) {
    logging::warn("connection refused", peer.source())("peer", peer.text())("text", text);
    (void)connection.send(control::no_room_message(text));
    if (peer.remote) say_farewell(std::move(connection));
    return budget_.charge(peer.key(), timer.spent_ns(), now);
  }
  auto client = std::make_unique<Client>();
  client->peer = peer;
  client->connection = std::move(connection);
  client->since = now;
  client->returning = returning;
  const int fd = client->connection.fd();
  if (!watch(fd)) return;
  clients_[fd] = std::move(client);
  Places::Use& use = places.of[peer.key()];
  ++use.total;
  ++use.unjoined;
  use.idle += !returning;
  use.guests += returning;
  places.guests += returning;
  budget_.charge(peer.key(), timer.spent_ns(), now);
}

/// False: refused. A place that is kept for members that come back is for nothing else.
bool Conductor::may_say(Client& client, const std::string& type) {
  if (!client.returning || client.state != Client::State::kNew || type == "rejoin") return true;
  refuse_for_now(client,
                 "the switch has no more places but for workers that come back to their jobs");
  to_close_.insert(client.connection.fd());
  return false;
}

/// Closes those that have joined nothing for too long.
void Conductor::close_silent(Nanos now) {
  for (auto& [fd, client] : clients_) {
    const bool idle =
        client->state == Client::State::kNew || client->state == Client::State::kEnded;
    const Nanos most = client->returning && client->state == Client::State::kNew
                           ? std::min(kReturnNs, config_.join_timeout_ns)
                           : config_.join_timeout_ns;
    if (idle && now - client->since > most) to_close_.insert(fd);
  }
}

// ---- time

/// Reads what a client has to say, if its user or address has not taken too much time lately.
void Conductor::serve_client(Client& client) {
  if (is_trusted(client.peer)) return read_client(client);
  const WorkTimer timer;
  const Nanos begin = timer.began_ns();
  if (const Nanos free_at = budget_.free_at(client.peer.key(), begin); free_at > begin)
    return pause(client, std::min(free_at, begin + kLongestPauseNs));
  read_client(client);
  charge_time(client, timer.spent_ns());
}

/// Of the conductor, or of a thread that works for it.
void Conductor::charge_time(const Client& client, Nanos spent) {
  if (!is_trusted(client.peer)) budget_.charge(client.peer.key(), spent, now_ns());
}

void Conductor::pause(Client& client, Nanos until) {
  if (client.paused_until != 0) return;
  client.paused_until = until;
  const int fd = client.connection.fd();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  paused_.emplace(until, fd);
}

void Conductor::resume_paused(Nanos now) {
  while (!paused_.empty() && paused_.begin()->first <= now) {
    const int fd = paused_.begin()->second;
    paused_.erase(paused_.begin());
    Client& client = *clients_.at(fd);
    client.paused_until = 0;
    client.watching_output = false;
    if (!watch(fd)) {
      to_close_.insert(fd);
      continue;
    }
    watch_output(client);
    if (client.connection.buffered()) unread_.insert(fd);
  }
}

// ---- the end

/// A TCP connection that is closed while something of its peer is unread is reset, and takes the
/// reason with it. So its peer gets some time to read that, as long as not too many do.
void Conductor::say_farewell(control::Connection connection) {
  const int fd = connection.fd();
  if (farewells_.size() >= kMaxFarewells || !watch(fd)) return;
  Farewell& farewell = farewells_[fd];
  farewell = {std::move(connection), now_ns() + config_.farewell_ns};
  serve_farewell(fd);
}

void Conductor::serve_farewell(int fd) {
  Farewell& farewell = farewells_.at(fd);
  bool open = true;
  if (farewell.connection.pending()) open = farewell.connection.receive(0).has_value();
  if (!farewell.connection.pending()) ::shutdown(fd, SHUT_WR);
  char unread[4096];
  for (int i = 0; open && !farewell.connection.pending() && i < 4; ++i) {
    const ssize_t got = ::recv(fd, unread, sizeof(unread), MSG_DONTWAIT);
    if (got < 0) break;
    open = got > 0;
  }
  if (open) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  farewells_.erase(fd);
}

void Conductor::end_farewells(Nanos now) {
  std::erase_if(farewells_, [now](const auto& entry) { return entry.second.until <= now; });
}

}  // namespace ina::switchd
