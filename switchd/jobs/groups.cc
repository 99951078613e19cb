#include "switchd/jobs/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "switchd/jobs/joining.h"

namespace ina::switchd {

namespace request = control::request;

/// The group of that id, if it is one of the worker's job; nullptr: there is none.
Job* Groups::find(const Client& line, uint32_t channel) const {
  Job* const group = jobs_.find(JobId{channel});
  return group && group->is_group() && group->root == line.joined ? group : nullptr;
}

void Groups::on_join(Client& line, uint32_t channel, const request::Join& join) {
  Client& place = places_.make(line, channel);
  Job* const group = find(line, channel);
  if (const Error* const why = ending_.why_ended(JobId{channel}, line.joined))
    return connections_.refuse(place, *why);
  if (!group || place.job)
    return connections_.refuse(
        place, INA_ERR_REFUSED,
        fmt::format("there is no group {} that this worker may join: it has ended, or is "
                    "another job's",
                    channel));
  const auto own = std::ranges::find(group->root_ranks, uint32_t{value(line.rank)});
  const auto rank = static_cast<size_t>(own - group->root_ranks.begin());
  if (own == group->root_ranks.end() || group->state != Job::State::kJoining ||
      group->members[rank].client)
    return connections_.refuse(place, INA_ERR_REFUSED,
                               fmt::format("group '{}' has no place for rank {} of the job",
                                           group->name, value(line.rank)));
  auto way = ports_.choose(place.peer, join.member.reach);
  if (way && group->spread) {
    if (const auto number = placement_.number_for(*group); number)
      group->members[rank].number = *number;
    else
      way = tl::unexpected(number.error());
  }
  const Result<void> taken =
      way ? placement_.take(place, *group, Rank{static_cast<uint16_t>(rank)}, std::move(*way))
          : tl::unexpected(way.error());
  if (taken) return;
  connections_.refuse(place, taken.error());
  ending_.end(
      *group, taken.error().status,
      fmt::format("rank {} has no place in group '{}': {}", rank, group->name, taken.error().text));
}

void Groups::on_abort(const Client& line, uint32_t channel, const request::Abort& abort) {
  Job* const group = find(line, channel);
  if (!group || group->state != Job::State::kJoining) return;
  if (line.role == Client::Role::kSwitch)
    return ending_.end(*group, abort.status.value_or(INA_ERR_ABORTED), abort.text.substr(0, 1024));
  const auto own = std::ranges::find(group->root_ranks, uint32_t{value(line.rank)});
  if (own == group->root_ranks.end()) return;
  ending_.end(*group, INA_ERR_ABORTED,
              fmt::format("rank {} of group '{}' gave up: {}", own - group->root_ranks.begin(),
                          group->name, abort.text.substr(0, 1024)));
}

void Groups::on_rejoin(Client& line, uint32_t channel, const request::Rejoin& message) {
  Client& place = places_.make(line, channel);
  if (place.job)
    return connections_.refuse(place, INA_ERR_INVALID, "this worker is in the group already");
  Job* const group = find(line, channel);
  const int64_t rank = message.member.rank;
  if (!group || rank < 0 || rank >= group->workers ||
      group->root_ranks[static_cast<size_t>(rank)] != value(line.rank))
    return connections_.refuse(
        place, INA_ERR_SWITCH_LOST,
        fmt::format("the switch was restarted and does not know group {} of this worker "
                    "any more, or the group has ended",
                    channel));
  rejoin_.come_back(place, *group, message);
}

}  // namespace ina::switchd
