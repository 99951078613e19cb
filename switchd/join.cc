// How a worker joins a job and attaches to it: what it asks for is checked, and answered with what
// it needs to reach the switch. See docs/protocol.md, "Control socket".
#include <fmt/format.h>

#include <algorithm>

#include "common/logging/record.h"
#include "switchd/conductor_state.h"
#include "wire/group.h"

namespace ina::switchd {

/// False: refused, and `client` was told.
bool Conductor::check_version(Client& client, const request::Member& member) {
  if (member.version == control::kControlVersion) return true;
  if (!member.version) {
    refuse_malformed(client, {INA_ERR_INVALID, "'version' is missing"});
    return false;
  }
  refuse(client, INA_ERR_VERSION,
         fmt::format("libina {} speaks control version {}, this switch ({}) version {}: "
                     "install matching versions",
                     member.library.empty() ? "?" : member.library, *member.version,
                     INA_PROJECT_VERSION, control::kControlVersion));
  return false;
}

/// The Ethernet port of that name; without one the port that `mac` was last seen at.
Result<uint32_t> Conductor::frame_port_of(const std::string& name, const wire::MacAddress& mac) {
  const std::vector<FramePortInfo>& ports = config_.frame_ports;
  std::string names;
  for (const FramePortInfo& port : ports) names += (names.empty() ? "" : ", ") + port.name;
  if (!name.empty()) {
    const auto named = std::ranges::find(ports, name, &FramePortInfo::name);
    if (named != ports.end()) return static_cast<uint32_t>(named - ports.begin());
    return fail(INA_ERR_UNSUPPORTED,
                fmt::format("this switch has no Ethernet port named '{}'; it has: {}", name,
                            names.empty() ? "none" : names));
  }
  if (ports.empty()) return fail(INA_ERR_UNSUPPORTED, "this switch has no Ethernet port");
  if (ports.size() == 1) return 0;
  std::vector<uint32_t> seen_at;
  for (uint32_t port = 0; port < ports.size(); ++port)
    for (const auto& command :
         lanes_.run(LaneCommand::Kind::kFindStation, [&](LaneCommand&c, uint32_t) {
           c.address.mac = mac;
           c.vlan = ports[port].vlan;
         }))
      if (command->station_port == port) seen_at.push_back(port);
  if (seen_at.size() == 1) return seen_at.front();
  return fail(
      INA_ERR_UNSUPPORTED,
      fmt::format("behind which of the switch's ports this worker is cannot be told, "
                  "because its MAC address {}: say port= in the worker's URL, one of: {}",
                  seen_at.empty() ? "has not been seen lately" : "was seen at several", names));
}

/// Nothing: refused, and `client` was told.
std::optional<Conductor::Transport> Conductor::transport_of(Client& client,
                                                            const request::Reach& reach) {
  const std::string& kind = reach.transport;
  Transport transport;
  transport.parks = reach.parks;
  if (kind == control::kTransportShm && client.peer.remote) {
    refuse(client, INA_ERR_UNSUPPORTED,
           "the shm transport needs the switch's unix socket: no descriptors pass over TCP");
    return std::nullopt;
  }
  if (kind == control::kTransportShm && config_.has_shm) {
    transport.shm = true;
    transport.takes_buffers = reach.result_buffers;
    return transport;
  }
  if (!reach.frame) {
    refuse(client, INA_ERR_UNSUPPORTED, fmt::format("this switch offers no '{}' transport", kind));
    return std::nullopt;
  }
  const request::FrameEnd& frame = *reach.frame;
  if (config_.tags && std::ranges::find(frame.tags, control::kTagSiphash) == frame.tags.end()) {
    refuse(client, INA_ERR_VERSION,
           "this switch takes frames with tags only (security.tag: siphash), which this libina "
           "does not make: install the version that came with the switch");
    return std::nullopt;
  }
  transport.address = frame.address;
  const auto port = frame_port_of(frame.port, frame.address.mac);
  if (!port) {
    refuse(client, INA_ERR_UNSUPPORTED, port.error().text);
    return std::nullopt;
  }
  transport.frame_port = *port;
  // A tag proves a frame to one worker.
  transport.multicast = config_.frame_ports[*port].multicast && !config_.tags && frame.multicast;
  if (client.peer.remote && transport.address->ip != client.peer.ip) {
    const auto text = [](uint32_t ip) {
      return fmt::format("{}.{}.{}.{}", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
    };
    refuse(client, INA_ERR_REFUSED,
           fmt::format("address.ip {} is not the address {} that the control connection comes "
                       "from: a worker gives its own, and no other host's",
                       text(transport.address->ip), text(client.peer.ip)));
    return std::nullopt;
  }
  return transport;
}

// ---- whose job it is: a name belongs to the user or tenant that gave it

/// Why `client` may not take part in `job`; empty if it may. Its own, the one of its ticket, or, as
/// root on this host, the one whose `owner` it names.
std::string Conductor::foreign_text(const Client& client, const Job& job,
                                    const std::string& owner) {
  if (client.ticket) {
    if (*client.ticket == job.id) return {};
    return fmt::format("the ticket is for another job than '{}'", job.name);
  }
  if (client.owner() == job.owner()) return {};
  if (client.peer.remote)
    return fmt::format("job '{}' does not belong to tenant '{}', whose worker this is", job.name,
                       client.tenant);
  if (client.peer.uid != 0)
    return fmt::format(
        "job '{}' belongs to {}, and this is a worker of {}: it needs the job's "
        "ticket (INA_TICKET)",
        job.name, job.owner(), client.owner());
  if (owner == job.owner()) return {};
  return fmt::format("job '{}' belongs to {}: root joins it by naming its owner (INA_JOB_OWNER={})",
                     job.name, job.owner(), job.owner());
}

/// The job that a `join` means; a new one if there is none. nullptr: refused.
Job* Conductor::find_or_admit(Client& client, const request::Join& join) {
  const std::string& name = join.member.job;
  const std::string own = client.owner();
  if (client.ticket) {
    Job* job = jobs_.find(*client.ticket);
    if (job && job->name == name) return job;
    refuse(client, INA_ERR_REFUSED,
           fmt::format("the ticket is for another job than '{}' (INA_JOB)", name));
    return nullptr;
  }
  const std::string owner = join.member.owner.value_or(own);
  const bool others = owner != own;
  if (others && (client.peer.remote || client.peer.uid != 0)) {
    refuse(client, INA_ERR_REFUSED,
           fmt::format("this is a worker of {}: it may join a job of {} only with the job's ticket "
                       "(INA_TICKET), not by naming its owner (INA_JOB_OWNER)",
                       own, owner));
    return nullptr;
  }
  if (Job* job = jobs_.find(owner, name)) return job;
  if (others) {
    refuse(client, INA_ERR_REFUSED,
           fmt::format("there is no job '{}' of {} (INA_JOB_OWNER); in another's name none is made",
                       name, owner));
    return nullptr;
  }
  SavedJob fresh = new_job(name, static_cast<uint32_t>(join.member.world_size));
  fresh.uid = client.peer.uid;
  fresh.tenant = client.tenant;
  auto job = admit(fresh, {}, join.window_bytes.value_or(0), client.peer.text());
  if (!job) {
    refuse(client, job.error().status, job.error().text);
    return nullptr;
  }
  offer_jobs();
  return *job;
}

void Conductor::on_join(Client& client, const request::Join& join) {
  if (client.state != Client::State::kNew)
    return refuse(client, INA_ERR_INVALID, "this connection has joined already");
  const request::Member& member = join.member;
  if (!check_version(client, member)) return;
  const std::string& name = member.job;
  const int64_t rank = member.rank;
  const int64_t workers = member.world_size;
  if (name.empty() || name.size() > 128)
    return refuse(client, INA_ERR_INVALID, "the job's name must have 1 to 128 characters");
  if (workers < 1 || workers > kMaxWorkers)
    return refuse(client, INA_ERR_REFUSED,
                  fmt::format("world size {} is not in 1..{}: a worker bitmap has {} bits", workers,
                              kMaxWorkers, kMaxWorkers));
  if (rank < 0 || rank >= workers)
    return refuse(client, INA_ERR_INVALID,
                  fmt::format("rank {} is not in 0..{}", rank, workers - 1));
  const auto transport = transport_of(client, member.reach);
  if (!transport) return;

  Job* job = find_or_admit(client, join);
  if (!job) return;
  if (job->state == Job::State::kRejoining)
    return refuse(client, INA_ERR_REFUSED,
                  fmt::format("job '{}' {}; join under another name, or once it has ended", name,
                              waiting_.rejoin_text(*job)));
  if (job->workers != workers) {
    const std::string text = fmt::format(
        "world sizes of job '{}' differ: rank {} ({}) says {}, {} joined with {}", name, rank,
        client.peer.text(), workers, ranks_text(job->members_present()), job->workers);
    refuse(client, INA_ERR_MISMATCH, text);
    // An administrator said which it is, or nobody knows who is right.
    if (job->state == Job::State::kJoining && job->reserved_until == 0)
      end_job(*job, INA_ERR_MISMATCH, text);
    return;
  }
  Job::Worker& worker = job->members[static_cast<size_t>(rank)];
  if (worker.client || job->state != Job::State::kJoining) {
    const std::string holder = worker.client ? "by " + worker.client->peer.text() : "earlier";
    const std::string text = fmt::format("rank {} of job '{}' was joined {} and now again by {}",
                                         rank, name, holder, client.peer.text());
    refuse(client, INA_ERR_RANK_TAKEN, text);
    // While the job gathers, nobody can tell which of the two is meant; a running job goes on, and
    // so does one that an administrator made.
    if (job->state == Job::State::kJoining && job->reserved_until == 0)
      end_job(*job, INA_ERR_RANK_TAKEN, text);
    return;
  }

  answer_join(client, *job, Rank{static_cast<uint8_t>(rank)}, *transport);
}

/// What all places in the job have in common.
answer::Place Conductor::place_in(const Job& job) const {
  return {.job_id = value(job.id),
          .job_key = job.key,
          .epoch = job.epoch,
          .window = job.grant.window,
          .slot_bytes = config_.slot_bytes,
          .lanes = job.geometry.lanes};
}

/// Gives a worker, or the fallback server, what it takes to reach the switch, and tells it in
/// `place`. Returns the descriptors that go with that.
Result<std::vector<int>> Conductor::give_place(Job& job, Rank rank, const Transport& transport,
                                               answer::Place& place) {
  Job::Worker& worker = job.at(rank);
  if (transport.shm) {
    if (auto made = resources_.make_session(job, rank); !made) return tl::unexpected(made.error());
    worker.takes_buffers = transport.takes_buffers;
    place.shm = answer::ShmEnd{.layout = io::shm::kLayoutVersion,
                               .tx_depth = job.geometry.tx_depth,
                               .rx_depth = job.geometry.rx_depth,
                               .result_rows = job.geometry.result_rows,
                               .side_rows = job.geometry.side_rows};
    std::vector<int> fds = {worker.session->switch_region.fd.get(), job.results.fd.get()};
    for (const Fd& event : worker.session->wake_events) fds.push_back(event.get());
    return fds;
  }
  worker.address = transport.address;
  worker.frame_port = transport.frame_port;
  worker.multicast = transport.multicast;
  const wire::Address& ours = config_.frame_ports[transport.frame_port].address;
  place.address = ours;
  if (worker.multicast) place.group = wire::group_of(job.id, ours.udp_port);
  worker.tag_keys.reset();
  if (config_.tags) {
    worker.tag_keys = {{random_u64(), random_u64()}, job.payload_key};
    place.tag = answer::Tag{.key = worker.tag_keys->frame, .payload_key = worker.tag_keys->payload};
  }
  return std::vector<int>();
}

/// Gives the worker its place.
void Conductor::answer_join(Client& client, Job& job, Rank rank, const Transport& transport) {
  if (!client.carrier)
    if (const std::string text = crowded_text(job); !text.empty())
      return connections_.refuse_for_now(client, text);
  if (auto taken = take_place(client, job, rank, transport); !taken)
    refuse(client, taken.error().status, taken.error().text);
}

Result<void> Conductor::take_place(Client& client, Job& job, Rank rank,
                                   const Transport& transport) {
  Job::Worker& worker = job.members[value(rank)];
  answer::Joined reply{.place = place_in(job), .rules = rules_.rules_of(job)};
  reply.place.library = INA_PROJECT_VERSION;
  const auto fds = give_place(job, rank, transport, reply.place);
  if (!fds) return tl::unexpected(fds.error());
  worker.client = &client;
  worker.parks = transport.parks;
  client.account = job.owner();
  client.job = &job;
  client.rank = rank;
  client.state = Client::State::kJoined;
  if (!client.carrier) client.joined = job.id;
  send(client, reply, *fds);
  return {};
}

/// Without a descriptor: on an Ethernet port.
void Conductor::on_attach(Client& client) {
  if (client.state != Client::State::kJoined)
    return refuse(client, INA_ERR_INVALID, "attach without join");
  if (client.job->at(client.rank).session)
    return refuse(client, INA_ERR_INVALID, "attach must carry one descriptor, the worker region");
  attach_member(client);
}

/// Its region is there, if it needs one.
void Conductor::attach_member(Client& client) {
  if (client.role == Client::Role::kFallback)
    attach_fallback(client);
  else
    attach_worker(client);
}

void Conductor::attach_worker(Client& client) {
  Job& job = *client.job;
  const bool rejoining = job.state == Job::State::kRejoining;
  if (!rejoining)
    if (auto attached = attach_to_lanes(job, client.rank); !attached) {
      // A group whose workers cannot all be in it is of no use to the others.
      if (job.is_group()) return end_job(job, attached.error().status, attached.error().text);
      return refuse(client, attached.error().status, attached.error().text);
    }
  job.at(client.rank).attached = true;
  client.state = Client::State::kAttached;
  on_gathered(job);
}

/// Somebody has attached; begins the job if all have.
void Conductor::on_gathered(Job& job) {
  if (job.state == Job::State::kRejoining) offer_jobs();
  if (job.attached() != full_bitmap(job.workers) || !rules_.has_fallback(job))
    return tell_missing(job);
  if (job.state == Job::State::kRejoining) return on_rejoined(job);
  if (job.state != Job::State::kJoining) return;
  job.state = Job::State::kRunning;
  job.reserved_until = 0;
  // On disk before anybody may start: a worker that runs must be known after a restart.
  save(job);
  logging::info("job running", job.owner())("job", job.name)("id", value(job.id))(
      "epoch", job.epoch)("workers", job.workers);
  for (Job::Worker& member : job.members) send(*member.client, answer::Ready{});
}

Result<void> Conductor::attach_to_lanes(Job& job, Rank rank) {
  const Job::Worker& worker = job.at(rank);
  const auto commands =
      lanes_.run(worker.session ? LaneCommand::Kind::kAttachShm : LaneCommand::Kind::kAttachFrame,
                 [&](LaneCommand& command, uint32_t) {
                   command.job = job.index;
                   command.rank = rank;
                   command.session = worker.session.get();
                   command.frame_port = worker.frame_port;
                   command.multicast = worker.multicast;
                   command.parks = worker.parks;
                   command.spec.id = job.id;
                   command.job_key = job.key;
                   command.root = job.root;
                   if (worker.address) command.address = *worker.address;
                   command.tag_keys = worker.tag_keys;
                 });
  for (const auto& command : commands)
    if (!command->error.empty()) return fail(INA_ERR_REFUSED, command->error);
  return {};
}

void Conductor::tell_missing(Job& job) {
  const Bitmap missing = full_bitmap(job.workers) & ~job.attached();
  for (Job::Worker& member : job.members)
    if (member.attached)
      send(*member.client, answer::Waiting{ranks_of(missing), !rules_.has_fallback(job)});
}

}  // namespace ina::switchd
