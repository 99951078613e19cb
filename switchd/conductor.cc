#include "switchd/conductor_state.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <algorithm>

#include "common/logging/record.h"

namespace ina::switchd {

namespace {

// How long until the doorman is told again what it had no room for.
constexpr Nanos kAgainNs = 10'000'000;
// A worker is called so often at once, and so often in the long run. It stays awake for a while
// when it is called, so more are of no use to it; each costs whoever shares a core with the
// conductor.
constexpr Nanos kCallNs = 10'000'000;
constexpr Nanos kMostCallsNs = 64 * kCallNs;
// With more on its way to a worker, calls wait. A unix socket takes some 200 KiB.
constexpr int kMostUnreadBytes = 64 * 1024;

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
      rules_(config_, lanes_.count()),
      resources_(config_, rules_),
      doorman_(doorman),
      stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      reload_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      lane_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      credentials_(config_),
      jobs_(config_.job_places()),
      connections_(
          config_, jobs_, doorman_, epoll_,
          {.message = [this](Client& client,
                             control::Received& received) { on_message(client, received); },
           .closed = [this](Client& client) { on_closed(client); }}),
      peer_memory_(lanes_, resources_, connections_, doorman_,
                   [this](Client& client) { attach_member(client); }),
      result_buffers_(config_, lanes_, resources_, jobs_, connections_,
                      [this](Job& job, const std::string& sides) {
                        end_job(job, INA_ERR_MISMATCH, mismatch_text(job, sides));
                      }),
      dropped_(config_, lanes_, connections_),
      waiting_(rules_, lanes_, dropped_),
      status_(config_, state_, lanes_, rules_, resources_, jobs_, waiting_, dropped_, now_ns()),
      slot_map_(config_.slots, lanes_, jobs_) {
  for (LaneLink* lane : lanes_) lane->set_conductor_event(lane_event_.get());
}

Conductor::~Conductor() = default;

Result<void> Conductor::open() {
  if (!config_.listen.empty())
    if (auto checked = credentials_.check_listen(); !checked) return checked;
  if (auto opened = connections_.open(); !opened) return opened;
  if (control::Listener* tcp = connections_.tcp_listener())
    if (auto loaded = credentials_.load(*tcp); !loaded) return loaded;
  std::vector<int> fds = {stop_event_.get(), reload_event_.get(), lane_event_.get(),
                          admin_.event_fd(), resources_.mapper().fd()};
  if (doorman_) fds.push_back(doorman_->fd());
  for (const int fd : fds)
    if (auto watched = epoll_.watch(fd); !watched) return watched;
  if (auto watched = connections_.accept_from_now_on(); !watched) return watched;
  restore_jobs();
  logging::info("control socket open")("path", config_.socket_path);
  if (connections_.tcp_listener())
    logging::info("control socket open")("listen", config_.listen)(
        "tls", !config_.tls.certificate.empty())("tokens", credentials_.tokens())(
        "anonymous", config_.allow_anonymous);
  return {};
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
  if (connections_.has_unread() || !splits_.empty()) return 0;
  Nanos until = connections_.next_turn(now + 1'000'000'000);
  if (call_again_ != 0) until = std::min(until, call_again_);
  if (next_beat_ != 0) until = std::min(until, next_beat_);
  if (doorman_ && doorman_->waiting() != 0) until = std::min<Nanos>(until, now + kAgainNs);
  for (const Job& job : jobs_) {
    if (job.state == Job::State::kRejoining) until = std::min(until, job.rejoin_deadline);
    if (job.reserved_until != 0) until = std::min(until, job.reserved_until);
  }
  return static_cast<int>(std::max<Nanos>(0, until - now) / 1'000'000 + 1);
}

void Conductor::run() {
  lanes_.set_running();
  begin_reserved_jobs();
  beat(now_ns());
  for (bool stopping = false; !stopping;) {
    for (const epoll_event& event : epoll_.wait(turn_ms(now_ns()))) serve(event.data.fd, stopping);
    connections_.serve_unread();
    go_on_splitting();
    const Nanos now = now_ns();
    if (doorman_) doorman_->turn();
    resources_.look_after_held(now);
    if (call_again_ != 0 && now >= call_again_) call_idle_workers(now);
    connections_.turn(now);
    remove_left_places();
    look_after_jobs(now);
    if (next_beat_ != 0 && now >= next_beat_) beat(now);
    logging::report_omitted(now);
  }
  end_serving();
}

/// Something has come on `fd`.
void Conductor::serve(int fd, bool& stopping) {
  const auto take = [fd] {
    uint64_t value;
    [[maybe_unused]] const ssize_t got = ::read(fd, &value, sizeof(value));
  };
  if (fd == stop_event_.get()) {
    stopping = true;
  } else if (fd == lane_event_.get()) {
    take();
    on_lane_events();
    call_idle_workers(now_ns());
  } else if (fd == admin_.event_fd()) {
    admin_.serve([this](const admin::Request& request, const std::string& who) {
      return administer(request, who);
    });
  } else if (fd == reload_event_.get()) {
    take();
    (void)administer(admin::Reload{}, "SIGHUP");
  } else if (fd == resources_.mapper().fd()) {
    on_mapped();
  } else if (doorman_ && fd == doorman_->fd()) {
    peer_memory_.on_doorman(epoll_);
  } else {
    connections_.serve(fd);
  }
}

/// Ends those whose workers went, did not come, or do not come back.
void Conductor::look_after_jobs(Nanos now) {
  // A job whose first worker was refused half-way, or whose workers all went before it began.
  for (Job& job : jobs_)
    if (job.state != Job::State::kRejoining && job.reserved_until == 0 &&
        job.members_present() == 0) {
      logging::info("job ended", job.owner())("job", job.name)("id", value(job.id))(
          "text", "its workers went before it began");
      remove_job(job);
    }
  end_overdue_rejoins(now);
  end_overdue_reservations(now);
  dropped_.tell(jobs_, now);
}

/// Who joins is told; the others find the connection closed and come back to the next switch.
void Conductor::end_serving() {
  admin_.close();
  for (Job& job : jobs_) {
    if (job.state == Job::State::kJoining && job.reserved_until == 0) {
      end_job(job, INA_ERR_SWITCH_LOST, "the switch was shut down");
      continue;
    }
    // One that an administrator made waits on, in the state file.
    if (job.state == Job::State::kJoining)
      tell_end(job, INA_ERR_SWITCH_LOST, "the switch was shut down");
    lanes_.run(LaneCommand::Kind::kRemoveJob,
               [&](LaneCommand& command, uint32_t) { command.job = job.index; });
  }
  connections_.close_all();
}

void Conductor::on_message(Client& client, control::Received& received) {
  if (received.carries_descriptors)
    peer_memory_.on_descriptors(client, received.body);
  else
    handle(client, received.body);
}

/// Its connection is gone.
void Conductor::on_closed(Client& client) {
  peer_memory_.forget(client);
  for (auto& [channel, place] : client.places)
    if (place->job) worker_gone(*place);
  if (!client.job) return;
  if (client.role == Client::Role::kFallback)
    fallback_gone(client);
  else
    worker_gone(client);
}

void Conductor::on_mapped() {
  Mapper& mapper = resources_.mapper();
  while (auto done = mapper.next()) {
    if (!peer_memory_.on_mapped(*done)) result_buffers_.on_made(*done);
    if (done->region) mapper.discard(std::move(done->region->map), std::move(done->region->fd));
  }
}

/// A message without descriptors.
void Conductor::handle(Client& client, const Json& body) {
  const auto type = control::type_of(body);
  if (!type) return refuse_malformed(client, type.error());
  if (!connections_.may_say(client, *type) ||
      (client.peer.remote && !may_say_over_tcp(client, *type)))
    return;
  const auto said = control::parse_request(body);
  if (!said) return refuse_malformed(client, said.error());
  const request::Message& message = said->message;
  if (!identify(client, message)) return;
  if (client.role != Client::Role::kWorker || std::holds_alternative<request::Serve>(message) ||
      std::holds_alternative<request::JoinFallback>(message))
    return handle_server(client, message);
  if (said->channel) return on_channel(client, *said->channel, message);
  std::visit(control::Overloaded{[&](const request::Join& join) { on_join(client, join); },
                                 [&](const request::Rejoin& rejoin) { on_rejoin(client, rejoin); },
                                 [&](const request::Status&) { on_status(client); },
                                 [&](const auto&) { dispatch(client, message); }},
             message);
}

/// False: refused.
bool Conductor::may_say_over_tcp(Client& client, const std::string& type) {
  const auto refused = [&](ina_status status, const std::string& text) {
    refuse(client, status, text);
    return false;
  };
  if (type == request::Serve::kType || type == request::JoinFallback::kType)
    return refused(INA_ERR_UNSUPPORTED,
                   fmt::format("'{}' needs the switch's unix socket: over TCP nobody may serve as "
                               "fallback, since that sees every job's contributions",
                               type));
  if (type == request::Register::kType)
    return refused(
        INA_ERR_UNSUPPORTED,
        fmt::format("'{}' needs the switch's unix socket: no descriptors pass over TCP", type));
  const bool introduces = type == request::Join::kType || type == request::Rejoin::kType ||
                          type == request::Status::kType;
  if (introduces || !client.tenant.empty()) return true;
  return refused(INA_ERR_REFUSED,
                 fmt::format("'{}' before join: the switch does not know who asks", type));
}

/// Looks at what the client shows of who it is. False: refused.
bool Conductor::identify(Client& client, const request::Message& message) {
  const std::string* token = nullptr;
  const auto shows = [&](const request::Member& member) {
    token = &member.token;
    return member.ticket.empty() || check_ticket(client, member.ticket);
  };
  if (const auto* join = std::get_if<request::Join>(&message); join && !shows(join->member))
    return false;
  if (const auto* rejoin = std::get_if<request::Rejoin>(&message); rejoin && !shows(rejoin->member))
    return false;
  if (const auto* status = std::get_if<request::Status>(&message)) token = &status->token;
  return !client.peer.remote || !token || authenticate(client, *token);
}

/// What a worker says in a job or group that it has joined.
void Conductor::dispatch(Client& client, const request::Message& message) {
  std::visit(control::Overloaded{
                 [&](const request::Attach&) { on_attach(client); },
                 [&](const request::Register& said) {
                   send(client,
                        answer::Registered{said.number, INA_ERR_INVALID,
                                           "memory is registered over the shm port with one "
                                           "descriptor"});
                 },
                 [&](const request::Unregister& said) { peer_memory_.on_unregister(client, said); },
                 [&](const request::ShareResults& said) { result_buffers_.on_share(client, said); },
                 [&](const request::FreeResults& said) { result_buffers_.on_free(client, said); },
                 [&](const request::Split& said) { on_split(client, said); },
                 [&](const request::Leave&) { on_leave(client); },
                 [&](const request::Abort& said) { on_abort(client, said); },
                 [&](const request::Mismatch& said) { on_mismatch(client, said); },
                 [&](const request::Explain&) { on_explain(client); },
                 [&](const auto&) {
                   refuse(client, INA_ERR_INVALID,
                          "unknown control message type '" + control::type_of(message) + "'");
                 }},
             message);
}

/// Over TCP: learns whose worker this is. False: refused, and the connection is about to be closed.
bool Conductor::authenticate(Client& client, const std::string& token) {
  if (!client.tenant.empty()) return true;
  auto tenant = credentials_.tenant_of(client.connection.peer_name(), token);
  if (!tenant) {
    refuse(client, tenant.error().status, tenant.error().text);
    return false;
  }
  client.tenant = std::move(*tenant);
  return !connections_.refuse_if_crowded(client);
}

/// Why no more workers' connections are taken for the job's owner; empty if they are. A worker has
/// one, and may be slow to close that of a job that has ended.
std::string Conductor::crowded_text(const Job& job) const {
  const uint64_t most = 2 * uint64_t{resources_.admission().quota(job.owner()).workers_max};
  const uint32_t open = connections_.count(
      [owner = job.owner()](const Client& client) { return client.account == owner; });
  if (most == 0 || open < most) return {};
  return fmt::format(
      "tenant '{}' has {} connections open, twice as many as it may have workers "
      "(tenants: workers_max); close those whose jobs have ended",
      job.owner(), open);
}

/// Its job has ended for it.
void Conductor::leave_job(Client& client) {
  client.job = nullptr;
  client.state = Client::State::kEnded;
  client.since = now_ns();
  if (client.carrier) left_places_.insert(client.line().connection.fd());
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
Result<Job*> Conductor::admit(const SavedJob& fresh, scheduler::JobRequest request,
                              uint64_t window_bytes, const std::string& who) {
  const auto refused = [&](ina_status status, const std::string& text) {
    return fail(status, fmt::format("job '{}' does not fit: {}", fresh.name, text));
  };
  if (draining_)
    return fail(INA_ERR_REFUSED,
                fmt::format("the switch is drained and takes no new job, such as '{}'; `inactl "
                            "undrain` would open it again",
                            fresh.name));
  if (const uint32_t running = jobs_.jobs(); running >= config_.max_jobs)
    return refused(INA_ERR_REFUSED,
                   fmt::format("the switch runs {} jobs already (switch.max_jobs)", running));
  auto job = make_job(fresh, jobs_.free_place());
  if (auto taken = resources_.take(*job, std::move(request), window_bytes); !taken)
    return refused(taken.error().status, taken.error().text);
  add_to_lanes(*job, Seq{});
  logging::info("job admitted", job->owner())("job", job->name)("id", value(job->id))(
      "workers", job->workers)("window", job->grant.window)(
      "memory_bytes", job->grant.memory_bytes)("by", who)("owner", job->owner());
  return &jobs_.add(std::move(job));
}

/// A job of what its entry in the state file says, but for the results.
std::unique_ptr<Job> Conductor::make_job(const SavedJob& saved, size_t index) {
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
  job->root = JobId{saved.root};
  job->root_ranks = saved.root_ranks;
  job->payload_key = {random_u64(), random_u64()};
  job->members.resize(saved.workers);
  return job;
}

/// `start`: the first fragment that may still have to be served.
void Conductor::add_to_lanes(Job& job, Seq start) {
  lanes_.run(LaneCommand::Kind::kAddJob, [&](LaneCommand& command, uint32_t lane) {
    command.job = job.index;
    rules_.fill_spec(job, lane, start, command.spec);
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
    send(client, answer::Left{});
    return worker_gone(client);
  }
  job.state = Job::State::kLeaving;
  refuse_splits(job);
  const Bitmap left = job.bits([](const Job::Worker& worker) {
    return !worker.client || worker.client->state == Client::State::kLeaving;
  });
  if (left != full_bitmap(job.workers)) return;
  forget(job);
  for (Job::Worker& member : job.members) {
    if (!member.client) continue;
    send(*member.client, answer::Left{});
    leave_job(*member.client);
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
  leave_job(client);
  worker.client = nullptr;
  if (job.is_group() && job.state == Job::State::kJoining)
    return end_job(job, INA_ERR_PEER_LOST,
                   fmt::format("rank {} ({}) of group '{}' died or left while the group was made",
                               value(client.rank), client.peer.text(), job.name));
  if (job.state == Job::State::kJoining || job.state == Job::State::kRejoining) {
    if (worker.attached && job.state == Job::State::kJoining)
      lanes_.run(LaneCommand::Kind::kDetach, [&](LaneCommand& command, uint32_t) {
        command.job = job.index;
        command.rank = client.rank;
      });
    resources_.drop_worker(job, client.rank);
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
  // Its workers do not come back, and without it not to its groups either.
  if (job.state == Job::State::kRejoining) end_groups_of(job.id, status, text, true);
  remove_job(job);
}

/// Tells the workers. They have no job any more.
void Conductor::tell_end(Job& job, ina_status status, const std::string& text) {
  for (Job::Worker& member : job.members) {
    if (!member.client) continue;
    send(*member.client, answer::Abort{status, text});
    leave_job(*member.client);
    member.client = nullptr;
  }
}

void Conductor::remove_job(Job& job) {
  release_fallback(job);
  lanes_.run(LaneCommand::Kind::kRemoveJob,
             [&](LaneCommand& command, uint32_t) { command.job = job.index; });
  forget(job);
  resources_.give_back(job);
  jobs_.remove(job);
}

void Conductor::on_abort(Client& client, const request::Abort& abort) {
  if (!client.job) return;  // the abort of another worker crossed this one
  Job& job = *client.job;
  end_job(job, INA_ERR_ABORTED,
          fmt::format("rank {} of job '{}' gave up: {}; {}", value(client.rank), job.name,
                      abort.text.substr(0, 1024), waiting_.text(job)));
}

/// A home of the fallback outside the switch found that the workers disagree.
void Conductor::on_mismatch(Client& client, const request::Mismatch& mismatch) {
  if (!client.job) return;  // another one has found it, too
  end_job(*client.job, INA_ERR_MISMATCH, mismatch_text(*client.job, mismatch.text.substr(0, 1024)));
}

std::string Conductor::mismatch_text(const Job& job, const std::string& sides) {
  return fmt::format("workers of job '{}' disagree: {}", job.name, sides);
}

void Conductor::on_status(Client& client) {
  if (client.peer.remote) {
    Json status = status_.make(true, draining_);
    // The names of other tenants' jobs are none of its business.
    Json own = Json::array();
    for (Json& job : status["jobs"])
      if (client.ticket ? job["id"] == value(*client.ticket) ||
                              job.value("group_of", 0u) == value(*client.ticket)
                        : job.value("tenant", "") == client.tenant)
        own.push_back(std::move(job));
    status["jobs"] = std::move(own);
    Json tenants = Json::array();
    for (Json& tenant : status["tenants"])
      if (!client.ticket && tenant["name"] == client.tenant) tenants.push_back(std::move(tenant));
    status["tenants"] = std::move(tenants);
    return send(client, answer::Status{std::move(status)});
  }
  if (const std::string text = unread_status_text(client); !text.empty())
    return refuse(client, INA_ERR_REFUSED, text);
  const std::string text =
      status_.make(true, draining_).dump(-1, ' ', false, Json::error_handler_t::replace);
  const Fd file(::memfd_create("ina-status", MFD_CLOEXEC));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return refuse(client, INA_ERR_NO_MEMORY, "cannot make a memory file for the status");
  client.tells_status = true;
  send(client, answer::Status{}, {file.get()});
}

/// Why a user gets no further status; empty if he does. Descriptors on their way are limited in
/// number, for all whom the switch tells something.
std::string Conductor::unread_status_text(const Client& client) {
  constexpr uint32_t kMostUnread = 16;
  uint32_t unread = 0;
  for (const auto& [fd, other] : connections_.all()) {
    if (!other->tells_status || other->peer.uid != client.peer.uid) continue;
    other->tells_status = other->connection.unread() != 0;
    if (other->tells_status && other.get() == &client)
      return "the answer to the last status was not read yet";
    unread += other->tells_status;
  }
  if (unread < kMostUnread) return {};
  return fmt::format("{} answers to status were not read yet by uid {}", unread, client.peer.uid);
}

void Conductor::on_explain(Client& client) {
  send(client, answer::Explain{client.job ? waiting_.text(*client.job) : "the job has ended"});
}

void Conductor::on_lane_events() {
  for (LaneLink* lane : lanes_) {
    while (const auto event = lane->next_event()) {
      Job* job = jobs_.at(event->job);
      if (!job || job->id != event->job_id) continue;  // ended meanwhile
      end_job(*job, INA_ERR_MISMATCH,
              mismatch_text(*job, wire::mismatch_text(event->first_ranks, event->first,
                                                      event->other_ranks, event->other)));
    }
  }
}

/// A lane that has stopped answering stops this thread, too, and then nobody is told.
void Conductor::beat(Nanos now) {
  if (!config_.heartbeat) return;
  lanes_.run(LaneCommand::Kind::kAnswer, [](LaneCommand&, uint32_t) {});
  config_.heartbeat();
  next_beat_ = config_.heartbeat_ns == 0 ? 0 : now + config_.heartbeat_ns;
}

/// Packets wait for workers whose users compute: somebody must take them in. One that falls idle
/// again and again is called less often then. Lanes leave `call_wanted` alone while it is set, so
/// that nothing is lost, and nobody is woken.
void Conductor::call_idle_workers(Nanos now) {
  call_again_ = 0;
  for (Job& job : jobs_) {
    for (Job::Worker& member : job.members) {
      if (!member.client || !member.session ||
          !member.session->call_wanted.load(std::memory_order_acquire))
        continue;
      // Calls of many groups over one connection must not fill it: it would be closed then.
      const bool crowded = member.client->line().connection.unread() > kMostUnreadBytes;
      if (const Nanos later = crowded ? kAgainNs : member.calls.at(now) - kMostCallsNs; later > 0) {
        call_again_ = call_again_ == 0 ? now + later : std::min(call_again_, now + later);
        continue;
      }
      member.calls.add(kCallNs, now);
      member.session->call_wanted.exchange(false, std::memory_order_acq_rel);
      send(*member.client, answer::Wake{});
    }
  }
}

}  // namespace ina::switchd
