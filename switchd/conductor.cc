#include "switchd/conductor.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/clock.h"
#include "common/logging/record.h"
#include "wire/text.h"

namespace ina::switchd {

namespace request = control::request;

namespace {

// How long until the doorman is told or asked again what it had no room for.
constexpr Nanos kAgainNs = 10'000'000;

/// Lowers limits that the process's descriptors do not allow.
ConductorConfig within_limits(ConductorConfig config) {
  const uint32_t most = Handles::connections_of_this_process(config.control.max_connections);
  if (most < config.control.max_connections)
    logging::warn("fewer connections")("control.max_connections", config.control.max_connections)(
        "possible", most)("text", "the limit of open files (LimitNOFILE) allows no more");
  config.control.max_connections = most;
  return config;
}

}  // namespace

Conductor::Conductor(ConductorConfig config, StateFile state, std::vector<LaneLink*> lanes,
                     control::Doorman* doorman)
    : config_(within_limits(std::move(config))),
      state_(std::move(state)),
      lanes_(std::move(lanes)),
      rules_(config_, lanes_.count()),
      resources_(config_, rules_),
      doorman_(doorman),
      credentials_(config_.control),
      jobs_(config_.switchd.job_places()),
      connections_(
          config_, jobs_, doorman_, epoll_,
          {.message = [this](Client& client,
                             control::Received& received) { on_message(client, received); },
           .closed = [this](Client& client) { on_closed(client); }}),
      services_(control()),
      dropped_(config_, lanes_, connections_),
      port_watch_(config_, lanes_),
      status_(config_, state_, lanes_, rules_, resources_, jobs_, services_.wait_reasons, dropped_,
              port_watch_, now_ns()),
      workers_(control(), services_, status_, doorman_, events_.uplinks),
      users_(control(), services_, status_, workers_.departures()) {
  for (LaneLink* lane : lanes_) lane->set_conductor_event(events_.lanes.fd());
}

Conductor::~Conductor() = default;

ControlState Conductor::control() {
  return {config_, state_, lanes_, rules_, resources_, jobs_, credentials_, connections_};
}

Result<void> Conductor::open() {
  if (auto checked = credentials_.check_listen(); !checked) return checked;
  if (auto opened = connections_.open(); !opened) return opened;
  if (control::Listener* tcp = connections_.tcp_listener())
    if (auto loaded = credentials_.load(*tcp); !loaded) return loaded;
  if (auto watched = watch_events(); !watched) return watched;
  if (auto watched = connections_.accept_from_now_on(); !watched) return watched;
  workers_.restore(control());
  logging::info("control socket open")("path", config_.control.socket);
  if (connections_.tcp_listener())
    logging::info("control socket open")("listen", config_.control.listen)(
        "tls", !config_.control.tls.certificate.empty())("tokens", credentials_.tokens())(
        "anonymous", config_.control.allow_anonymous);
  if (!config_.admin.socket.empty() || !config_.admin.listen.empty())
    logging::info("administrators welcome")("socket", config_.admin.socket)("listen",
                                                                            config_.admin.listen);
  return {};
}

Result<void> Conductor::watch_events() {
  std::vector<int> fds = {events_.stop.fd(),    events_.reload.fd(), events_.lanes.fd(),
                          events_.uplinks.fd(), admin_.event_fd(),   resources_.mapper().fd()};
  if (doorman_) fds.push_back(doorman_->fd());
  for (const int fd : fds)
    if (auto watched = epoll_.watch(fd); !watched) return watched;
  return {};
}

void Conductor::stop() {
  events_.stop.ring();
}

std::optional<Configuration::Version> Conductor::next() const {
  if (events_.stop.is_rung()) return std::nullopt;
  return users_.reload.next();
}

bool Conductor::is_to_reload() const {
  return events_.reload.is_rung();
}

void Conductor::reload() {
  events_.reload.ring();
}

// ---- turns

void Conductor::run() {
  lanes_.set_running();
  begin_reserved_jobs();
  beat(now_ns());
  for (bool stopping = false; !stopping;) {
    for (const epoll_event& event : epoll_.wait(turn_ms(now_ns()))) serve(event.data.fd, stopping);
    end_turn();
    stopping = stopping || users_.reload.wants_restart();
  }
  end_serving();
}

/// Jobs whose workers have not come yet are the lanes' as soon as those run. Those that wait for
/// their workers to come back are not, before all of them are.
void Conductor::begin_reserved_jobs() {
  for (Job& job : jobs_)
    if (job.state == Job::State::kJoining && !job.spread) services_.lane_jobs.add(job, Seq{});
}

/// How long the next turn may wait for events.
int Conductor::turn_ms(Nanos now) const {
  if (connections_.has_unread() || workers_.under_way()) return 0;
  Nanos until = connections_.next_turn(now + 1'000'000'000);
  until = workers_.next(until);
  if (next_beat_ != 0) until = std::min(until, next_beat_);
  if (doorman_ && doorman_->waiting() != 0) until = std::min<Nanos>(until, now + kAgainNs);
  until = users_.jobs.next_overdue(until);
  until = users_.traces.next(until);
  until = port_watch_.next(until);
  return static_cast<int>(std::max<Nanos>(0, until - now) / 1'000'000 + 1);
}

/// Something has come on `fd`.
void Conductor::serve(int fd, bool& stopping) {
  if (fd == events_.stop.fd()) {
    stopping = true;
  } else if (fd == events_.lanes.fd()) {
    events_.lanes.drain();
    on_lane_events();
    workers_.on_lane_events(now_ns());
  } else if (fd == events_.uplinks.fd()) {
    events_.uplinks.drain();
    workers_.on_uplinks();
  } else if (fd == admin_.event_fd()) {
    admin_.serve(
        [this](admin::Question question) { return users_.administration.answer(question); });
  } else if (fd == events_.reload.fd()) {
    if (users_.reload.wants_restart()) return;  // the configuration was read before: is_to_reload()
    events_.reload.drain();
    users_.administration.reload("SIGHUP");
  } else if (fd == resources_.mapper().fd()) {
    workers_.on_mapped(resources_.mapper());
  } else if (doorman_ && fd == doorman_->fd()) {
    workers_.on_doorman(epoll_);
  } else {
    connections_.serve(fd);
  }
}

void Conductor::end_turn() {
  connections_.serve_unread();
  workers_.go_on();
  const Nanos now = now_ns();
  if (doorman_) doorman_->turn();
  resources_.look_after_held(now);
  workers_.call_again(now);
  connections_.turn(now);
  services_.group_places.remove_left();
  remove_deserted_jobs();
  workers_.end_overdue(now);
  users_.jobs.end_overdue(now);
  users_.traces.turn(now);
  dropped_.tell(jobs_, now);
  port_watch_.turn(now);
  users_.status.outdate();
  if (next_beat_ != 0 && now >= next_beat_) beat(now);
  logging::report_omitted(now);
}

/// Jobs whose first worker was refused half-way, or whose workers all went before the job began.
void Conductor::remove_deserted_jobs() {
  for (Job& job : jobs_)
    if (job.state != Job::State::kRejoining && job.reserved_until == 0 &&
        job.members_present().empty()) {
      logging::info("job ended", job.owner())("job", job.name)("id", value(job.id))(
          "text", "its workers went before it began");
      services_.ending.remove(job);
    }
}

/// Workers of a job that still gathers are told, unless the switch is about to be back. The others
/// find the connection closed and come back to the next switch.
void Conductor::end_serving() {
  admin_.close();
  for (Job& job : jobs_) {
    if (job.state == Job::State::kJoining && job.reserved_until == 0 &&
        !users_.reload.wants_restart()) {
      services_.ending.end(job, INA_ERR_SWITCH_LOST, "the switch was shut down");
      continue;
    }
    // One that an administrator made waits on, in the state file.
    if (job.state == Job::State::kJoining && !users_.reload.wants_restart())
      services_.ending.tell(job, INA_ERR_SWITCH_LOST, "the switch was shut down");
    services_.lane_jobs.remove(job);
  }
  connections_.close_all();
}

/// A lane that has stopped answering stops this thread, too, and then nobody is told.
void Conductor::beat(Nanos now) {
  if (!config_.heartbeat) return;
  lanes_.run(command::Answer{});
  config_.heartbeat();
  next_beat_ = config_.heartbeat_ns == 0 ? 0 : now + config_.heartbeat_ns;
}

// ---- what has come

void Conductor::on_message(Client& client, control::Received& received) {
  if (received.carries_descriptors && client.administers())
    connections_.close_later(client);  // by the doorman: no request has any
  else if (received.carries_descriptors)
    workers_.on_descriptors(client, received.body);
  else
    handle(client, received.body);
}

/// Its connection is gone.
void Conductor::on_closed(Client& client) {
  users_.traces.forget(client, now_ns());
  workers_.on_closed(client);
}

void Conductor::on_lane_events() {
  for (LaneLink* lane : lanes_) {
    while (const auto event = lane->next_event()) {
      Job* job = jobs_.at(event->job);
      if (!job || job->id != event->job_id) continue;  // ended meanwhile
      services_.ending.end_mismatched(
          *job, wire::mismatch_text(job->ranks_of(event->job, event->first_ranks), event->first,
                                    job->ranks_of(event->job, event->other_ranks), event->other));
    }
  }
}

// ---- messages

/// A message without descriptors.
void Conductor::handle(Client& client, const control::Json& body) {
  const auto type = control::type_of(body);
  if (!type) return connections_.refuse_malformed(client, type.error());
  if (!client.administers() &&
      (!connections_.may_say(client, *type) ||
       (client.peer.remote && !services_.identification.may_say_over_tcp(client, *type))))
    return;
  const auto said = control::parse_request(body);
  if (!said) return connections_.refuse_malformed(client, said.error());
  const request::Message& message = said->message;
  if (!std::holds_alternative<request::Status>(message)) users_.status.outdate();
  if (client.administers()) return users_.administration.on_message(client, message);
  if (!services_.identification.identify(client, message)) return;
  if (!said->channel && client.role == Client::Role::kWorker) {
    if (std::holds_alternative<request::Status>(message)) return users_.status.on_status(client);
    if (const auto* trace = std::get_if<request::Trace>(&message))
      return users_.traces.on_trace(client, *trace, now_ns());
  }
  workers_.handle(client, said->channel, message);
}

}  // namespace ina::switchd
