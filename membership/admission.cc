#include "membership/admission.h"

#include <algorithm>
#include <utility>

#include "control/client.h"

namespace ina::membership {

request::Member Admission::identity() const {
  request::Member member;
  member.job = settings_.job;
  member.rank = settings_.rank;
  member.world_size = settings_.world_size;
  if (channel_ == 0) {  // the session is known to the switch when it speaks of groups
    member.version = control::kControlVersion;
    member.library = INA_PROJECT_VERSION;
    if (!settings_.job_owner.empty()) member.owner = settings_.job_owner;
    member.ticket = settings_.ticket;
    if (member.ticket.empty() && control::is_remote(connection_.path()))
      member.token = settings_.token;
  }
  member.reach = attachment_.reach();
  if (const client::FrameTransport* const frames = attachment_.frames())
    member.reach.frame->multicast = frames->takes_groups();
  member.reach.parks = true;
  return member;
}

request::Rejoin Admission::rejoin(const client::Standing& standing,
                                  std::vector<uint64_t> held) const {
  return {.member = identity(),
          .job_id = job_id_,
          .job_key = job_key_,
          .low = standing.low.value,
          .next = standing.next.value,
          .results_end = standing.results_end.value,
          .held = std::move(held)};
}

client::EngineConfig Admission::engine_config(const answer::Joined& joined) const {
  const answer::Place& place = joined.place;
  client::EngineConfig config;
  config.rank = Rank{static_cast<uint16_t>(settings_.rank)};
  config.member = Rank{static_cast<uint16_t>(joined.member)};
  config.workers = settings_.world_size;
  config.results_stay = attachment_.frames() == nullptr;
  config.lossy_link = attachment_.frames() != nullptr;
  config.epoch = place.epoch;
  config.window = place.window;
  config.slot_bytes = place.slot_bytes;
  config.lanes = place.lanes;
  config.rules = joined.rules;
  if (joined.help) {
    config.in_switch = joined.help->in_switch;
    config.park_room = joined.help->park_room;
  }
  // More than fills the rows for payloads has left the caches before it is read, contributions and
  // results. A worker that is to run further ahead of slow ones says so by its window.
  if (place.shm && settings_.window_bytes == 0)
    config.most_in_flight = config.lanes * place.shm->tx_depth;
  // Contributions that find no slot meet in the workers' rows for payloads, maybe all in one's. In a
  // tree they stay in the switch.
  if (place.shm && !config.rules.fixed_slots() && !config.in_tree())
    config.first_window = std::max(1u, config.lanes * place.shm->side_rows / config.workers);
  return config;
}

std::string Admission::changed_text(const answer::Joined& joined,
                                    const client::EngineConfig& own) const {
  const answer::Place& place = joined.place;
  if (joined.rules.home != own.rules.home)
    return "the switch at " + settings_.url +
           " came back with another place for the fallback (fallback.home): " +
           std::string(name(joined.rules.home)) + " instead of " +
           std::string(name(own.rules.home));
  if (place.window == own.window && place.slot_bytes == own.slot_bytes &&
      place.lanes == own.lanes && place.epoch > own.epoch)
    return {};
  return "the switch at " + settings_.url +
         " came back with another window, slot size or number of lanes, or in an old epoch";
}

Result<void> Admission::enter(const answer::Joined& joined, control::Heard& heard) {
  if (auto checked = control::check(joined.place); !checked) return checked;
  const client::EngineConfig config = engine_config(joined);
  job_id_ = joined.place.job_id;
  job_key_ = joined.place.job_key;
  member_.begin(config);
  auto transport = attach(joined.place, heard);
  if (!transport) return tl::unexpected(transport.error());
  member_.connect(std::move(*transport));
  return {};
}

Result<std::unique_ptr<client::Transport>> Admission::attach(const answer::Place& place,
                                                             control::Heard& heard) {
  attachment_.leave_cores_to(place.lanes);
  auto made = attachment_.take(place, heard);
  if (!made) return tl::unexpected(made.error());
  if (*made) member_.register_memory(**made);
  if (connection_.send(channel_, request::Attach{}, Attachment::descriptors(made->get())))
    return std::unique_ptr<client::Transport>(std::move(*made));
  job_is_gone_ = true;
  return fail(INA_ERR_SWITCH_LOST, "the switch closed the connection");
}

}  // namespace ina::membership
