#include "client/admission.h"

#include <algorithm>
#include <utility>

#include "control/client.h"
#include "scheduler/policies.h"
#include "transport/shm_join.h"

namespace ina::client {

request::Member Admission::member() const {
  request::Member member;
  member.job = settings_.job;
  member.rank = settings_.rank;
  member.world_size = settings_.world_size;
  if (channel_ == 0) {  // the session is known to the switch when it speaks of groups
    member.version = control::kControlVersion;
    member.library = ina_version();
    if (!settings_.job_owner.empty()) member.owner = settings_.job_owner;
    member.ticket = settings_.ticket;
    if (member.ticket.empty() && control::is_remote(session_.path()))
      member.token = settings_.token;
  }
  if (const FrameTransport* const frames = link_.frames()) {
    member.reach = reach_of(*frames, session_.frame_place());
    member.reach.frame->multicast = frames->takes_groups();
  }
  member.reach.parks = true;
  return member;
}

request::Rejoin Admission::rejoin(const Standing& standing) const {
  return {.member = member(),
          .job_id = job_id_,
          .job_key = job_key_,
          .low = standing.low.value,
          .next = standing.next.value,
          .results_end = standing.results_end.value};
}

EngineConfig Admission::rules(const answer::Joined& joined) const {
  const answer::Place& place = joined.place;
  const answer::Rules& rules = joined.rules;
  EngineConfig config;
  config.rank = Rank{static_cast<uint8_t>(settings_.rank)};
  config.workers = settings_.world_size;
  config.results_stay = link_.frames() == nullptr;
  config.lossy_link = link_.frames() != nullptr;
  config.epoch = place.epoch;
  config.window = place.window;
  config.slot_bytes = place.slot_bytes;
  config.lanes = place.lanes;
  const auto policy = value_in(scheduler::kPolicyNames, rules.policy);
  config.fixed_slots = policy && !scheduler::traits(*policy).hashed;
  config.home = value_in(kHomeNames, rules.home).value_or(Home::kSpill);
  config.priority_max = rules.priority_max;
  config.congestion_window = rules.ecn;
  config.aggregator_window = rules.aggregator_window;
  config.rto_min_ns = rules.rto_min_us * 1000;
  config.rto_max_ns = rules.rto_max_us * 1000;
  if (rules.help) {
    config.in_switch = rules.help->in_switch;
    config.park_room = rules.help->park_room;
  }
  // More than fills the rows for payloads has left the caches before it is read, contributions and
  // results. A worker that is to run further ahead of slow ones says so by its window.
  if (place.shm && settings_.window_bytes == 0)
    config.most_in_flight = config.lanes * place.shm->tx_depth;
  // Contributions that find no slot meet in the workers' rows for payloads, maybe all in one's.
  if (place.shm && !config.fixed_slots)
    config.first_window = std::max(1u, config.lanes * place.shm->side_rows / config.workers);
  return config;
}

std::string Admission::changed_text(const answer::Joined& joined) const {
  const answer::Place& place = joined.place;
  const EngineConfig& config = link_.engine().config();
  if (rules(joined).home != config.home)
    return "the switch at " + settings_.url +
           " came back with another place for the fallback (fallback.home): " + joined.rules.home +
           " instead of " + std::string(name(config.home));
  if (place.window == config.window && place.slot_bytes == config.slot_bytes &&
      place.lanes == config.lanes && place.epoch > config.epoch)
    return {};
  return "the switch at " + settings_.url +
         " came back with another window, slot size or number of lanes, or in an old epoch";
}

Result<void> Admission::enter(const answer::Joined& joined, control::Heard& heard) {
  if (auto checked = control::check(joined.place); !checked) return checked;
  const EngineConfig config = rules(joined);
  job_id_ = joined.place.job_id;
  job_key_ = joined.place.job_key;
  link_.make_engine(config);
  auto transport = attach(joined.place, heard);
  if (!transport) return tl::unexpected(transport.error());
  link_.connect(std::move(*transport));
  return {};
}

Result<std::unique_ptr<Transport>> Admission::attach(const answer::Place& place,
                                                     control::Heard& heard) {
  if (!link_.frames()) return attach_shm(place, heard);
  if (auto attached = attach_frames(place); !attached) return tl::unexpected(attached.error());
  return std::unique_ptr<Transport>();
}

/// Makes the transport that `place`, of `heard`, describes, and tells the switch.
Result<std::unique_ptr<Transport>> Admission::attach_shm(const answer::Place& place,
                                                         control::Heard& heard) {
  link_.copier().leave_cores_to(place.lanes);
  auto transport = join_shm(place, heard, link_.copier());
  if (!transport) return tl::unexpected(transport.error());
  memory_.register_again(**transport);
  if (!session_.send(channel_, request::Attach{}, {(*transport)->region_fd()}))
    return switch_closed();
  return std::unique_ptr<Transport>(std::move(*transport));
}

/// Attaches with frames, which are there already, and tells the switch.
Result<void> Admission::attach_frames(const answer::Place& place) {
  FrameTransport& frames = *link_.frames();
  if (place.group)
    if (auto done = frames.join_group(*place.group); !done) return done;
  if (auto bound = bind_frames(place, settings_.url, frames); !bound) return bound;
  if (session_.send(channel_, request::Attach{})) return {};
  return switch_closed();
}

tl::unexpected<Error> Admission::switch_closed() {
  job_is_gone_ = true;
  return fail(INA_ERR_SWITCH_LOST, "the switch closed the connection");
}

}  // namespace ina::client
