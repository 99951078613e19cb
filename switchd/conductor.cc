#include "switchd/conductor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>

#include "common/clock.h"
#include "common/event_fd.h"
#include "common/logging/record.h"
#include "switchd/jobs/restore.h"
#include "wire/text.h"

namespace ina::switchd {

namespace answer = control::answer;
namespace request = control::request;

namespace {

// How long until the doorman is told or asked again what it had no room for.
constexpr Nanos kAgainNs = 10'000'000;

/// True if the event has been rung; it stays so.
bool has_event(const Fd& event) {
  pollfd polled{event.get(), POLLIN, 0};
  return ::poll(&polled, 1, 0) > 0;
}

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
      stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      reload_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      lane_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      credentials_(config_.control),
      jobs_(config_.switchd.job_places()),
      connections_(
          config_, jobs_, doorman_, epoll_,
          {.message = [this](Client& client,
                             control::Received& received) { on_message(client, received); },
           .closed = [this](Client& client) { on_closed(client); }}),
      records_(state_),
      lane_jobs_(lanes_, rules_),
      group_places_(connections_),
      ending_(jobs_, records_, lane_jobs_, resources_, connections_, group_places_),
      maker_(config_.switchd, jobs_, lane_jobs_, resources_),
      offers_(jobs_, connections_),
      dropped_(config_, lanes_, connections_),
      wait_reasons_(rules_, lanes_),
      port_watch_(config_, lanes_),
      status_(config_, state_, lanes_, rules_, resources_, jobs_, wait_reasons_, dropped_,
              port_watch_, now_ns()),
      transports_(config_, lanes_),
      placement_(config_, rules_, resources_, connections_),
      identification_(credentials_, jobs_, connections_),
      joining_(jobs_, identification_, transports_, placement_, records_, maker_, ending_, offers_,
               wait_reasons_, connections_),
      gathering_(config_.control, rules_, jobs_, records_, lane_jobs_, ending_, offers_,
                 connections_),
      peer_memory_(lanes_, resources_, connections_, doorman_,
                   [this](Client& client) { attach_member(client); }),
      result_buffers_(config_.aggregator, lanes_, resources_, jobs_, connections_, ending_),
      group_maker_(config_, jobs_, records_, lane_jobs_, resources_, connections_),
      splits_(jobs_, group_maker_, ending_, offers_, connections_),
      member_groups_(jobs_, group_maker_, ending_, offers_, connections_),
      worker_calls_(jobs_, connections_),
      departures_(records_, lane_jobs_, resources_, ending_, gathering_, splits_, member_groups_,
                  status_, connections_),
      rejoin_(config_.control, jobs_, identification_, transports_, placement_, resources_, ending_,
              wait_reasons_, connections_),
      groups_(jobs_, group_places_, transports_, placement_, rejoin_, ending_, connections_),
      fallback_places_(config_.aggregator, records_, lane_jobs_, resources_, placement_, gathering_,
                       connections_),
      fallback_servers_(config_.fallback, jobs_, transports_, fallback_places_, ending_, offers_,
                        connections_),
      status_answers_(status_, maker_, connections_),
      slot_map_(config_.aggregator.slots, lanes_, jobs_),
      tracing_(config_, lanes_, jobs_),
      trace_answers_(tracing_, jobs_, status_answers_, connections_),
      reload_(config_, state_, jobs_, resources_, ending_, connections_, credentials_),
      job_administration_(config_.aggregator, jobs_, records_, maker_, ending_, offers_,
                          departures_, wait_reasons_, connections_),
      administration_(jobs_, maker_, job_administration_, reload_, status_, slot_map_, tracing_,
                      status_answers_, trace_answers_, connections_) {
  for (LaneLink* lane : lanes_) lane->set_conductor_event(lane_event_.get());
}

Conductor::~Conductor() = default;

Result<void> Conductor::open() {
  if (auto checked = credentials_.check_listen(); !checked) return checked;
  if (auto opened = connections_.open(); !opened) return opened;
  if (control::Listener* tcp = connections_.tcp_listener())
    if (auto loaded = credentials_.load(*tcp); !loaded) return loaded;
  if (auto watched = watch_events(); !watched) return watched;
  if (auto watched = connections_.accept_from_now_on(); !watched) return watched;
  rejoin_.set_lost(Restore(config_, rules_, state_, resources_, jobs_).run(Moment::now()));
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
  std::vector<int> fds = {stop_event_.get(), reload_event_.get(), lane_event_.get(),
                          admin_.event_fd(), resources_.mapper().fd()};
  if (doorman_) fds.push_back(doorman_->fd());
  for (const int fd : fds)
    if (auto watched = epoll_.watch(fd); !watched) return watched;
  return {};
}

void Conductor::stop() {
  ring_event(stop_event_.get());
}

std::optional<Configuration::Version> Conductor::next() const {
  if (has_event(stop_event_)) return std::nullopt;
  return reload_.next();
}

bool Conductor::is_to_reload() const {
  return has_event(reload_event_);
}

void Conductor::reload() {
  ring_event(reload_event_.get());
}

// ---- turns

void Conductor::run() {
  lanes_.set_running();
  begin_reserved_jobs();
  beat(now_ns());
  for (bool stopping = false; !stopping;) {
    for (const epoll_event& event : epoll_.wait(turn_ms(now_ns()))) serve(event.data.fd, stopping);
    end_turn();
    stopping = stopping || reload_.wants_restart();
  }
  end_serving();
}

/// Jobs whose workers have not come yet are the lanes' as soon as those run. Those that wait for
/// their workers to come back are not, before all of them are.
void Conductor::begin_reserved_jobs() {
  for (Job& job : jobs_)
    if (job.state == Job::State::kJoining) lane_jobs_.add(job, Seq{});
}

/// How long the next turn may wait for events.
int Conductor::turn_ms(Nanos now) const {
  if (connections_.has_unread() || splits_.under_way() || member_groups_.under_way()) return 0;
  Nanos until = connections_.next_turn(now + 1'000'000'000);
  until = worker_calls_.next(until);
  if (next_beat_ != 0) until = std::min(until, next_beat_);
  if (doorman_ && doorman_->waiting() != 0) until = std::min<Nanos>(until, now + kAgainNs);
  until = rejoin_.next_overdue(until);
  until = job_administration_.next_overdue(until);
  until = trace_answers_.next(until);
  until = port_watch_.next(until);
  return static_cast<int>(std::max<Nanos>(0, until - now) / 1'000'000 + 1);
}

/// Something has come on `fd`.
void Conductor::serve(int fd, bool& stopping) {
  if (fd == stop_event_.get()) {
    stopping = true;
  } else if (fd == lane_event_.get()) {
    drain_event(fd);
    on_lane_events();
    worker_calls_.call(now_ns());
  } else if (fd == admin_.event_fd()) {
    admin_.serve([this](const admin::Request& asked, const std::string& who) {
      return administration_.administer(asked, who);
    });
  } else if (fd == reload_event_.get()) {
    if (reload_.wants_restart()) return;  // the configuration was read before: is_to_reload()
    drain_event(fd);
    (void)administration_.administer(admin::Reload{}, "SIGHUP");
  } else if (fd == resources_.mapper().fd()) {
    on_mapped();
  } else if (doorman_ && fd == doorman_->fd()) {
    peer_memory_.on_doorman(epoll_);
  } else {
    connections_.serve(fd);
  }
}

void Conductor::end_turn() {
  connections_.serve_unread();
  splits_.go_on();
  member_groups_.go_on();
  const Nanos now = now_ns();
  if (doorman_) doorman_->turn();
  resources_.look_after_held(now);
  worker_calls_.call_again(now);
  connections_.turn(now);
  group_places_.remove_left();
  remove_deserted_jobs();
  rejoin_.end_overdue(now);
  job_administration_.end_overdue(now);
  trace_answers_.turn(now);
  dropped_.tell(jobs_, now);
  port_watch_.turn(now);
  status_answers_.outdate();
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
      ending_.remove(job);
    }
}

/// Workers of a job that still gathers are told, unless the switch is about to be back. The others
/// find the connection closed and come back to the next switch.
void Conductor::end_serving() {
  admin_.close();
  for (Job& job : jobs_) {
    if (job.state == Job::State::kJoining && job.reserved_until == 0 && !reload_.wants_restart()) {
      ending_.end(job, INA_ERR_SWITCH_LOST, "the switch was shut down");
      continue;
    }
    // One that an administrator made waits on, in the state file.
    if (job.state == Job::State::kJoining && !reload_.wants_restart())
      ending_.tell(job, INA_ERR_SWITCH_LOST, "the switch was shut down");
    lane_jobs_.remove(job);
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
    peer_memory_.on_descriptors(client, received.body);
  else
    handle(client, received.body);
}

/// Its connection is gone.
void Conductor::on_closed(Client& client) {
  peer_memory_.forget(client);
  trace_answers_.forget(client, now_ns());
  for (auto& [channel, place] : client.places)
    if (place->job) departures_.on_gone(*place);
  if (!client.job) return;
  if (client.role == Client::Role::kFallback)
    fallback_places_.lose(client);
  else
    departures_.on_gone(client);
}

void Conductor::on_mapped() {
  Mapper& mapper = resources_.mapper();
  while (auto done = mapper.next()) {
    if (!peer_memory_.on_mapped(*done)) result_buffers_.on_made(*done);
    if (done->region)
      mapper.discard(done->owner, std::move(done->region->map), std::move(done->region->fd));
  }
}

void Conductor::on_lane_events() {
  for (LaneLink* lane : lanes_) {
    while (const auto event = lane->next_event()) {
      Job* job = jobs_.at(event->job);
      if (!job || job->id != event->job_id) continue;  // ended meanwhile
      ending_.end_mismatched(*job, wire::mismatch_text(event->first_ranks, event->first,
                                                       event->other_ranks, event->other));
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
       (client.peer.remote && !identification_.may_say_over_tcp(client, *type))))
    return;
  const auto said = control::parse_request(body);
  if (!said) return connections_.refuse_malformed(client, said.error());
  const request::Message& message = said->message;
  if (!std::holds_alternative<request::Status>(message)) status_answers_.outdate();
  if (client.administers()) return administration_.on_message(client, message);
  if (!identification_.identify(client, message)) return;
  if (FallbackServers::is_from_server(client, message))
    return fallback_servers_.handle(client, message);
  if (said->channel) return on_channel(client, *said->channel, message);
  std::visit(
      control::Overloaded{
          [&](const request::Join& join) { joining_.on_join(client, join); },
          [&](const request::Rejoin& rejoin) { rejoin_.on_rejoin(client, rejoin); },
          [&](const request::Status&) { status_answers_.on_status(client); },
          [&](const request::Trace& trace) { trace_answers_.on_trace(client, trace, now_ns()); },
          [&](const auto&) { dispatch(client, message); }},
      message);
}

/// Handles a worker's message about its place in a group.
void Conductor::on_channel(Client& line, uint32_t channel, const request::Message& message) {
  if (const auto* join = std::get_if<request::Join>(&message))
    return groups_.on_join(line, channel, *join);
  if (const auto* rejoin = std::get_if<request::Rejoin>(&message))
    return groups_.on_rejoin(line, channel, *rejoin);
  if (Client* place = line.from(channel)) return dispatch(*place, message);
  // Otherwise the end of the group has crossed the message.
  if (const auto* abort = std::get_if<request::Abort>(&message))
    groups_.on_abort(line, channel, *abort);
}

/// Handles a message of a worker in a job or group that it has joined.
void Conductor::dispatch(Client& client, const request::Message& message) {
  std::visit(control::Overloaded{
                 [&](const request::Attach&) { on_attach(client); },
                 [&](const request::Register& said) {
                   connections_.send(
                       client, answer::Registered{said.number, INA_ERR_INVALID,
                                                  "memory is registered over the shm port with one "
                                                  "descriptor"});
                 },
                 [&](const request::Unregister& said) { peer_memory_.on_unregister(client, said); },
                 [&](const request::ShareResults& said) { result_buffers_.on_share(client, said); },
                 [&](const request::FreeResults& said) { result_buffers_.on_free(client, said); },
                 [&](const request::Split& said) { splits_.on_split(client, said); },
                 [&](const request::CreateGroup& said) { member_groups_.on_create(client, said); },
                 [&](const request::Leave& leave) { departures_.on_leave(client, leave); },
                 [&](const request::Abort& said) { departures_.on_abort(client, said); },
                 [&](const request::Mismatch& said) { ending_.on_mismatch(client, said); },
                 [&](const request::Explain&) {
                   connections_.send(client, answer::Explain{client.job ? status_.why(*client.job)
                                                                        : "the job has ended"});
                 },
                 [&](const auto&) {
                   connections_.refuse(
                       client, INA_ERR_INVALID,
                       "unknown control message type '" + control::type_of(message) + "'");
                 }},
             message);
}

/// Without a descriptor: on an Ethernet port.
void Conductor::on_attach(Client& client) {
  if (auto may = Gathering::check_attach(client); !may)
    return connections_.refuse(client, may.error());
  gathering_.attach(client);
}

/// Its region is there, if it needs one.
void Conductor::attach_member(Client& client) {
  if (client.role == Client::Role::kFallback)
    fallback_servers_.attach(client);
  else
    gathering_.attach(client);
}

}  // namespace ina::switchd
