#include "switchd/jobs/switch_above.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "common/clock.h"
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
  member.job = job.name;
  member.world_size = job.workers;
  if (!job.is_group()) {
    member.version = control::kControlVersion;
    member.library = INA_PROJECT_VERSION;
    member.owner = job.owner();
  }
  member.reach.transport = control::kTransportFrame;
  member.reach.frame = request::FrameEnd{.address = config_.frame_ports[port_of(config_)].address,
                                         .port = config_.uplink.port_above};
  return member;
}

void SwitchAbove::tell(Job& job) {
  const RankSet here = job.members_present() & job.attached();
  // A group has a switch above if that one has made it.
  if (here.empty() || (job.is_group() && !job.above)) return;
  const bool is_new = !job.above || job.above->told.empty();
  if (!job.above)
    job.above = std::make_unique<Above>(std::make_shared<Uplink>(config_.uplink, rings_));
  if (is_new && job.above->joined.place.job_id == 0) {
    job.above->told = here;
    job.above->again =
        request::Join{.member = identity(job),
                      .window_bytes = uint64_t{job.grant.window} * job.geometry.slot_bytes,
                      .settings = job.settings,
                      .ranks = runs_of(here)};
    job.above->deadline = now_ns() + config_.control.join_timeout_ns;
    if (job.is_group()) return job.above->say(*job.above->again);
    return job.above->line->open(*job.above->again, config_.control.join_timeout_ns);
  }
  if (job.above->told == here) return;
  job.above->told = here;
  job.above->say(request::Ranks{runs_of(here)});
}

void SwitchAbove::on_events() {
  for (Job& job : jobs_) {
    if (job.is_group()) continue;
    // What it says may end the job, and with it the session.
    for (const JobId id = job.id; jobs_.find(id) && job.above && job.above->line;) {
      const auto event = job.above->line->next();
      if (!event) break;
      if (const auto* failed = std::get_if<Uplink::Failed>(&*event)) {
        job.above->why_away = failed->text;
        continue;
      }
      if (const auto* lost = std::get_if<Uplink::Lost>(&*event)) {
        on_lost(job, {lost->status, lost->text});
        continue;
      }
      const auto& said = std::get<control::Answer>(*event);
      if (Job* about = meant(job, said.channel)) handle(*about, said.message);
    }
  }
}

/// The job itself, or its group that the switch above means; nullptr: it has ended here.
Job* SwitchAbove::meant(Job& job, std::optional<uint32_t> channel) const {
  if (!channel) return &job;
  for (Job& group : jobs_)
    if (group.root == job.id && group.above && group.above->channel == channel) return &group;
  return nullptr;
}

void SwitchAbove::handle(Job& job, const answer::Message& message) {
  if (const auto* joined = std::get_if<answer::Joined>(&message)) return on_joined(job, *joined);
  if (std::holds_alternative<answer::Ready>(message)) return on_ready(job);
  if (const auto* waiting = std::get_if<answer::Waiting>(&message)) {
    job.above->waiting = *waiting;
    if (job.state != Job::State::kJoining) return;
    job.for_each_client([&](Client& client) { connections_.send(client, *waiting); });
  } else if (const auto* grouped = std::get_if<answer::Grouped>(&message)) {
    tree_groups_.on_grouped(job, *grouped);
  } else if (const auto* left = std::get_if<answer::PeerLeft>(&message)) {
    departures_.tell_here(job, nullptr, *left);
  } else if (answer::is_no_room(message)) {
    on_lost(job, {INA_ERR_SWITCH_LOST, control::error_of(message).text});
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
    // That one's workers hear it, too.
    return ending_.end(
        job, INA_ERR_INVALID,
        fmt::format("the switch above ({}) has a window of {} fragments of {} bytes in {} "
                    "lanes, this one of {} of {} in {}: jobs.window_bytes, straggler.help and "
                    "its run_ahead, aggregator.slot_bytes and switch.lcores must be the same at "
                    "both",
                    config_.uplink.url, place.window, place.slot_bytes, place.lanes,
                    job.grant.window, here.slot_bytes, here.lanes));
  job.above->joined = joined;
  job.above->why_away.clear();
  job.above->say(request::Attach{});
  if (job.state != Job::State::kJoining) return;
  // Others may have come meanwhile.
  job.above->told = {};
  tell(job);
}

/// All workers of the job are at some switch of the tree, or all of these are back.
void SwitchAbove::on_ready(Job& job) {
  const bool begins = job.state == Job::State::kJoining;
  job.above->state = Above::State::kRunning;
  job.above->again.reset();
  if (job.state == Job::State::kRejoining) return gathering_.go_on(job, port_of(config_));
  if (!begins) {
    go_on(job);
    return ask_again(job);
  }
  for (Job::Worker& worker : job.members)
    if (!worker.client && !worker.elsewhere) worker.elsewhere = worker.attached = true;
  gathering_.begin_spread(job, port_of(config_));
}

/// The switch above is back, and this one went on meanwhile.
void SwitchAbove::go_on(Job& job) {
  lane_jobs_.detach_above(job);
  if (auto attached = lane_jobs_.attach_above(job, port_of(config_)); !attached)
    return end(job, attached.error().status, attached.error().text);
  lane_jobs_.set_parent_epoch(job, job.above->joined.place.epoch);
  records_.save(job);
  logging::info("switch above is back", job.owner())("job", job.name)("id", value(job.id));
}

/// What may have been lost with the connection. Groups come back after their job.
void SwitchAbove::ask_again(Job& job) {
  Splits::ask_above(job);
  MemberGroups::ask_above(job);
  if (job.above->has_left) job.above->say(request::Leave{});
  if (job.is_group()) return;
  for (Job& group : jobs_) {
    if (group.root != job.id || !group.above) continue;
    group.above->line = job.above->line;
    if (group.above->state == Above::State::kAway && group.above->again)
      group.above->say(*group.above->again);
  }
}

void SwitchAbove::on_lost(Job& job, const Error& error) {
  const std::string& text = error.text;
  for (Job& group : jobs_)
    if (group.root == job.id && group.above && group.above->state == Above::State::kRunning)
      go_away(group, text);
  Above& above = *job.above;
  const Nanos now = now_ns();
  if (above.state == Above::State::kRunning) {
    logging::warn("switch above lost", job.owner())("job", job.name)("id", value(job.id))("text",
                                                                                          text);
    return go_away(job, text);
  }
  above.why_away = text;
  if (error.status == INA_ERR_REFUSED) return end(job, error.status, text);
  if (now < above.deadline) return above.line->open(*above.again, above.deadline - now);
  end(job, INA_ERR_SWITCH_LOST,
      fmt::format(
          "the switch above ({}) is lost to job '{}', and did not come back within {} s: {}",
          config_.uplink.url, job.name,
          static_cast<double>(above.state == Above::State::kJoining
                                  ? config_.control.join_timeout_ns
                                  : config_.control.rejoin_timeout_ns) *
              1e-9,
          text));
}

/// It is asked for the place again; a group asks when its job has that back.
void SwitchAbove::go_away(Job& job, const std::string& text) {
  Above& above = *job.above;
  above.why_away = text;
  above.state = Above::State::kAway;
  above.deadline = now_ns() + config_.control.rejoin_timeout_ns;
  // Nothing from there is taken after this, so the report stays true.
  lane_jobs_.set_parent_epoch(job, 0);
  rejoin(job, lane_jobs_.held(job), lane_jobs_.results_end(job));
}

void SwitchAbove::come_back(Job& job) {
  Above& above = *job.above;
  if (above.line) return;  // it has been asked
  if (job.is_group()) {
    const Job* const root = jobs_.find(job.root);
    if (!root || !root->above) return;
    above.line = root->above->line;
  } else {
    above.line = std::make_shared<Uplink>(config_.uplink, rings_);
  }
  above.deadline = now_ns() + config_.control.rejoin_timeout_ns;
  std::set<Seq> held;
  Seq end;
  job.for_each_place([&](Rank, const Job::Worker& worker) {
    held.insert(worker.held.begin(), worker.held.end());
    end = std::max(end, worker.results_end);
  });
  rejoin(job, {held.begin(), held.end()}, end);
}

/// Asks for the place that the job had. `held`: the results that are here, in their order; `end`:
/// of all that have been seen.
void SwitchAbove::rejoin(Job& job, const std::vector<Seq>& held, Seq end) {
  Above& above = *job.above;
  request::Rejoin message{.member = identity(job),
                          .job_id = above.joined.place.job_id,
                          .job_key = above.joined.place.job_key,
                          .low = 0,
                          .next = end.value,
                          .results_end = end.value};
  for (const Seq seq : held) control::add_to_runs(message.held, seq.value);
  RankSet here;
  job.for_each_place([&](Rank place, const Job::Worker&) {
    if (const Job::Below* const below = job.below_at(place))
      here |= below->ranks;
    else
      here.insert(place);
  });
  message.ranks = runs_of(here);
  above.again = std::move(message);
  if (!job.is_group()) return above.line->open(*above.again, above.deadline - now_ns());
  const Job* const root = jobs_.find(job.root);
  if (root && root->above && root->above->state == Above::State::kRunning) above.say(*above.again);
}

/// It ended the job, or cannot go on with it; nothing more is said there.
void SwitchAbove::end(Job& job, ina_status status, const std::string& text) {
  if (!job.is_group())
    for (Job& group : jobs_)
      if (group.root == job.id && group.above) end(group, status, text);
  job.above.reset();
  ending_.end(job, status, text);
}

}  // namespace ina::switchd
