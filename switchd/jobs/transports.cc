#include "switchd/jobs/transports.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace ina::switchd {

namespace {

std::string ip_text(uint32_t ip) {
  return fmt::format("{}.{}.{}.{}", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
}

}  // namespace

Result<MemberTransport> Transports::choose(const control::PeerCredentials& peer,
                                           const control::request::Reach& reach) {
  const std::string& kind = reach.transport;
  if (kind == control::kTransportShm && peer.remote)
    return fail(INA_ERR_UNSUPPORTED,
                "the shm transport needs the switch's unix socket: no descriptors pass over TCP");
  if (kind == control::kTransportShm && config_.has_shm)
    return MemberTransport{
        .shm = true, .takes_buffers = reach.result_buffers, .parks = reach.parks};
  if (!reach.frame)
    return fail(INA_ERR_UNSUPPORTED, fmt::format("this switch offers no '{}' transport", kind));
  auto transport = choose_frame(peer, *reach.frame);
  if (transport) transport->parks = reach.parks;
  return transport;
}

Result<MemberTransport> Transports::choose_frame(const control::PeerCredentials& peer,
                                                 const control::request::FrameEnd& frame) {
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
  return MemberTransport{.frame_port = *port, .address = frame.address, .multicast = multicast};
}

/// The Ethernet port of that name; without one the port that `mac` was last seen at.
Result<uint32_t> Transports::port_of(const std::string& name, const wire::MacAddress& mac) {
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

Result<uint32_t> Transports::port_where_seen(const wire::MacAddress& mac) {
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

std::string Transports::port_names() const {
  std::string names;
  for (const FramePortInfo& port : config_.frame_ports)
    names += (names.empty() ? "" : ", ") + port.name;
  return names;
}

}  // namespace ina::switchd
