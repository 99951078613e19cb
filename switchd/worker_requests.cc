#include "switchd/worker_requests.h"

#include "switchd/jobs/restore.h"

namespace ina::switchd {

namespace answer = control::answer;
namespace request = control::request;

WorkerRequests::WorkerRequests(const ControlState& control, JobServices& services,
                               StatusReport& status, control::Doorman* doorman,
                               ConductorEvent& uplinks)
    : connections_(control.connections),
      ending_(services.ending),
      status_(status),
      joining_(control.jobs, services.identification, services.ports,
               services.placement, services.records, services.maker, ending_, services.offers,
               services.wait_reasons, connections_),
      gathering_(control.config.control, control.rules, control.jobs, services.records,
                 services.lane_jobs, ending_, services.offers, connections_),
      peer_memory_(control.lanes, control.resources, connections_, doorman,
                   [this](Client& client) { attach_member(client); }),
      result_buffers_(control.config.aggregator, control.lanes, control.resources, control.jobs,
                      connections_, ending_),
      group_maker_(control.config, control.jobs, services.records, services.lane_jobs,
                   control.resources, connections_),
      tree_groups_(group_maker_, connections_),
      splits_(control.jobs, group_maker_, tree_groups_, ending_, services.offers, connections_),
      member_groups_(control.jobs, group_maker_, tree_groups_, ending_, services.offers,
                     connections_),
      worker_calls_(control.jobs, connections_),
      departures_(services.records, services.lane_jobs, control.resources, ending_, gathering_,
                  splits_, member_groups_, status_, connections_),
      rejoin_(control.config.control, control.jobs, services.identification, services.ports,
              services.placement, control.resources, ending_, services.wait_reasons, connections_),
      groups_(control.jobs, services.group_places, services.ports, services.placement, rejoin_,
              ending_, connections_),
      fallback_places_(control.config.aggregator, services.records, services.lane_jobs,
                       control.resources, services.placement, gathering_, connections_),
      switches_below_(control.config, control.jobs, services.identification, services.ports,
                      services.placement, services.records, services.maker, ending_,
                      services.lane_jobs, control.resources, gathering_, departures_, splits_,
                      member_groups_, services.group_places, connections_),
      switch_above_(control.config, control.jobs, services.lane_jobs, services.records, ending_,
                    gathering_, departures_, tree_groups_, connections_, uplinks),
      fallback_servers_(control.config.rules, control.jobs, services.ports, fallback_places_,
                        ending_, services.offers, connections_) {
  if (!control.config.uplink.url.empty())
    gathering_.set_above([this](Job& job) { switch_above_.tell(job); },
                         [this](Job& job) { switch_above_.come_back(job); });
}

void WorkerRequests::restore(const ControlState& control) {
  rejoin_.set_lost(
      Restore(control.config, control.rules, control.state, control.resources, control.jobs)
          .run(Moment::now()));
}

void WorkerRequests::go_on() {
  splits_.go_on();
  member_groups_.go_on();
}

void WorkerRequests::on_closed(Client& client) {
  peer_memory_.forget(client);
  for (auto& [channel, place] : client.places) {
    if (!place->job) continue;
    if (place->role == Client::Role::kSwitch)
      switches_below_.on_gone(*place);
    else
      departures_.on_gone(*place);
  }
  if (!client.job) return;
  if (client.role == Client::Role::kFallback)
    fallback_places_.lose(client);
  else if (client.role == Client::Role::kSwitch)
    switches_below_.on_gone(client);
  else
    departures_.on_gone(client);
}

void WorkerRequests::on_mapped(Mapper& mapper) {
  while (auto done = mapper.next()) {
    if (!peer_memory_.on_mapped(*done)) result_buffers_.on_made(*done);
    if (done->region)
      mapper.discard(done->owner, std::move(done->region->map), std::move(done->region->fd));
  }
}

void WorkerRequests::handle(Client& client, std::optional<uint32_t> channel,
                            const request::Message& message) {
  if (FallbackServers::is_from_server(client, message))
    return fallback_servers_.handle(client, message);
  if (channel) return on_channel(client, *channel, message);
  if (const auto* join = std::get_if<request::Join>(&message))
    return join->ranks.empty() ? joining_.on_join(client, *join)
                               : switches_below_.on_join(client, *join);
  if (switches_below_.handle(client, message)) return;
  if (const auto* rejoin = std::get_if<request::Rejoin>(&message))
    return rejoin->ranks.empty() ? rejoin_.on_rejoin(client, *rejoin)
                                 : switches_below_.on_rejoin(client, *rejoin);
  dispatch(client, message);
}

/// Handles a worker's message about its place in a group.
void WorkerRequests::on_channel(Client& line, uint32_t channel, const request::Message& message) {
  if (const auto* join = std::get_if<request::Join>(&message))
    return join->ranks.empty() ? groups_.on_join(line, channel, *join)
                               : switches_below_.on_join_group(line, channel, *join);
  if (const auto* rejoin = std::get_if<request::Rejoin>(&message))
    return rejoin->ranks.empty() ? groups_.on_rejoin(line, channel, *rejoin)
                                 : switches_below_.on_rejoin_group(line, channel, *rejoin);
  if (Client* place = line.from(channel)) {
    if (!switches_below_.handle(*place, message)) dispatch(*place, message);
    return;
  }
  // Otherwise the end of the group has crossed the message.
  if (const auto* abort = std::get_if<request::Abort>(&message))
    groups_.on_abort(line, channel, *abort);
}

/// Handles a message of a worker in a job or group that it has joined.
void WorkerRequests::dispatch(Client& client, const request::Message& message) {
  if (client.role == Client::Role::kSwitch && !SwitchesBelow::may_say(message))
    return connections_.refuse(client, INA_ERR_INVALID,
                               "a switch cannot say '" + control::type_of(message) + "' here");
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
void WorkerRequests::on_attach(Client& client) {
  if (auto may = Gathering::check_attach(client); !may)
    return connections_.refuse(client, may.error());
  gathering_.attach(client);
}

/// Its region is there, if it needs one.
void WorkerRequests::attach_member(Client& client) {
  if (client.role == Client::Role::kFallback)
    fallback_servers_.attach(client);
  else
    gathering_.attach(client);
}

}  // namespace ina::switchd
