#include "switchd/reports/dropped_frames.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/logging/record.h"
#include "switchd/jobs/wait_reasons.h"
#include "wire/text.h"

namespace ina::switchd {

namespace answer = control::answer;

namespace {

std::string text_of(const wire::Address& address) {
  return fmt::format("{}.{}.{}.{}:{}", address.ip >> 24, address.ip >> 16 & 255,
                     address.ip >> 8 & 255, address.ip & 255, address.udp_port);
}

std::string text_of(const wire::MacAddress& mac) {
  std::string text;
  for (const uint8_t byte : mac) text += fmt::format("{}{:02x}", text.empty() ? "" : ":", byte);
  return text;
}

/// The worker that is a member of the domain, or the fallback server; nothing: there is none.
std::optional<Rank> rank_of(const Job& job, const Domain& domain, Rank member) {
  if (member == kFallbackRank) return kServerPlace;
  const RankSet ranks = job.ranks_of(domain.index, WorkerSet::of(member));
  if (ranks.empty()) return std::nullopt;
  return *ranks.begin();
}

}  // namespace

/// The lanes' counts of the workers' frames, by rank, and last of the fallback server's.
std::vector<DroppedFrames::Arrivals> DroppedFrames::arrivals_of(Job& job) const {
  std::vector<Arrivals> arrivals(job.workers + 1);
  const auto has_address = [](const Job::Worker& member) { return member.way.frames() != nullptr; };
  if (!has_address(job.fallback) && std::ranges::none_of(job.members, has_address)) return arrivals;
  for (const Domain& domain : job.workers_domains())
    for (const auto& command : lanes_.run(command::FindArrivals{domain.index})) {
      for (const Rank rank : job.ranks_of(domain.index, command.heard))
        arrivals[value(rank)].heard = true;
      for (const PortDrops& drops : command.dropped) {
        const auto rank = rank_of(job, domain, drops.frames.rank);
        if (!rank || !has_address(job.at(*rank))) continue;
        // A member's number alone does not say in which domain it is.
        if (job.is_wide() && job.at(*rank).way.frames()->address.ip != drops.frames.source.ip)
          continue;
        Arrivals& of = *rank == kServerPlace ? arrivals.back() : arrivals[value(*rank)];
        of.dropped += drops.frames.count;
        if (of.most && of.most->frames.count >= drops.frames.count) continue;
        of.most = drops;
      }
    }
  return arrivals;
}

/// Why the frames of a worker or the fallback server are dropped, as a text.
std::string DroppedFrames::cause(Job& job, Rank rank, const PortDrops& drops) const {
  const FrameWay& way = *job.at(rank).way.frames();
  const io::DroppedFrames& frames = drops.frames;
  const auto& port = config_.frame_ports[drops.port];
  const auto& joined_port = config_.frame_ports[way.port];
  const wire::Address& joined = way.address;
  const wire::Address& from = frames.source;
  if (frames.reason == DropReason::kUnknownSource && drops.port != way.port)
    return fmt::format("they come in by port {}, but it joined for port {}: say port={} in its URL",
                       port.name, joined_port.name, port.name);
  if (frames.reason == DropReason::kUnknownSource && from.ip != joined.ip)
    return fmt::format(
        "they come from {}, but it joined as {}: say ip= in its URL if its host has several "
        "addresses; addresses must not be translated between it and the switch",
        text_of(from), text_of(joined));
  if (frames.reason == DropReason::kUnknownSource && from.udp_port != joined.udp_port)
    return fmt::format(
        "they come from {}, but it joined as {}: UDP ports must not be translated between it and "
        "the switch",
        text_of(from), text_of(joined));
  if (frames.reason == DropReason::kUnknownSource)
    return fmt::format(
        "they come from MAC address {}, but it joined with {}: no router may be "
        "between it and the switch",
        text_of(from.mac), text_of(joined.mac));
  if (frames.reason == DropReason::kBadTag)
    return "something between it and the switch changes frames or addresses";
  if (frames.reason == DropReason::kNotIna)
    return fmt::format("they are sent to {}, and this port takes them at {}",
                       text_of(frames.destination), text_of(port.address));
  return std::string(describe(frames.reason));
}

std::string DroppedFrames::text(Job& job, Rank rank, const Arrivals& arrivals) const {
  const PortDrops& most = *arrivals.most;
  return fmt::format(
      "the switch dropped {} frames of {} on port {}: {}: {}", arrivals.dropped,
      rank == kServerPlace ? missing_text({}, true) : fmt::format("rank {}", value(rank)),
      config_.frame_ports[most.port].name, name(most.frames.reason), cause(job, rank, most));
}

std::vector<DroppedFrames::Unheard> DroppedFrames::unheard(Job& job) const {
  std::vector<Unheard> found;
  if (job.state != Job::State::kRunning) return found;
  const auto arrivals = arrivals_of(job);
  RankSet silent;
  for (uint32_t rank = 0; rank < job.workers; ++rank) {
    if (!job.members[rank].way.frames()) continue;
    const Rank who{static_cast<uint16_t>(rank)};
    if (arrivals[rank].most)
      found.push_back({who, arrivals[rank].most->frames.reason, arrivals[rank].dropped,
                       text(job, who, arrivals[rank])});
    else if (!arrivals[rank].heard)
      silent.insert(who);
  }
  // A fallback server may have nothing to say.
  if (arrivals.back().most)
    found.push_back({kServerPlace, arrivals.back().most->frames.reason, arrivals.back().dropped,
                     text(job, kServerPlace, arrivals.back())});
  for (const uint32_t rank : ranks_of(silent)) {
    const auto& port = config_.frame_ports[job.members[rank].way.frames()->port];
    found.push_back(
        {Rank{static_cast<uint16_t>(rank)}, std::nullopt, 0,
         fmt::format(
             "no frame of rank {} has come in by port {}: if it has sent some, a firewall may drop "
             "UDP datagrams to {}, or an MTU on the way is below {}",
             rank, port.name, text_of(port.address),
             config_.aggregator.slot_bytes + wire::kFrameHeaderBytes - wire::kEthernetBytes)});
  }
  return found;
}

/// Tells a worker or the fallback server that its frames do not arrive, each time that more have
/// been dropped meanwhile.
void DroppedFrames::tell(Job& job, Rank rank, const Arrivals& arrivals) const {
  Job::Worker& member = job.at(rank);
  if (arrivals.dropped == member.drops_told || !arrivals.most || !member.client) return;
  member.drops_told = arrivals.dropped;
  const std::string said = text(job, rank, arrivals);
  logging::warn("worker not heard", job.owner())("job", job.name)("id", value(job.id))(
      "rank", value(rank))("text", said);
  const PortDrops& most = *arrivals.most;
  connections_.send(*member.client, answer::Dropped{.reason = std::string(name(most.frames.reason)),
                                                    .count = arrivals.dropped,
                                                    .port = config_.frame_ports[most.port].name,
                                                    .text = said});
}

void DroppedFrames::tell(const JobTable& jobs, Nanos now) const {
  for (Job& job : jobs) {
    if (job.state != Job::State::kRunning || !job.looks.due(now)) continue;
    const auto arrivals = arrivals_of(job);
    for (uint32_t rank = 0; rank < job.workers; ++rank)
      tell(job, Rank{static_cast<uint16_t>(rank)}, arrivals[rank]);
    tell(job, kServerPlace, arrivals.back());
  }
}

}  // namespace ina::switchd
