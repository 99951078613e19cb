#include "switchd/conductor_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace ina::switchd {

namespace {

constexpr int kMessagesPerTurn = 16;

std::string ranks_text(Bitmap bits) {
  const auto ranks = ranks_of(bits);
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

uint64_t random_u64() {
  uint64_t value = 0;
  while (::getrandom(&value, sizeof(value), 0) != sizeof(value)) {
  }
  return value;
}

}  // namespace

Conductor::Conductor(ConductorConfig config, std::vector<LaneLink*> lanes)
    : config_(std::move(config)),
      lanes_(std::move(lanes)),
      pools_(config_.slots, static_cast<uint32_t>(lanes_.size())),
      shared_(config_.slots, static_cast<uint32_t>(lanes_.size())),
      memory_(config_.memory_bytes),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      lane_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      jobs_(config_.max_jobs),
      next_job_id_(static_cast<uint32_t>(random_u64() % 1'000'000) + 1),
      started_(now_ns()) {
  for (LaneLink* lane : lanes_) lane->set_conductor_event(lane_event_.get());
}

Conductor::~Conductor() = default;

Result<void> Conductor::open() {
  auto listener = control::Listener::open(config_.socket_path, config_.socket_mode);
  if (!listener) return tl::unexpected(listener.error());
  listener_.emplace(std::move(*listener));
  for (const int fd : {stop_event_.get(), lane_event_.get(), listener_->fd()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return fail(INA_ERR_NO_MEMORY,
                  std::string("cannot watch the control socket: ") + std::strerror(errno));
  }
  spdlog::info("control socket open path={}", config_.socket_path);
  return {};
}

void Conductor::stop() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_event_.get(), &one, sizeof(one));
}

void Conductor::run() {
  for (bool stopping = false; !stopping;) {
    epoll_event events[64];
    const int count = ::epoll_wait(epoll_.get(), events, 64, 1000);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == stop_event_.get()) {
        stopping = true;
      } else if (fd == lane_event_.get()) {
        uint64_t value;
        [[maybe_unused]] const ssize_t got = ::read(fd, &value, sizeof(value));
        on_lane_events();
        call_idle_workers();
      } else if (fd == listener_->fd()) {
        accept_clients();
      } else if (const auto client = clients_.find(fd); client != clients_.end()) {
        read_client(*client->second);
      }
    }
    const Nanos now = now_ns();
    for (auto& [fd, client] : clients_)
      if (client->state == Client::State::kNew && now - client->connected > config_.join_timeout_ns)
        to_close_.insert(fd);
    while (!to_close_.empty()) close_client(*to_close_.begin());
    // A job whose first worker was refused half-way, or whose workers all went before it began.
    for (auto& job : jobs_)
      if (job && job->members_present() == 0) remove_job(*job);
  }
  for (auto& job : jobs_)
    if (job) end_job(*job, INA_ERR_SWITCH_LOST, "the switch was shut down");
  clients_.clear();
  listener_.reset();
}

void Conductor::accept_clients() {
  while (auto connection = listener_->accept()) {
    if (clients_.size() >= config_.max_connections) {
      spdlog::warn("connection refused reason=max_connections limit={}", config_.max_connections);
      (void)connection->send({{"type", "refused"},
                              {"status", INA_ERR_REFUSED},
                              {"text", fmt::format("the switch serves {} connections already "
                                                   "(control.max_connections)",
                                                   config_.max_connections)}});
      continue;
    }
    auto client = std::make_unique<Client>();
    client->peer = connection->peer();
    client->connection = std::move(*connection);
    client->connected = now_ns();
    const int fd = client->connection.fd();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
    clients_[fd] = std::move(client);
  }
}

void Conductor::read_client(Client& client) {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    auto received = client.connection.receive(0);
    if (!received) {
      if (received.error().status == INA_ERR_INVALID)
        refuse(client, INA_ERR_INVALID, received.error().text);
      to_close_.insert(client.connection.fd());
      return;
    }
    if (!*received) return;
    try {
      handle(client, **received);
    } catch (const Json::exception& e) {
      refuse(client, INA_ERR_INVALID, std::string("malformed control message: ") + e.what());
    }
    if (to_close_.contains(client.connection.fd())) return;
  }
}

void Conductor::handle(Client& client, control::Received& received) {
  const std::string type = received.body.at("type").get<std::string>();
  if (client.role != Client::Role::kWorker || type == "serve" || type == "join_fallback")
    return handle_server(client, received, type);
  if (type == "join") return on_join(client, received.body);
  if (type == "attach") return on_attach(client, received);
  if (type == "leave") return on_leave(client);
  if (type == "abort") return on_abort(client, received.body);
  if (type == "explain") return on_explain(client);
  if (type == "status") return on_status(client);
  refuse(client, INA_ERR_INVALID, "unknown control message type '" + type + "'");
}

void Conductor::close_client(int fd) {
  to_close_.erase(fd);
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  const std::unique_ptr<Client> client = std::move(found->second);
  clients_.erase(found);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  if (!client->job) return;
  if (client->role == Client::Role::kFallback)
    fallback_gone(*client);
  else
    worker_gone(*client);
}

void Conductor::send(Client& client, const Json& body, const std::vector<int>& fds) {
  if (auto sent = client.connection.send(body, fds); !sent)
    to_close_.insert(client.connection.fd());
}

void Conductor::refuse(Client& client, ina_status status, const std::string& text) {
  spdlog::warn("refused pid={} status={} text=\"{}\"", client.peer.pid, static_cast<int>(status),
               text);
  send(client, {{"type", "refused"}, {"status", status}, {"text", text}});
}

// ---- joining

Conductor::Job* Conductor::find_or_admit(Client& client, const std::string& name, uint32_t workers,
                                         uint64_t window_bytes) {
  for (auto& job : jobs_)
    if (job && job->name == name) return job.get();

  const auto free = std::find(jobs_.begin(), jobs_.end(), nullptr);
  if (free == jobs_.end()) {
    refuse(client, INA_ERR_REFUSED,
           fmt::format("job '{}' does not fit: the switch runs {} jobs already (switch.max_jobs)",
                       name, jobs_.size()));
    return nullptr;
  }
  auto job = std::make_unique<Job>();
  job->name = name;
  job->index = static_cast<aggregator::JobIndex>(free - jobs_.begin());
  job->id = JobId{next_job_id_++};
  job->key = random_u64();
  job->uid = client.peer.uid;
  job->workers = workers;
  job->members.resize(workers);
  if (auto taken = take_resources(*job, window_bytes); !taken) {
    refuse(client, taken.error().status,
           fmt::format("job '{}' does not fit: {}", name, taken.error().text));
    return nullptr;
  }
  auto results = io::shm::make_region("ina-results", io::shm::result_region_bytes(job->geometry));
  if (!results) {
    give_back_resources(*job);
    refuse(client, results.error().status, results.error().text);
    return nullptr;
  }
  job->results = std::move(*results);
  on_lanes(LaneCommand::Kind::kAddJob, [&](LaneCommand& command, uint32_t lane) {
    command.job = job->index;
    fill_spec(*job, lane, Seq{}, command.spec);
  });
  spdlog::info("job admitted job={} id={} workers={} window={} memory_bytes={} uid={}", name,
               value(job->id), workers, job->grant.window, job->memory_bytes, job->uid);
  *free = std::move(job);
  offer_jobs();
  return free->get();
}

void Conductor::on_join(Client& client, const Json& body) {
  if (client.state != Client::State::kNew)
    return refuse(client, INA_ERR_INVALID, "this connection has joined already");
  const int version = body.at("version").get<int>();
  const std::string library = body.value("library", std::string("?"));
  if (version != control::kControlVersion)
    return refuse(client, INA_ERR_VERSION,
                  fmt::format("libina {} speaks control version {}, this switch ({}) version {}: "
                              "install matching versions",
                              library, version, INA_PROJECT_VERSION, control::kControlVersion));
  const std::string name = body.at("job").get<std::string>();
  const auto rank = body.at("rank").get<int64_t>();
  const auto workers = body.at("world_size").get<int64_t>();
  if (name.empty() || name.size() > 128)
    return refuse(client, INA_ERR_INVALID, "the job's name must have 1 to 128 characters");
  if (workers < 1 || workers > kMaxWorkers)
    return refuse(client, INA_ERR_REFUSED,
                  fmt::format("world size {} is not in 1..{}: a worker bitmap has {} bits", workers,
                              kMaxWorkers, kMaxWorkers));
  if (rank < 0 || rank >= workers)
    return refuse(client, INA_ERR_INVALID,
                  fmt::format("rank {} is not in 0..{}", rank, workers - 1));
  const std::string transport = body.at("transport").get<std::string>();
  uint32_t frame_port = 0;
  if (transport == "frame") {
    const std::string port = body.value("port", std::string());
    const auto found =
        std::find_if(config_.frame_ports.begin(), config_.frame_ports.end(),
                     [&](const FramePortInfo& info) { return port.empty() || info.name == port; });
    if (found == config_.frame_ports.end())
      return refuse(client, INA_ERR_UNSUPPORTED,
                    fmt::format("this switch has no Ethernet port{}",
                                port.empty() ? std::string() : " named '" + port + "'"));
    frame_port = static_cast<uint32_t>(found - config_.frame_ports.begin());
  } else if (transport != "shm" || !config_.has_shm) {
    return refuse(client, INA_ERR_UNSUPPORTED,
                  fmt::format("this switch offers no '{}' transport", transport));
  }

  Job* job = find_or_admit(client, name, static_cast<uint32_t>(workers),
                           body.value("window_bytes", uint64_t{0}));
  if (!job) return;
  if (job->uid != client.peer.uid && client.peer.uid != 0)
    return refuse(client, INA_ERR_REFUSED,
                  fmt::format("job '{}' belongs to another user (uid {})", name, job->uid));
  if (job->workers != workers) {
    const std::string text = fmt::format(
        "world sizes of job '{}' differ: rank {} (pid {}) says {}, {} joined with {}", name, rank,
        client.peer.pid, workers, ranks_text(job->members_present()), job->workers);
    refuse(client, INA_ERR_MISMATCH, text);
    if (job->state == Job::State::kJoining) end_job(*job, INA_ERR_MISMATCH, text);
    return;
  }
  Job::Worker& worker = job->members[static_cast<size_t>(rank)];
  if (worker.client || job->state != Job::State::kJoining) {
    const std::string holder =
        worker.client ? fmt::format("by pid {}", worker.client->peer.pid) : "earlier";
    const std::string text =
        fmt::format("rank {} of job '{}' was joined {} and now again by pid {}", rank, name, holder,
                    client.peer.pid);
    refuse(client, INA_ERR_RANK_TAKEN, text);
    // While the job gathers, nobody can tell which of the two is meant; a running job goes on.
    if (job->state == Job::State::kJoining) end_job(*job, INA_ERR_RANK_TAKEN, text);
    return;
  }

  Json reply = {{"type", "joined"},
                {"library", INA_PROJECT_VERSION},
                {"job_id", value(job->id)},
                {"job_key", job->key},
                {"epoch", job->epoch},
                {"window", job->grant.window},
                {"slot_bytes", config_.slot_bytes},
                {"lanes", job->geometry.lanes}};
  add_rules(*job, reply);
  std::vector<int> fds;
  if (transport == "shm") {
    auto session = io::shm::WorkerSession::create(job->geometry, job->results.map.data());
    if (!session) return refuse(client, session.error().status, session.error().text);
    worker.session = std::move(*session);
    reply["shm"] = {{"layout", io::shm::kLayoutVersion},
                    {"tx_depth", job->geometry.tx_depth},
                    {"rx_depth", job->geometry.rx_depth},
                    {"result_rows", job->geometry.result_rows},
                    {"side_rows", job->geometry.side_rows}};
    fds = {worker.session->switch_region.fd.get(), job->results.fd.get()};
    for (const Fd& event : worker.session->wake_events) fds.push_back(event.get());
  } else {
    const Json& address = body.at("address");
    worker.address.emplace();
    const auto mac = address.at("mac").get<std::vector<uint8_t>>();
    if (mac.size() != 6) return refuse(client, INA_ERR_INVALID, "address.mac must have 6 bytes");
    std::copy(mac.begin(), mac.end(), worker.address->mac.begin());
    worker.address->ip = address.at("ip").get<uint32_t>();
    worker.address->udp_port = address.at("udp_port").get<uint16_t>();
    worker.frame_port = frame_port;
    const wire::Address& ours = config_.frame_ports[frame_port].address;
    reply["address"] = {{"mac", ours.mac}, {"ip", ours.ip}, {"udp_port", ours.udp_port}};
  }
  worker.client = &client;
  client.job = job;
  client.rank = Rank{static_cast<uint8_t>(rank)};
  client.state = Client::State::kJoined;
  send(client, reply, fds);
}

void Conductor::on_attach(Client& client, control::Received& received) {
  if (client.state != Client::State::kJoined)
    return refuse(client, INA_ERR_INVALID, "attach without join");
  Job& job = *client.job;
  Job::Worker& worker = job.members[value(client.rank)];
  auto kind = LaneCommand::Kind::kAttachFrame;
  if (worker.session) {
    kind = LaneCommand::Kind::kAttachShm;
    if (received.fds.size() != 1)
      return refuse(client, INA_ERR_INVALID, "attach must carry one descriptor, the worker region");
    auto region = io::shm::map_peer_region(
        received.fds[0], io::shm::WorkerLayout(job.geometry).bytes, "worker region");
    if (!region) return refuse(client, region.error().status, region.error().text);
    worker.session->worker_region = std::move(*region);
  }
  const auto commands = on_lanes(kind, [&](LaneCommand& command, uint32_t) {
    command.job = job.index;
    command.rank = client.rank;
    command.session = worker.session.get();
    command.frame_port = worker.frame_port;
    command.spec.id = job.id;
    command.job_key = job.key;
    if (worker.address) command.address = *worker.address;
  });
  for (const auto& command : commands)
    if (!command->error.empty()) return refuse(client, INA_ERR_REFUSED, command->error);
  worker.attached = true;
  client.state = Client::State::kAttached;
  on_gathered(job);
}

/// Somebody has attached; begins the job if all have.
void Conductor::on_gathered(Job& job) {
  if (job.attached() != full_bitmap(job.workers) || !has_fallback(job)) return tell_missing(job);
  if (job.state != Job::State::kJoining) return;
  job.state = Job::State::kRunning;
  spdlog::info("job running job={} id={} workers={}", job.name, value(job.id), job.workers);
  for (Job::Worker& member : job.members) send(*member.client, {{"type", "ready"}});
}

void Conductor::tell_missing(Job& job) {
  const Bitmap missing = full_bitmap(job.workers) & ~job.attached();
  for (Job::Worker& member : job.members)
    if (member.attached)
      send(*member.client, {{"type", "waiting"},
                            {"missing", ranks_of(missing)},
                            {"fallback_missing", !has_fallback(job)}});
}

// ---- leaving

void Conductor::on_leave(Client& client) {
  if (client.state != Client::State::kAttached)
    return refuse(client, INA_ERR_INVALID, "leave without attach");
  Job& job = *client.job;
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
  for (Job::Worker& member : job.members) {
    if (!member.client) continue;
    send(*member.client, {{"type", "left"}});
    member.client->state = Client::State::kEnded;
    member.client->job = nullptr;
    member.client = nullptr;
  }
  spdlog::info("job ended job={} id={}", job.name, value(job.id));
  remove_job(job);
}

/// The connection of a job's worker is gone, or it gave up waiting for the others to join.
void Conductor::worker_gone(Client& client) {
  Job& job = *client.job;
  Job::Worker& worker = job.members[value(client.rank)];
  const bool leaving = client.state == Client::State::kLeaving;
  client.job = nullptr;
  client.state = Client::State::kEnded;
  worker.client = nullptr;
  if (job.state == Job::State::kJoining) {
    if (worker.attached)
      on_lanes(LaneCommand::Kind::kDetach, [&](LaneCommand& command, uint32_t) {
        command.job = job.index;
        command.rank = client.rank;
      });
    worker = Job::Worker{};
    return tell_missing(job);
  }
  // If it said goodbye and did not wait for the others, they need nothing more from it.
  if (leaving) return;
  end_job(job, INA_ERR_PEER_LOST,
          fmt::format("rank {} (pid {}) of job '{}' died or left without ina_finalize",
                      value(client.rank), client.peer.pid, job.name));
}

void Conductor::end_job(Job& job, ina_status status, const std::string& text) {
  spdlog::warn("job aborted job={} id={} status={} text=\"{}\"", job.name, value(job.id),
               static_cast<int>(status), text);
  for (Job::Worker& member : job.members) {
    if (!member.client) continue;
    send(*member.client, {{"type", "abort"}, {"status", status}, {"text", text}});
    member.client->state = Client::State::kEnded;
    member.client->job = nullptr;
  }
  remove_job(job);
}

void Conductor::remove_job(Job& job) {
  release_fallback(job);
  on_lanes(LaneCommand::Kind::kRemoveJob,
           [&](LaneCommand& command, uint32_t) { command.job = job.index; });
  give_back_resources(job);
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
  const std::string gone =
      has_fallback(job) ? "" : "; the fallback server (ina-psd) is gone and must be started again";
  const auto oldest = oldest_waiting(job);
  if (!oldest) return "the switch holds no incomplete fragment of the job" + gone;
  return fmt::format("fragment {} ({}) waits for {}", oldest->seq.value, text_of(oldest->signature),
                     ranks_text(oldest->missing)) +
         gone;
}

void Conductor::on_lane_events() {
  for (LaneLink* lane : lanes_) {
    while (const auto event = lane->next_event()) {
      Job* job = jobs_[event->job].get();
      if (!job || job->id != event->job_id) continue;  // ended meanwhile
      end_job(*job, INA_ERR_MISMATCH,
              fmt::format("workers of job '{}' disagree: rank {} started {}, rank {} started {}",
                          job->name, value(event->first_rank), text_of(event->first),
                          value(event->other_rank), text_of(event->other)));
    }
  }
}

/// Packets wait for workers whose users compute: somebody must take them in.
void Conductor::call_idle_workers() {
  for (auto& job : jobs_) {
    if (!job) continue;
    for (Job::Worker& member : job->members)
      if (member.client && member.session &&
          member.session->call_wanted.exchange(false, std::memory_order_acq_rel))
        send(*member.client, {{"type", "wake"}});
  }
}

}  // namespace ina::switchd
