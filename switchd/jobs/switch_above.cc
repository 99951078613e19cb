#include "switchd/jobs/switch_above.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/logging/record.h"
#include "control/client.h"
#include "wire/text.h"

namespace ina::switchd {

namespace answer = control::answer;
namespace request = control::request;

namespace {

/// The Ethernet port that leads there, in config order; the configuration has been checked.
uint32_t port_of(const ConductorConfig& config) {
  const auto named =
      std::ranges::find(config.frame_ports, config.uplink.port, &FramePortInfo::name);
  return static_cast<uint32_t>(named - config.frame_ports.begin());
}

}  // namespace

request::Member SwitchAbove::identity(const Job& job) const {
  request::Member member;
  member.version = control::kControlVersion;
  member.library = INA_PROJECT_VERSION;
  member.job = job.name;
  member.world_size = job.workers;
  member.owner = job.owner();
  member.reach.transport = control::kTransportFrame;
  member.reach.frame = request::FrameEnd{.address = config_.frame_ports[port_of(config_)].address,
                                          .port = config_.uplink.port_above};
  return member;
}

void SwitchAbove::tell(Job& job) {
  const RankSet here = job.members_present() & job.attached();
  if (here.empty()) return;
  if (!job.above) {
    job.above = std::make_unique<Above>(std::make_unique<Uplink>(config_.uplink, rings_));
    job.above->told = here;
    job.above->line->open(
        request::Join{.member = identity(job),
                      .window_bytes = uint64_t{job.grant.window} * job.geometry.slot_bytes,
                      .settings = job.settings,
                      .ranks = runs_of(here)},
        config_.control.join_timeout_ns);
    return;
  }
  if (job.above->told == here) return;
  job.above->told = here;
  job.above->line->say(request::Ranks{runs_of(here)});
}

void SwitchAbove::on_events() {
  for (Job& job : jobs_)
    // What it says may end the job, and with it the session.
    for (const JobId id = job.id; jobs_.find(id) && job.above;) {
      const auto event = job.above->line->next();
      if (!event) break;
      if (const auto* lost = std::get_if<Uplink::Lost>(&*event))
        on_lost(job, lost->text);
      else
        handle(job, std::get<answer::Message>(*event));
    }
}

void SwitchAbove::handle(Job& job, const answer::Message& message) {
  if (const auto* joined = std::get_if<answer::Joined>(&message)) return on_joined(job, *joined);
  if (std::holds_alternative<answer::Ready>(message)) return on_ready(job);
  if (const auto* waiting = std::get_if<answer::Waiting>(&message)) {
    job.above->waiting = *waiting;
    if (job.state != Job::State::kJoining) return;
    job.for_each_client([&](Client& client) { connections_.send(client, *waiting); });
  } else if (const auto* left = std::get_if<answer::PeerLeft>(&message)) {
    departures_.tell_here(job, *left);
  } else if (std::holds_alternative<answer::Left>(message)) {
    job.above.reset();
    departures_.end_well(job);
  } else if (std::holds_alternative<answer::Abort>(message) ||
             std::holds_alternative<answer::Refused>(message)) {
    const Error error = control::error_of(message);
    end(job, error.status, error.text);
  }
}

/// There is a place; and the two switches count fragments alike, or cannot go on.
void SwitchAbove::on_joined(Job& job, const answer::Joined& joined) {
  const answer::Place& place = joined.place;
  const io::shm::Geometry& here = job.geometry;
  if (place.window != job.grant.window || place.slot_bytes != here.slot_bytes ||
      place.lanes != here.lanes || joined.rules.home != Home::kTree || !place.address)
    return end(job, INA_ERR_INVALID,
               fmt::format("the switch above ({}) has a window of {} fragments of {} bytes in {} "
                           "lanes, this one of {} of {} in {}: jobs.window_bytes, "
                           "aggregator.slot_bytes and switch.lcores must be the same at both",
                           config_.uplink.url, place.window, place.slot_bytes, place.lanes,
                           job.grant.window, here.slot_bytes, here.lanes));
  job.above->joined = joined;
  job.above->why_away.clear();
  job.above->line->say(request::Attach{});
  // Others may have come meanwhile.
  job.above->told = {};
  tell(job);
}

/// All workers of the job are at some switch of the tree.
void SwitchAbove::on_ready(Job& job) {
  if (job.state != Job::State::kJoining) return;
  for (Job::Worker& worker : job.members)
    if (!worker.client && !worker.elsewhere) worker.elsewhere = worker.attached = true;
  job.above->state = Above::State::kRunning;
  gathering_.begin_spread(job, port_of(config_));
}

void SwitchAbove::on_lost(Job& job, const std::string& text) {
  job.above->why_away = text;
  end(job, INA_ERR_SWITCH_LOST,
      fmt::format("the switch above ({}) is lost to job '{}': {}", config_.uplink.url, job.name,
                  text));
}

/// It ended the job, or cannot go on with it; nothing more is said there.
void SwitchAbove::end(Job& job, ina_status status, const std::string& text) {
  job.above.reset();
  ending_.end(job, status, text);
}

}  // namespace ina::switchd
