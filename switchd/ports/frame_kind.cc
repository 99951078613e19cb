#include "switchd/ports/frame_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "switchd/jobs/job.h"
#include "switchd/random.h"
#include "wire/group.h"

namespace ina::switchd {

namespace {

std::string ip_text(uint32_t ip) {
  return fmt::format("{}.{}.{}.{}", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
}

}  // namespace

Result<Way> FrameKind::choose(const control::PeerCredentials& peer,
                              const control::request::Reach& reach) {
  if (!reach.frame)
    return fail(INA_ERR_INVALID, fmt::format("the '{}' transport needs an address", name()));
  const control::request::FrameEnd& frame = *reach.frame;
  if (config_.security.tags() &&
      std::ranges::find(frame.tags, control::kTagSiphash) == frame.tags.end())
    return fail(INA_ERR_VERSION,
                "this switch takes frames with tags only (security.tag: siphash), which this "
                "libina does not make: install the version that came with the switch");
  const auto port = port_of(frame.port, frame.address.mac);
  if (!port) return fail(INA_ERR_UNSUPPORTED, port.error().text);
  if (peer.remote && frame.address.ip != peer.ip)
    return fail(INA_ERR_REFUSED,
                fmt::format("address.ip {} is not the address {} that the control connection comes "
                            "from: a worker gives its own, and no other host's",
                            ip_text(frame.address.ip), ip_text(peer.ip)));
  // A tag proves a frame to one worker.
  const bool multicast =
      config_.frame_ports[*port].multicast && !config_.security.tags() && frame.multicast;
  return Way{.kind = this,
             .own = FrameWay{.port = *port, .address = frame.address, .multicast = multicast}};
}

Result<std::vector<int>> FrameKind::give(Job& job, Rank rank, Way& way,
                                         control::answer::Place& place) {
  FrameWay& frames = *way.frames();
  const wire::Address& ours = config_.frame_ports[frames.port].address;
  place.address = ours;
  if (const Job::Below* const below = job.below_at(rank)) place.job_key = below->key;
  if (frames.multicast) place.group = wire::group_of(job.id, ours.udp_port);
  if (config_.security.tags()) {
    frames.tag_keys = {{random_u64(), random_u64()}, job.payload_key};
    place.tag = control::answer::Tag{.key = frames.tag_keys->frame,
                                     .payload_key = frames.tag_keys->payload};
  }
  return std::vector<int>();
}

Result<void> FrameKind::attach(const Job& job, Rank rank) {
  const Way& way = job.at(rank).way;
  const FrameWay& frames = *way.frames();
  const LanePlace place = job.lane_place(rank);
  const Job::Below* const below = job.below_at(rank);
  return lanes_.run_each_all([&](uint32_t lane) {
    return command::AttachFrame{
        .job = place.job,
        .rank = place.member,
        .frame_port = frames.port,
        .address = below ? address_of_lane(frames.address, lane) : frames.address,
        .job_id = job.id,
        .job_key = below ? below->key : job.key,
        .root = below ? kSwitchFamily : job.root,
        .tag_keys = frames.tag_keys,
        .multicast = frames.multicast,
        .parks = way.parks};
  });
}

/// Workers come back by the port and address that they know.
std::string FrameKind::lost_text(const Way& way, const ConductorConfig& next) const {
  const uint32_t port = way.frames()->port;
  if (port >= config_.frame_ports.size()) return {};
  const FramePortInfo& was = config_.frame_ports[port];
  const auto is = std::ranges::find(next.frame_ports, was.name, &FramePortInfo::name);
  if (is == next.frame_ports.end())
    return fmt::format("workers of it are behind port {}, which is no more", was.name);
  if (is->address.ip != was.address.ip || is->address.udp_port != was.address.udp_port ||
      is->vlan != was.vlan)
    return fmt::format("workers of it know port {} by another address", was.name);
  return {};
}

/// The Ethernet port of that name; without one the port that `mac` was last seen at.
Result<uint32_t> FrameKind::port_of(const std::string& name, const wire::MacAddress& mac) {
  const std::vector<FramePortInfo>& ports = config_.frame_ports;
  if (!name.empty()) {
    const auto named = std::ranges::find(ports, name, &FramePortInfo::name);
    if (named != ports.end()) return static_cast<uint32_t>(named - ports.begin());
    return fail(INA_ERR_UNSUPPORTED,
                fmt::format("this switch has no Ethernet port named '{}'; it has: {}", name,
                            ports.empty() ? "none" : port_names()));
  }
  if (ports.empty()) return fail(INA_ERR_UNSUPPORTED, "this switch has no Ethernet port");
  if (ports.size() == 1) return 0;
  return port_where_seen(mac);
}

Result<uint32_t> FrameKind::port_where_seen(const wire::MacAddress& mac) {
  std::vector<uint32_t> seen_at;
  for (uint32_t port = 0; port < config_.frame_ports.size(); ++port)
    for (const auto& command :
         lanes_.run(command::FindStation{mac, config_.frame_ports[port].vlan}))
      if (command.port == port) seen_at.push_back(port);
  if (seen_at.size() == 1) return seen_at.front();
  return fail(INA_ERR_UNSUPPORTED,
              fmt::format("behind which of the switch's ports this worker is cannot be told, "
                          "because its MAC address {}: say port= in the worker's URL, one of: {}",
                          seen_at.empty() ? "has not been seen lately" : "was seen at several",
                          port_names()));
}

std::string FrameKind::port_names() const {
  std::string names;
  for (const FramePortInfo& port : config_.frame_ports)
    names += (names.empty() ? "" : ", ") + port.name;
  return names;
}

}  // namespace ina::switchd
