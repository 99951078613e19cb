#include "switchd/conductor_state.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "common/logging/record.h"

namespace ina::switchd {

namespace {

constexpr int kMessagesPerTurn = 16;
// Connections that say nothing are looked for this often.
constexpr Nanos kSilentNs = 50'000'000;
// How long until the doorman is told again what it had no room for.
constexpr Nanos kAgainNs = 10'000'000;
// A worker is called so often at once, and so often in the long run. It stays awake for a while
// when it is called, so more are of no use to it; each costs whoever shares a core with the
// conductor.
constexpr Nanos kCallNs = 10'000'000;
constexpr Nanos kMostCallsNs = 64 * kCallNs;

scheduler::AdmissionConfig admission_config(const ConductorConfig& config, size_t lanes) {
  scheduler::AdmissionConfig admission;
  admission.fixed_slots = config.fixed_slots();
  admission.slots = config.slots;
  admission.lanes = static_cast<uint32_t>(lanes);
  admission.memory_bytes = config.memory_bytes;
  admission.slots_per_job = config.slots_per_job;
  admission.slots_floor = config.slots_floor;
  admission.slots_ceiling = config.slots_ceiling;
  admission.priority_max = config.priority_max;
  admission.tenants = config.tenants;
  admission.others = config.other_tenants;
  return admission;
}

HandleCount handle_count(const ConductorConfig& config) {
  HandleCount count = Handles::of_this_process(config.max_connections);
  if (config.mappings != 0) count.mappings = config.mappings;
  if (config.descriptors != 0) count.descriptors = config.descriptors;
  return count;
}

/// What cannot be for want of descriptors is not promised.
ConductorConfig within_limits(ConductorConfig config) {
  const uint32_t most = Handles::connections_of_this_process(config.max_connections);
  if (most < config.max_connections)
    logging::warn("fewer connections")("control.max_connections", config.max_connections)(
        "possible", most)("text", "the limit of open files (LimitNOFILE) allows no more");
  config.max_connections = most;
  return config;
}

}  // namespace

uint64_t random_u64() {
  uint64_t value = 0;
  while (::getrandom(&value, sizeof(value), 0) != sizeof(value)) {
  }
  return value;
}

Conductor::Conductor(ConductorConfig config, StateFile state, std::vector<LaneLink*> lanes,
                     control::Doorman* doorman)
    : config_(within_limits(std::move(config))),
      state_(std::move(state)),
      lanes_(std::move(lanes)),
      admission_(admission_config(config_, lanes_.size())),
      handles_(handle_count(config_), config_.handles_share_percent),
      doorman_(doorman),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      reload_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      lane_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      jobs_(config_.max_jobs),
      budget_(config_.work),
      started_(now_ns()) {
  for (LaneLink* lane : lanes_) lane->set_conductor_event(lane_event_.get());
}

Conductor::~Conductor() = default;

Result<void> Conductor::open() {
  auto listener = control::Listener::open(config_.socket_path, config_.socket_mode);
  if (!listener) return tl::unexpected(listener.error());
  listener_.emplace(std::move(*listener));
  listener_->set_doorman(doorman_);
  if (doorman_)
    if (auto watched = watch(doorman_->fd()); !watched) return watched;
  if (!config_.listen.empty())
    if (auto opened = open_tcp(); !opened) return opened;
  for (const int fd :
       {stop_event_.get(), reload_event_.get(), lane_event_.get(), admin_.event_fd(), mapper_.fd()})
    if (auto watched = watch(fd); !watched) return watched;
  for (const int fd : listening())
    if (auto watched = watch(fd); !watched) return watched;
  restore_jobs();
  logging::info("control socket open")("path", config_.socket_path);
  if (tcp_listener_)
    logging::info("control socket open")("listen", config_.listen)(
        "tls", !config_.tls.certificate.empty())("tokens", tokens_ ? tokens_->size() : 0)(
        "anonymous", config_.allow_anonymous);
  return {};
}

/// For workers on other hosts.
Result<void> Conductor::open_tcp() {
  const bool certificates = !config_.tls.certificate.empty() && config_.require_client_certificate;
  if (config_.token_file.empty() && !certificates && !config_.allow_anonymous)
    return fail(INA_ERR_INVALID,
                "control.listen would let anybody in who reaches " + config_.listen +
                    ": set control.token_file, or control.allow_anonymous: true if that is meant");
  auto listener = control::Listener::open_tcp(config_.listen, config_.dead_peer_ns);
  if (!listener) return tl::unexpected(listener.error());
  tcp_listener_.emplace(std::move(*listener));
  return load_credentials();
}

/// What workers on other hosts are to show, and what they are shown. On failure all stays as it is.
Result<void> Conductor::load_credentials() {
  std::optional<control::TokenTable> tokens;
  if (!config_.token_file.empty()) {
    auto loaded = control::TokenTable::load(config_.token_file);
    if (!loaded) return tl::unexpected(loaded.error());
    tokens.emplace(std::move(*loaded));
  }
  if (!config_.tls.certificate.empty()) {
    auto tls = control::load_tls_acceptor(config_.tls, config_.require_client_certificate);
    if (!tls) return tl::unexpected(tls.error());
    tcp_listener_->set_tls(std::move(*tls));
  }
  tokens_ = std::move(tokens);
  return {};
}

std::vector<int> Conductor::listening() const {
  std::vector<int> fds = {listener_->fd()};
  if (tcp_listener_) fds.push_back(tcp_listener_->fd());
  return fds;
}

Result<void> Conductor::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST) return {};
  return fail(INA_ERR_NO_MEMORY, std::string("cannot watch a socket: ") + std::strerror(errno));
}

void Conductor::stop() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_event_.get(), &one, sizeof(one));
}

void Conductor::reload() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(reload_event_.get(), &one, sizeof(one));
}

/// How long the next turn may wait for events.
int Conductor::turn_ms(Nanos now) const {
  Nanos until = now + 1'000'000'000;
  if (accept_again_ != 0) until = std::min(until, accept_again_);
  if (call_again_ != 0) until = std::min(until, call_again_);
  if (!paused_.empty()) until = std::min(until, paused_.begin()->first);
  if (doorman_ && doorman_->waiting() != 0) until = std::min<Nanos>(until, now + kAgainNs);
  for (const auto& job : jobs_) {
    if (!job) continue;
    if (job->state == Job::State::kRejoining) until = std::min(until, job->rejoin_deadline);
    if (job->reserved_until != 0) until = std::min(until, job->reserved_until);
  }
  return static_cast<int>(std::max<Nanos>(0, until - now) / 1'000'000 + 1);
}

void Conductor::run() {
  lanes_run_ = true;
  begin_reserved_jobs();
  for (bool stopping = false; !stopping;) {
    epoll_event events[64];
    const int count =
        ::epoll_wait(epoll_.get(), events, 64, unread_.empty() ? turn_ms(now_ns()) : 0);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == stop_event_.get()) {
        stopping = true;
      } else if (fd == lane_event_.get()) {
        uint64_t value;
        [[maybe_unused]] const ssize_t got = ::read(fd, &value, sizeof(value));
        on_lane_events();
        call_idle_workers(now_ns());
      } else if (fd == admin_.event_fd()) {
        admin_.serve([this](const admin::Request& request, const std::string& who) {
          return administer(request, who);
        });
      } else if (fd == reload_event_.get()) {
        uint64_t value;
        [[maybe_unused]] const ssize_t got = ::read(fd, &value, sizeof(value));
        (void)administer(admin::Reload{}, "SIGHUP");
      } else if (fd == mapper_.fd()) {
        on_mapped();
      } else if (doorman_ && fd == doorman_->fd()) {
        on_doorman();
      } else if (fd == listener_->fd()) {
        accept_clients(*listener_);
      } else if (tcp_listener_ && fd == tcp_listener_->fd()) {
        accept_clients(*tcp_listener_);
      } else if (const auto client = clients_.find(fd); client != clients_.end()) {
        if (client->second->token == 0)
          serve_client(*client->second);
        else
          to_close_.insert(fd);  // it is not read from, so this is its end
      } else if (farewells_.contains(fd)) {
        serve_farewell(fd);
      }
    }
    for (const int fd : std::exchange(unread_, {}))
      if (const auto client = clients_.find(fd); client != clients_.end())
        serve_client(*client->second);
    const Nanos now = now_ns();
    look_after_memory(now);
    resume_paused(now);
    if (call_again_ != 0 && now >= call_again_) call_idle_workers(now);
    end_farewells(now);
    if (now - looked_for_silent_ >= kSilentNs) {
      looked_for_silent_ = now;
      close_silent(now);
    }
    while (!to_close_.empty()) close_client(*to_close_.begin());
    // A job whose first worker was refused half-way, or whose workers all went before it began.
    for (auto& job : jobs_)
      if (job && job->state != Job::State::kRejoining && job->reserved_until == 0 &&
          job->members_present() == 0) {
        logging::info("job ended", job->owner())("job", job->name)("id", value(job->id))(
            "text", "its workers went before it began");
        remove_job(*job);
      }
    end_overdue_rejoins(now);
    end_overdue_reservations(now);
    tell_dropped(now);
    logging::report_omitted(now);
    if (accept_again_ != 0 && now >= accept_again_) {
      bool watched = true;
      for (const int fd : listening()) watched = watch(fd) && watched;
      if (watched) accept_again_ = 0;
    }
  }
  admin_.close();
  // Who joins is told; the others find the connection closed and come back to the next switch.
  for (auto& job : jobs_) {
    if (!job) continue;
    if (job->state == Job::State::kJoining && job->reserved_until == 0) {
      end_job(*job, INA_ERR_SWITCH_LOST, "the switch was shut down");
      continue;
    }
    // One that an administrator made waits on, in the state file.
    if (job->state == Job::State::kJoining)
      tell_end(*job, INA_ERR_SWITCH_LOST, "the switch was shut down");
    on_lanes(LaneCommand::Kind::kRemoveJob,
             [&](LaneCommand& command, uint32_t) { command.job = job->index; });
  }
  listener_.reset();
  tcp_listener_.reset();
  farewells_.clear();
  clients_.clear();
}

void Conductor::read_client(Client& client) {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    auto received = client.connection.receive(0);  // sends what waits, too
    watch_output(client);
    if (!received) {
      if (received.error().status == INA_ERR_INVALID)
        refuse(client, INA_ERR_INVALID, received.error().text);
      else if (received.error().status == INA_ERR_REFUSED)  // there is no telling it
        logging::warn("refused", client.source())("peer", client.peer.text())(
            "text", received.error().text);
      to_close_.insert(client.connection.fd());
      return;
    }
    if (!*received) return;
    try {
      if ((*received)->carries_descriptors)
        on_descriptors(client, std::move((*received)->body));
      else
        handle(client, **received);
    } catch (const Json::exception& e) {
      refuse(client, INA_ERR_INVALID, std::string("malformed control message: ") + e.what());
      if ((*received)->carries_descriptors) to_close_.insert(client.connection.fd());
    } catch (const std::bad_alloc&) {
      refuse(client, INA_ERR_NO_MEMORY, "the switch is out of memory: try again");
    }
    if (client.token != 0 || to_close_.contains(client.connection.fd())) return;
  }
  if (client.connection.buffered()) unread_.insert(client.connection.fd());
}

void Conductor::handle(Client& client, control::Received& received) {
  const std::string type = received.body.at("type").get<std::string>();
  if (!may_say(client, type)) return;
  if ((type == "join" || type == "rejoin") && received.body.contains("ticket") &&
      !check_ticket(client, received.body))
    return;
  if (client.peer.remote) {
    if (type == "serve" || type == "join_fallback")
      return refuse(client, INA_ERR_UNSUPPORTED,
                    fmt::format("'{}' needs the switch's unix socket: over TCP nobody may serve as "
                                "fallback, since that sees every job's contributions",
                                type));
    if (type == "register")
      return refuse(
          client, INA_ERR_UNSUPPORTED,
          fmt::format("'{}' needs the switch's unix socket: no descriptors pass over TCP", type));
    if (type == "join" || type == "rejoin" || type == "status") {
      if (!authenticate(client, received.body)) return;
    } else if (client.tenant.empty()) {
      return refuse(client, INA_ERR_REFUSED,
                    fmt::format("'{}' before join: the switch does not know who asks", type));
    }
  }
  if (client.role != Client::Role::kWorker || type == "serve" || type == "join_fallback")
    return handle_server(client, received, type);
  if (type == "join") return on_join(client, received.body);
  if (type == "rejoin") return on_rejoin(client, received.body);
  if (type == "attach") return on_attach(client);
  if (type == "register")
    return answer_register(client, received.body, INA_ERR_INVALID,
                           "memory is registered over the shm port with one descriptor");
  if (type == "unregister") return on_unregister(client, received.body);
  if (type == "share_results") return on_share_results(client, received.body);
  if (type == "free_results") return on_free_results(client, received.body);
  if (type == "leave") return on_leave(client);
  if (type == "abort") return on_abort(client, received.body);
  if (type == "mismatch") return on_mismatch(client, received.body);
  if (type == "explain") return on_explain(client);
  if (type == "status") return on_status(client);
  refuse(client, INA_ERR_INVALID, "unknown control message type '" + type + "'");
}

/// Over TCP: learns whose worker this is. False: refused, and the connection is about to be closed.
bool Conductor::authenticate(Client& client, const Json& body) {
  if (!client.tenant.empty()) return true;
  if (const auto name = client.connection.peer_name())
    return authenticate_by(client, *name) && !is_crowded(client);
  const std::string token = body.value("token", std::string());
  const auto tenant = tokens_ && !token.empty() ? tokens_->tenant_of(token) : std::nullopt;
  if (tenant) {
    client.tenant = *tenant;
  } else if (config_.allow_anonymous && (token.empty() || !tokens_)) {
    client.tenant = control::kAnonymousTenant;
  } else if (token.empty()) {
    refuse(client, INA_ERR_REFUSED,
           "the token is missing: over TCP this switch lets nobody in without one (INA_TOKEN or "
           "INA_TOKEN_FILE)");
  } else {
    refuse(client, INA_ERR_REFUSED,
           "the token is unknown: it is not in the switch's control.token_file");
  }
  return !client.tenant.empty() && !is_crowded(client);
}

/// True: refused, because its tenant has enough connections.
bool Conductor::is_crowded(Client& client) {
  const auto open = std::ranges::count_if(clients_, [&](const auto& entry) {
    return entry.second->peer.remote && entry.second->tenant == client.tenant;
  });
  if (client.returning || open <= connections_per_user()) return false;
  refuse_for_now(client, fmt::format("tenant '{}' has {} connections already "
                                     "(control.max_connections_per_user)",
                                     client.tenant, open - 1));
  client.tenant.clear();
  to_close_.insert(client.connection.fd());
  return true;
}

/// Its certificate says whose worker it is.
bool Conductor::authenticate_by(Client& client, const std::string& common_name) {
  std::string problem = control::tenant_problem(common_name);
  if (common_name == control::kAnonymousTenant)
    problem = "the tenant 'anonymous' is that of workers who show nothing";
  if (!problem.empty()) {
    refuse(client, INA_ERR_REFUSED, "the certificate's common name is no tenant: " + problem);
    return false;
  }
  client.tenant = common_name;
  return true;
}

/// Why no more workers' connections are taken for the job's owner; empty if they are. A worker has
/// one, and may be slow to close that of a job that has ended.
std::string Conductor::crowded_text(const Job& job) const {
  const uint64_t most = 2 * uint64_t{admission_.quota(job.owner()).workers_max};
  const auto open = std::ranges::count_if(clients_, [owner = job.owner()](const auto& entry) {
    return entry.second->account == owner;
  });
  if (most == 0 || static_cast<uint64_t>(open) < most) return {};
  return fmt::format(
      "tenant '{}' has {} connections open, twice as many as it may have workers "
      "(tenants: workers_max); close those whose jobs have ended",
      job.owner(), open);
}

/// Its job has ended for it.
void Conductor::part(Client& client) {
  client.job = nullptr;
  client.state = Client::State::kEnded;
  client.since = now_ns();
}

void Conductor::close_client(int fd) {
  to_close_.erase(fd);
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  const std::unique_ptr<Client> client = std::move(found->second);
  clients_.erase(found);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  asking_.erase(client->token);
  unread_.erase(fd);
  if (client->paused_until != 0) paused_.erase({client->paused_until, fd});
  if (client->job && client->role == Client::Role::kFallback)
    fallback_gone(*client);
  else if (client->job)
    worker_gone(*client);
  if (client->peer.remote && client->told) say_farewell(std::move(client->connection));
}

void Conductor::send(Client& client, const Json& body, const std::vector<int>& fds) {
  const auto sent = client.connection.send(body, fds);
  if (!sent && sent.error().status == INA_ERR_NO_MEMORY)
    return refuse(client, INA_ERR_NO_MEMORY, "the switch " + sent.error().text);
  if (!sent) to_close_.insert(client.connection.fd());
  watch_output(client);
}

/// While something waits for room in the socket of a client, its turn comes when there is some.
void Conductor::watch_output(Client& client) {
  const bool wanted = (client.connection.events() & POLLOUT) != 0;
  if (wanted == client.watching_output || client.paused_until != 0) return;
  epoll_event event{};
  event.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.fd = client.connection.fd();
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, event.data.fd, &event) == 0)
    client.watching_output = wanted;
  else
    to_close_.insert(event.data.fd);
}

void Conductor::refuse(Client& client, ina_status status, const std::string& text) {
  logging::warn("refused", client.source())("peer", client.peer.text())("status", status)("text",
                                                                                          text);
  send(client, {{"type", "refused"}, {"status", status}, {"text", text}});
  client.told = true;
  // Who has shown no token gets one answer.
  if (client.peer.remote && client.tenant.empty()) to_close_.insert(client.connection.fd());
}

// ---- joining

/// What a job begins with, but for whose it is.
SavedJob Conductor::new_job(const std::string& name, uint32_t workers) {
  SavedJob fresh;
  fresh.name = name;
  fresh.id = state_.new_job_id();
  fresh.key = random_u64();
  fresh.workers = workers;
  fresh.epoch = state_.epoch_after(0).value();
  return fresh;
}

/// Gives a new job its place, and the lanes the job. `request`: what it asks for beside its window.
Result<Conductor::Job*> Conductor::admit(const SavedJob& fresh, scheduler::JobRequest request,
                                         uint64_t window_bytes, const std::string& who) {
  const auto refused = [&](ina_status status, const std::string& text) {
    return fail(status, fmt::format("job '{}' does not fit: {}", fresh.name, text));
  };
  if (draining_)
    return fail(INA_ERR_REFUSED,
                fmt::format("the switch is drained and takes no new job, such as '{}'; `inactl "
                            "undrain` would open it again",
                            fresh.name));
  const auto free = std::find(jobs_.begin(), jobs_.end(), nullptr);
  if (free == jobs_.end())
    return refused(INA_ERR_REFUSED,
                   fmt::format("the switch runs {} jobs already (switch.max_jobs)", jobs_.size()));
  auto job = make_job(fresh, static_cast<size_t>(free - jobs_.begin()));
  if (auto taken = take_resources(*job, std::move(request), window_bytes); !taken)
    return refused(taken.error().status, taken.error().text);
  auto made = take_handles(*job);
  if (made) made = make_results(*job);
  if (!made) {
    give_back_resources(*job);
    return refused(made.error().status, made.error().text);
  }
  add_to_lanes(*job, Seq{});
  logging::info("job admitted", job->owner())("job", job->name)("id", value(job->id))(
      "workers", job->workers)("window", job->grant.window)(
      "memory_bytes", job->grant.memory_bytes)("by", who)("owner", job->owner());
  *free = std::move(job);
  return free->get();
}

/// A job of what its entry in the state file says, but for the results.
std::unique_ptr<Conductor::Job> Conductor::make_job(const SavedJob& saved, size_t index) {
  auto job = std::make_unique<Job>();
  job->name = saved.name;
  job->index = static_cast<aggregator::JobIndex>(index);
  job->id = JobId{saved.id};
  job->key = saved.key;
  job->uid = saved.uid;
  job->tenant = saved.tenant;
  job->ticket = saved.ticket;
  job->workers = saved.workers;
  job->epoch = saved.epoch;
  job->payload_key = {random_u64(), random_u64()};
  job->members.resize(saved.workers);
  return job;
}

Result<void> Conductor::make_results(Job& job) {
  auto results = io::shm::make_region("ina-results", io::shm::result_region_bytes(job.geometry));
  if (!results) return tl::unexpected(results.error());
  job.results = std::move(*results);
  return {};
}

/// `start`: the first fragment that may still have to be served.
void Conductor::add_to_lanes(Job& job, Seq start) {
  on_lanes(LaneCommand::Kind::kAddJob, [&](LaneCommand& command, uint32_t lane) {
    command.job = job.index;
    fill_spec(job, lane, start, command.spec);
  });
}

// ---- leaving

void Conductor::on_leave(Client& client) {
  if (client.state != Client::State::kAttached)
    return refuse(client, INA_ERR_INVALID, "leave without attach");
  Job& job = *client.job;
  if (job.state == Job::State::kRejoining)
    return refuse(client, INA_ERR_INVALID, "leave before the job was ready again");
  client.state = Client::State::kLeaving;
  if (job.state == Job::State::kJoining) {
    send(client, {{"type", "left"}});
    return worker_gone(client);
  }
  job.state = Job::State::kLeaving;
  const Bitmap left = job.bits([](const Job::Worker& worker) {
    return !worker.client || worker.client->state == Client::State::kLeaving;
  });
  if (left != full_bitmap(job.workers)) return;
  forget(job);
  for (Job::Worker& member : job.members) {
    if (!member.client) continue;
    send(*member.client, {{"type", "left"}});
    part(*member.client);
    member.client = nullptr;
  }
  logging::info("job ended", job.owner())("job", job.name)("id", value(job.id));
  remove_job(job);
}

/// The connection of a job's worker is gone, or it gave up waiting for the others to join.
void Conductor::worker_gone(Client& client) {
  Job& job = *client.job;
  Job::Worker& worker = job.members[value(client.rank)];
  const bool leaving = client.state == Client::State::kLeaving;
  part(client);
  worker.client = nullptr;
  if (job.state == Job::State::kJoining || job.state == Job::State::kRejoining) {
    if (worker.attached && job.state == Job::State::kJoining)
      on_lanes(LaneCommand::Kind::kDetach, [&](LaneCommand& command, uint32_t) {
        command.job = job.index;
        command.rank = client.rank;
      });
    drop_worker(job, client.rank);
    return tell_missing(job);
  }
  // If it said goodbye and did not wait for the others, they need nothing more from it.
  if (leaving) return;
  end_job(job, INA_ERR_PEER_LOST,
          fmt::format("rank {} ({}) of job '{}' died or left without ina_finalize",
                      value(client.rank), client.peer.text(), job.name));
}

void Conductor::end_job(Job& job, ina_status status, const std::string& text) {
  logging::warn("job aborted", job.owner())("job", job.name)("id", value(job.id))("status", status)(
      "text", text);
  forget(job);
  tell_end(job, status, text);
  remove_job(job);
}

/// Tells the workers. They have no job any more.
void Conductor::tell_end(Job& job, ina_status status, const std::string& text) {
  for (Job::Worker& member : job.members) {
    if (!member.client) continue;
    send(*member.client, {{"type", "abort"}, {"status", status}, {"text", text}});
    part(*member.client);
    member.client = nullptr;
  }
}

void Conductor::remove_job(Job& job) {
  release_fallback(job);
  on_lanes(LaneCommand::Kind::kRemoveJob,
           [&](LaneCommand& command, uint32_t) { command.job = job.index; });
  forget(job);
  give_back_resources(job);
  // What its workers still have is charged on.
  drop_worker(job, kFallbackRank);
  for (uint32_t rank = 0; rank < job.workers; ++rank)
    drop_worker(job, Rank{static_cast<uint8_t>(rank)});
  for (Job::ResultBuffer& buffer : job.result_buffers) hold(job.owner(), std::move(buffer.region));
  hold(job.owner(), std::move(job.results));
  jobs_[job.index].reset();
}

void Conductor::on_abort(Client& client, const Json& body) {
  if (!client.job) return;  // the abort of another worker crossed this one
  Job& job = *client.job;
  const std::string text = body.value("text", std::string("a worker gave up"));
  end_job(job, INA_ERR_ABORTED,
          fmt::format("rank {} of job '{}' gave up: {}; {}", value(client.rank), job.name,
                      text.substr(0, 1024), waiting_text(job)));
}

/// A home of the fallback outside the switch found that the workers disagree.
void Conductor::on_mismatch(Client& client, const Json& body) {
  if (!client.job) return;  // another one has found it, too
  end_job(*client.job, INA_ERR_MISMATCH,
          mismatch_text(*client.job, body.value("text", std::string()).substr(0, 1024)));
}

std::string Conductor::mismatch_text(const Job& job, const std::string& sides) {
  return fmt::format("workers of job '{}' disagree: {}", job.name, sides);
}

void Conductor::on_explain(Client& client) {
  send(client, {{"type", "explain"},
                {"text", client.job ? waiting_text(*client.job) : "the job has ended"}});
}

std::optional<aggregator::Waiting> Conductor::oldest_waiting(const Job& job) {
  std::optional<aggregator::Waiting> oldest;
  for (const auto& command : on_lanes(LaneCommand::Kind::kOldestWaiting,
                                      [&](LaneCommand&c, uint32_t) { c.job = job.index; }))
    if (command->waiting && (!oldest || command->waiting->seq < oldest->seq))
      oldest = command->waiting;
  return oldest;
}

std::string Conductor::waiting_text(Job& job) {
  if (job.state == Job::State::kJoining)
    return "waiting for " +
           missing_text(full_bitmap(job.workers) & ~job.attached(), !has_fallback(job)) +
           " to join";
  if (job.state == Job::State::kRejoining) return "the job " + rejoin_text(job);
  const std::string gone =
      has_fallback(job) ? "" : "; the fallback server (ina-psd) is gone and must be started again";
  const auto oldest = oldest_waiting(job);
  const std::string arrivals = gone + arrivals_text(job);
  if (!oldest) return "the switch holds no incomplete fragment of the job" + arrivals;
  return fmt::format("fragment {} ({}) waits for {}", oldest->seq.value, text_of(oldest->signature),
                     ranks_text(oldest->missing)) +
         arrivals;
}

void Conductor::on_lane_events() {
  for (LaneLink* lane : lanes_) {
    while (const auto event = lane->next_event()) {
      Job* job = jobs_[event->job].get();
      if (!job || job->id != event->job_id) continue;  // ended meanwhile
      end_job(*job, INA_ERR_MISMATCH,
              mismatch_text(*job, wire::mismatch_text(event->first_ranks, event->first,
                                                      event->other_ranks, event->other)));
    }
  }
}

/// Packets wait for workers whose users compute: somebody must take them in. One that falls idle
/// again and again is called less often then. Lanes leave `call_wanted` alone while it is set, so
/// that nothing is lost, and nobody is woken.
void Conductor::call_idle_workers(Nanos now) {
  call_again_ = 0;
  for (auto& job : jobs_) {
    if (!job) continue;
    for (Job::Worker& member : job->members) {
      if (!member.client || !member.session ||
          !member.session->call_wanted.load(std::memory_order_acquire))
        continue;
      if (const Nanos over = member.calls.at(now) - kMostCallsNs; over > 0) {
        call_again_ = call_again_ == 0 ? now + over : std::min(call_again_, now + over);
        continue;
      }
      member.calls.add(kCallNs, now);
      member.session->call_wanted.exchange(false, std::memory_order_acq_rel);
      send(*member.client, {{"type", "wake"}});
    }
  }
}

}  // namespace ina::switchd
