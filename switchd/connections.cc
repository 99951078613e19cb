#include "switchd/connections.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "common/clock.h"
#include "common/logging/record.h"

namespace ina::switchd {

namespace answer = control::answer;

namespace {

constexpr int kAcceptsPerTurn = 32;
constexpr int kMessagesPerTurn = 16;
// A connection on a place that is kept for workers that come back says `rejoin` by then.
constexpr Nanos kReturnNs = 2'000'000'000;
constexpr Nanos kLongestPauseNs = 1'000'000'000;
// A connection of an administrator that has asked for something stays for so long.
constexpr Nanos kIdleAdministratorNs = 300'000'000'000;
// Connections that say nothing are looked for this often.
constexpr Nanos kSilentNs = 50'000'000;

constexpr const char* kTooBusy =
    "this user or address keeps the switch busier than it may: its share is a quarter of the time";

/// It has joined no job, or its job has ended.
bool has_no_job(const Client& client) {
  return client.places.empty() &&
         (client.state == Client::State::kNew || client.state == Client::State::kEnded);
}

/// A connection that nobody would miss.
bool is_idle(const Client& client) {
  return client.role == Client::Role::kWorker && !client.returning && has_no_job(client);
}

/// How many workers have not come back to a job yet; groups are in their jobs.
uint32_t missing_in(const Job& job) {
  if (job.is_group() || job.state != Job::State::kRejoining) return 0;
  return job.workers - job.members_present().size();
}

}  // namespace

Connections::Connections(const ConductorConfig& config, const JobTable& jobs,
                         control::Doorman* doorman, Epoll& epoll, Handlers handlers)
    : config_(config),
      jobs_(jobs),
      doorman_(doorman),
      epoll_(epoll),
      handlers_(std::move(handlers)),
      admin_sockets_(config.admin, doorman),
      farewells_(epoll, config.farewell_ns),
      budget_(config.work) {}

// ---- who gets one

Result<void> Connections::open() {
  auto listener = control::Listener::open(config_.control.socket, config_.control.mode);
  if (!listener) return tl::unexpected(listener.error());
  listener_.emplace(std::move(*listener));
  listener_->set_doorman(doorman_);
  if (!config_.control.listen.empty()) {
    auto tcp =
        control::Listener::open_tcp(config_.control.listen, config_.control.dead_peer_timeout_ns);
    if (!tcp) return tl::unexpected(tcp.error());
    tcp_listener_.emplace(std::move(*tcp));
    tcp_port_ = tcp_listener_->port();
  }
  return admin_sockets_.open();
}

std::vector<int> Connections::listening() const {
  std::vector<int> fds = admin_sockets_.listening();
  fds.push_back(listener_->fd());
  if (tcp_listener_) fds.push_back(tcp_listener_->fd());
  return fds;
}

Result<void> Connections::accept_from_now_on() {
  for (const int fd : listening())
    if (auto watched = epoll_.watch(fd); !watched) return watched;
  accept_again_ = 0;
  return {};
}

uint32_t Connections::per_user() const {
  if (config_.control.max_connections_per_user != 0)
    return config_.control.max_connections_per_user;
  return std::max(1u, config_.control.max_connections / 2);
}

Connections::Places Connections::count_places() const {
  Places places;
  bool serving = false;
  for (const auto& [fd, client] : clients_) {
    serving = serving || client->role == Client::Role::kServer;
    if (client->role != Client::Role::kWorker) {
      ++places.not_workers;
      continue;
    }
    Places::Use& use = places.of[client->peer.key()];
    ++use.total;
    use.idle += is_idle(*client);
    const bool unjoined = client->state == Client::State::kNew;
    use.unjoined += unjoined;
    const bool guest = client->returning && unjoined;
    use.guests += guest;
    places.guests += guest;
  }
  for (const Job& job : jobs_) places.missing += missing_in(job);
  if (config_.rules.home == Home::kDedicated)
    places.servers_missing =
        (serving ? 0 : 1) + jobs_.count([](const Job& job) { return !job.fallback.client; });
  return places;
}

/// How many of those that `peer` may be are missing from jobs that wait for them to come back.
uint32_t Connections::missing_of(const control::PeerCredentials& peer) const {
  uint32_t own = 0;
  uint32_t any = 0;
  for (const Job& job : jobs_) {
    const bool of_tenant = !job.tenant.empty();
    if (!peer.remote && !of_tenant && job.uid == peer.uid)
      own += missing_in(job);
    else if (!job.ticket.empty() || (peer.remote && of_tenant))
      any += missing_in(job);  // who it is it says later: nobody has them all
  }
  return own + (any + 1) / 2;
}

/// Why a connection cannot be served; empty if it can. `returning`: only as one that comes back.
std::string Connections::no_room(const control::PeerCredentials& peer, Places& places,
                                 bool& returning) {
  const Places::Use use = places.of[peer.key()];
  if (peer.remote && use.unjoined >= config_.control.max_unjoined)
    return fmt::format(
        "{} connections from this address have not joined yet "
        "(control.max_unjoined)",
        use.unjoined);
  std::string text;
  if (!peer.remote && !peer.is_trusted() && use.total >= per_user())
    text = fmt::format("uid {} has {} connections already (control.max_connections_per_user)",
                       peer.uid, use.total);
  // Places are kept for members that come back, but never most of them.
  const uint32_t kept = std::min(places.missing, config_.control.max_connections / 4 * 3);
  const size_t workers = clients_.size() - places.not_workers;
  const size_t others = workers - places.guests;
  if (text.empty() && others >= config_.control.max_connections - kept && !make_room(peer, places))
    text =
        fmt::format("the switch serves {} connections already (control.max_connections)", others);
  if (text.empty()) return {};
  const uint32_t servers = peer.is_trusted() ? places.servers_missing : 0;
  returning = use.guests < missing_of(peer) + servers &&
              workers < config_.control.max_connections + servers;
  return returning ? std::string() : text;
}

/// Closes an idle connection of the user with most of them, if that is more than `peer` has.
bool Connections::make_room(const control::PeerCredentials& peer, Places& places) {
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
  close(oldest->connection.fd());
  return true;
}

bool Connections::doorman_busy() const {
  return doorman_ && doorman_->has_too_many();
}

void Connections::accept(const control::Listener& listener, bool of_administrators) {
  std::optional<Places> places;
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    const control::WorkTimer timer;
    Result<std::optional<control::Connection>> accepted =
        fail(INA_ERR_NO_MEMORY, "too many connections wait to be closed");
    if (!doorman_busy()) accepted = listener.accept();
    if (!accepted) {
      logging::warn("no connection accepted", "accept")("ms", control::kAcceptPauseNs / 1'000'000)(
          "text", accepted.error().text);
      for (const int fd : listening()) epoll_.forget(fd);
      accept_again_ = timer.began_ns() + control::kAcceptPauseNs;
      return;
    }
    if (!*accepted) return;
    if (of_administrators) {
      take_in_administrator(std::move(**accepted), timer);
      continue;
    }
    if (!places) places = count_places();
    take_in(std::move(**accepted), *places, timer);
  }
}

void Connections::take_in_administrator(control::Connection connection,
                                        const control::WorkTimer& timer) {
  const Nanos now = timer.began_ns();
  const control::PeerCredentials peer = connection.peer();
  const bool may = admin_sockets_.may_come_in(connection);
  std::string text;
  if (!may)
    text = "administrators are root, the switch's own user, and its admin.group";
  else if (!admin_sockets_.has_room(peer, clients_))
    text = "there are as many connections of administrators as there may be";
  else if (peer.remote && budget_.free_at(peer.key(), now) > now)
    text = kTooBusy;
  if (!text.empty()) {
    logging::warn("administrator refused", peer.source())("by", peer.whole_text())("text", text);
    turn_away(std::move(connection), text, may, now);
    return charge_time(peer, timer.spent_ns());
  }
  auto client = std::make_unique<Client>();
  client->role = Client::Role::kAdministrator;
  client->peer = peer;
  client->connection = std::move(connection);
  client->since = now;
  const int fd = client->connection.fd();
  if (epoll_.watch(fd)) clients_[fd] = std::move(client);
  if (peer.remote) charge_time(peer, timer.spent_ns());
}

/// `retry`: the peer may try again.
void Connections::turn_away(control::Connection connection, const std::string& text, bool retry,
                            Nanos now) {
  const answer::Refused refused{.status = INA_ERR_REFUSED, .text = text, .retry = retry};
  (void)connection.send_text(control::to_text(refused));
  if (connection.peer().remote) farewells_.add(std::move(connection), now);
}

void Connections::take_in(control::Connection connection, Places& places,
                          const control::WorkTimer& timer) {
  const Nanos now = timer.began_ns();
  const control::PeerCredentials peer = connection.peer();
  bool returning = false;
  std::string text = no_room(peer, places, returning);
  if (text.empty() && !peer.is_trusted() && budget_.free_at(peer.key(), now) > now && !returning)
    text = kTooBusy;
  if (!text.empty()) {
    logging::warn("connection refused", peer.source())("peer", peer.text())("text", text);
    turn_away(std::move(connection), text, true, now);
    return budget_.charge(peer.key(), timer.spent_ns(), now);
  }
  auto client = std::make_unique<Client>();
  client->peer = peer;
  client->connection = std::move(connection);
  client->since = now;
  client->returning = returning;
  const int fd = client->connection.fd();
  if (!epoll_.watch(fd)) return;
  clients_[fd] = std::move(client);
  Places::Use& use = places.of[peer.key()];
  ++use.total;
  ++use.unjoined;
  use.idle += !returning;
  use.guests += returning;
  places.guests += returning;
  budget_.charge(peer.key(), timer.spent_ns(), now);
}

/// How long a connection may go on without a job or, of an administrator, a request.
Nanos Connections::longest_silence(const Client& client) const {
  const bool is_new = client.state == Client::State::kNew;
  if (client.administers()) return is_new ? config_.admin_silence_ns : kIdleAdministratorNs;
  if (!has_no_job(client)) return std::numeric_limits<Nanos>::max();
  const Nanos most = config_.control.join_timeout_ns;
  return client.returning && is_new ? std::min(kReturnNs, most) : most;
}

void Connections::close_silent(Nanos now) {
  for (auto& [fd, client] : clients_)
    if (now - client->since > longest_silence(*client)) to_close_.insert(fd);
}

// ---- time

/// Reads what a client has to say, if its user or address has not taken too much time lately.
void Connections::serve(Client& client) {
  // Before it has asked for anything, one over TCP may be a stranger whose handshake fails.
  const bool certified = client.administers() && client.state != Client::State::kNew;
  if (client.peer.is_trusted() || certified) return read(client);
  const control::WorkTimer timer;
  const Nanos begin = timer.began_ns();
  if (const Nanos free_at = budget_.free_at(client.peer.key(), begin); free_at > begin)
    return pause(client, std::min(free_at, begin + kLongestPauseNs));
  read(client);
  charge_time(client.peer, timer.spent_ns());
}

void Connections::charge_time(const control::PeerCredentials& peer, Nanos spent) {
  if (!peer.is_trusted()) budget_.charge(peer.key(), spent, now_ns());
}

void Connections::pause(Client& client, Nanos until) {
  if (client.paused_until != 0) return;
  client.paused_until = until;
  const int fd = client.connection.fd();
  epoll_.forget(fd);
  paused_.emplace(until, fd);
}

void Connections::resume_paused(Nanos now) {
  while (!paused_.empty() && paused_.begin()->first <= now) {
    const int fd = paused_.begin()->second;
    paused_.erase(paused_.begin());
    Client& client = *clients_.at(fd);
    client.paused_until = 0;
    client.watching_output = false;
    if (!epoll_.watch(fd)) {
      to_close_.insert(fd);
      continue;
    }
    watch_output(client);
    if (client.connection.buffered()) unread_.insert(fd);
  }
}

bool Connections::serve(int fd) {
  if (listener_ && fd == listener_->fd()) {
    accept(*listener_, false);
  } else if (tcp_listener_ && fd == tcp_listener_->fd()) {
    accept(*tcp_listener_, false);
  } else if (const control::Listener* listener = admin_sockets_.find(fd)) {
    accept(*listener, true);
  } else if (Client* client = find(fd)) {
    if (client->token == 0)
      serve(*client);
    else
      close_later(*client);
  } else if (farewells_.contains(fd)) {
    farewells_.serve(fd);
  } else {
    return false;
  }
  return true;
}

void Connections::serve_unread() {
  for (const int fd : std::exchange(unread_, {}))
    if (Client* client = find(fd)) serve(*client);
}

Nanos Connections::next_turn(Nanos until) const {
  if (accept_again_ != 0) until = std::min(until, accept_again_);
  if (!paused_.empty()) until = std::min(until, paused_.begin()->first);
  return until;
}

void Connections::turn(Nanos now) {
  resume_paused(now);
  farewells_.end_overdue(now);
  if (now - looked_for_silent_ >= kSilentNs) {
    looked_for_silent_ = now;
    close_silent(now);
  }
  while (!to_close_.empty()) close(*to_close_.begin());
  if (accept_again_ != 0 && now >= accept_again_) (void)accept_from_now_on();
}

Client* Connections::find(int fd) const {
  const auto found = clients_.find(fd);
  return found == clients_.end() ? nullptr : found->second.get();
}

// ---- their end

void Connections::close(int fd) {
  to_close_.erase(fd);
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  const std::unique_ptr<Client> client = std::move(found->second);
  clients_.erase(found);
  epoll_.forget(fd);
  unread_.erase(fd);
  if (client->paused_until != 0) paused_.erase({client->paused_until, fd});
  handlers_.closed(*client);
  if (client->peer.remote && client->told) farewells_.add(std::move(client->connection), now_ns());
}

void Connections::close_all() {
  listener_.reset();
  tcp_listener_.reset();
  admin_sockets_.close();
  farewells_.clear();
  clients_.clear();
}

// ---- what is said

void Connections::read(Client& client) {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    auto received = client.connection.receive(0);  // sends what waits, too
    watch_output(client);
    if (!received) {
      if (received.error().status == INA_ERR_INVALID)
        refuse(client, INA_ERR_INVALID, received.error().text);
      else if (received.error().status == INA_ERR_REFUSED)  // there is no telling it
        logging::warn("refused", client.source())("peer", client.peer.text())(
            "text", received.error().text);
      return close_later(client);
    }
    if (!*received) return;
    try {
      handlers_.message(client, **received);
    } catch (const std::bad_alloc&) {
      refuse(client, INA_ERR_NO_MEMORY, "the switch is out of memory: try again");
    }
    if (client.token != 0 || to_close_.contains(client.connection.fd())) return;
  }
  if (client.connection.buffered()) unread_.insert(client.connection.fd());
}

void Connections::release(Client& client) {
  if (!epoll_.change(client.connection.fd(), EPOLLIN)) close_later(client);
}

void Connections::send(Client& client, const answer::Message& message,
                       const std::vector<int>& fds) {
  Client& line = client.line();
  const auto channel = client.carrier ? std::optional(client.channel) : std::nullopt;
  const Result<void> sent = line.connection.send_text(control::to_text(message, channel), fds);
  if (!sent && sent.error().status == INA_ERR_NO_MEMORY)
    return refuse(client, INA_ERR_NO_MEMORY, "the switch " + sent.error().text);
  if (!sent) close_later(line);
  watch_output(line);
}

/// While something waits for room in the socket of a client, its turn comes when there is some.
void Connections::watch_output(Client& client) {
  const bool wanted = (client.connection.events() & POLLOUT) != 0;
  if (wanted == client.watching_output || client.paused_until != 0) return;
  if (epoll_.change(client.connection.fd(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN))
    client.watching_output = wanted;
  else
    close_later(client);
}

void Connections::refuse(Client& client, ina_status status, const std::string& text) {
  logging::warn("refused", client.source())("peer", client.peer.text())("status", status)("text",
                                                                                          text);
  send(client, answer::Refused{status, text});
  client.line().told = true;
  // A peer that has shown no token gets one answer.
  if (client.peer.remote && !client.administers() && client.tenant.empty()) close_later(client);
}

void Connections::refuse_malformed(Client& client, const Error& error) {
  refuse(client, INA_ERR_INVALID, "malformed control message: " + error.text);
}

bool Connections::refuse_if_crowded(Client& client) {
  const uint32_t open = count(
      [&](const Client& other) { return other.peer.remote && other.tenant == client.tenant; });
  if (client.returning || open <= per_user()) return false;
  refuse_for_now(client, fmt::format("tenant '{}' has {} connections already "
                                     "(control.max_connections_per_user)",
                                     client.tenant, open - 1));
  client.tenant.clear();
  close_later(client);
  return true;
}

void Connections::refuse_for_now(Client& client, const std::string& text) {
  logging::warn("refused", client.source())("peer", client.peer.text())("status", INA_ERR_REFUSED)(
      "text", text);
  send(client, answer::Refused{.status = INA_ERR_REFUSED, .text = text, .retry = true});
  client.told = true;
}

bool Connections::may_say(Client& client, const std::string& type) {
  const bool of_server =
      client.peer.is_trusted() &&
      (type == control::request::Serve::kType || type == control::request::JoinFallback::kType);
  if (!client.returning || client.state != Client::State::kNew || of_server ||
      type == control::request::Rejoin::kType)
    return true;
  refuse_for_now(client,
                 "the switch has no more places but for workers that come back to their jobs, and "
                 "for the fallback server");
  close_later(client);
  return false;
}

}  // namespace ina::switchd
