#include "switchd/reports/port_watch.h"

#include <fmt/format.h>

#include "common/logging/record.h"

namespace ina::switchd {

namespace {

double seconds(Nanos time) {
  return static_cast<double>(time / 1'000'000) * 1e-3;
}

}  // namespace

std::string block_text(const ConductorConfig& config, size_t port, const bridge::PortBlock& block) {
  const std::string& name = config.frame_ports[port].name;
  const std::string& other = config.frame_ports[block.other].name;
  constexpr std::string_view kEnd =
      ": it forwards nothing until the loop is gone; workers' messages to the switch still pass";
  switch (block.sign) {
    case bridge::LoopSign::kNone:
      return "";
    case bridge::LoopSign::kProbe:
      if (block.other == port)
        return fmt::format("there is a loop behind port {}, which gets back what it sends{}", name,
                           kEnd);
      return fmt::format(
          "ports {} and {} are joined outside of the switch, and form a loop; {} is blocked{}",
          other, name, name, kEnd);
    case bridge::LoopSign::kMoves:
      break;
  }
  return fmt::format(
      "addresses of hosts at port {} appear at port {} again and again, as in a loop; {} is "
      "blocked{}",
      other, name, name, kEnd);
}

void PortWatch::turn(Nanos now) {
  if (ports_.empty() || now < next_look_) return;
  next_look_ = now + kLookNs;
  const bool moves = now >= next_moves_;
  if (moves) next_moves_ = now + kMovesNs;
  for (size_t number = 0; number < ports_.size(); ++number) {
    look_at_device(number, now);
    if (moves) look_at_losses(number);
  }
  const auto snapshots = lanes_.run(command::TakeSnapshot{});
  // Lane 0 looks after links, and forwards.
  const std::vector<FramePortSnapshot>& seen = snapshots.front().snapshot.frame_ports;
  for (size_t number = 0; number < std::min(ports_.size(), seen.size()); ++number) {
    look_at_link(number, seen[number].link_up, now);
    look_at_block(number, seen[number].block, now);
    if (moves) look_at_moves(number, seen[number].addresses.moved);
  }
}

std::string PortWatch::device_text(size_t number) const {
  const DeviceState& device = ports_[number].device;
  if (!device.gone) return "";
  const FramePortInfo& info = config_.frame_ports[number];
  return fmt::format("port {}: its interface {} is gone; the port comes back by itself with it{}",
                     info.name, info.interface,
                     device.failure.empty() ? "" : ". So far it does not: " + device.failure);
}

void PortWatch::look_at_device(size_t number, Nanos now) {
  io::PortDevice* const device = config_.frame_ports[number].device;
  if (device == nullptr) return;
  DeviceState& state = ports_[number].device;
  if (!state.gone && !device->is_attached()) close_device(number, now);
  if (state.gone && now >= ports_[number].next_reopen && device->may_reopen())
    reopen_device(number, now);
  state.lost = device->lost_frames();
}

void PortWatch::close_device(size_t number, Nanos now) {
  const FramePortInfo& info = config_.frame_ports[number];
  logging::warn("interface gone", info.name)("port", info.name)("interface", info.interface)(
      "text", "it was removed, or left the network namespace; the port comes back with it");
  const command::DetachPort detach{static_cast<uint32_t>(number)};
  lanes_.run(detach);
  lanes_.run(detach);
  info.device->close();
  Port& port = ports_[number];
  port.device.gone = true;
  port.device.gone_since = now;
  port.next_reopen = now;
}

void PortWatch::reopen_device(size_t number, Nanos now) {
  FramePortInfo& info = config_.frame_ports[number];
  Port& port = ports_[number];
  port.next_reopen = now + kReopenNs;
  if (const auto opened = info.device->reopen(); !opened) {
    if (port.device.failure != opened.error().text)
      logging::warn("interface not taken", info.name)("port", info.name)("text",
                                                                         opened.error().text);
    port.device.failure = opened.error().text;
    return;
  }
  info.address.mac = info.device->mac();
  lanes_.run(command::AttachPort{static_cast<uint32_t>(number)});
  logging::info("interface back", info.name)("port", info.name)("interface", info.interface)(
      "was_gone_s", seconds(now - port.device.gone_since));
  port.device = {};
}

void PortWatch::look_at_losses(size_t number) {
  Port& port = ports_[number];
  const std::string& name = config_.frame_ports[number].name;
  const uint64_t lost = port.device.lost.value_or(0);
  if (lost > port.lost_told)
    logging::warn("frames lost before the switch", name)("port", name)("frames",
                                                                       lost - port.lost_told);
  port.lost_told = lost;
}

void PortWatch::look_at_link(size_t number, bool up, Nanos now) {
  Port& port = ports_[number];
  const std::string& name = config_.frame_ports[number].name;
  const bool first = port.link_since == 0;
  if (!first && up == port.link_up) return;
  const double before_s = first ? 0 : seconds(now - port.link_since);
  port.link_up = up;
  port.link_since = now;
  if (first && up) return;
  if (up)
    logging::info("link up", name)("port", name)("was_down_s", before_s);
  else
    logging::warn("link down", name)("port", name)("was_up_s", before_s);
}

void PortWatch::look_at_block(size_t number, const bridge::PortBlock& block, Nanos now) {
  bridge::PortBlock& known = ports_[number].block;
  const std::string& name = config_.frame_ports[number].name;
  using bridge::LoopSign;
  const bool again = block.times != known.times;
  if (known.sign != LoopSign::kNone && (again || block.sign == LoopSign::kNone))
    logging::info("port open again", name)("port", name)("was_blocked_s",
                                                         seconds(now - known.since));
  if (block.sign != LoopSign::kNone && (again || block.sign != known.sign))
    logging::warn("port blocked", name)("port", name)(
        "with", config_.frame_ports[block.other].name)("text", block_text(config_, number, block));
  known = block;
}

void PortWatch::look_at_moves(size_t number, uint64_t moved) {
  uint64_t& known = ports_[number].moved;
  const std::string& name = config_.frame_ports[number].name;
  if (moved - known >= kManyMoves)
    logging::warn("addresses move", name)("port", name)("moves", moved - known)(
        "text",
        "hosts that were seen at other ports appear at this one: a loop, hosts with the same "
        "address, or a switch that has changed its uplink");
  known = moved;
}

}  // namespace ina::switchd
