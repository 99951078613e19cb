#include "switchd/jobs/member_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/logging/record.h"
#include "wire/text.h"

namespace ina::switchd {

using control::request::CreateGroup;

namespace {

/// Requests of one worker that may wait at a time.
constexpr size_t kMostWaiting = 64;

const CreateGroup* request_of(const Job& job, uint32_t rank, uint64_t tag) {
  const auto& asked = job.members[rank].creates;
  const auto found = std::ranges::find(asked, tag, &CreateGroup::tag);
  return found == asked.end() ? nullptr : &*found;
}

}  // namespace

std::string fault_of(const Job& job, uint32_t rank, const CreateGroup& create) {
  RankSet seen;
  for (const uint32_t member : create.ranks) {
    if (member >= job.workers) return fmt::format("there is no rank {}", member);
    const Rank named{static_cast<uint16_t>(member)};
    if (seen.contains(named)) return fmt::format("rank {} is named twice", member);
    seen.insert(named);
  }
  if (!seen.contains(Rank{static_cast<uint16_t>(rank)}))
    return fmt::format("rank {} asks for a group without itself", rank);
  if (request_of(job, rank, create.tag))
    return fmt::format("tag {} is that of a request under way", create.tag);
  if (job.members[rank].creates.size() >= kMostWaiting) return "too many requests are under way";
  return {};
}

std::string disagreement(const Job& job, uint32_t rank, const CreateGroup& create) {
  const auto has = [](const CreateGroup& group, uint32_t member) {
    return std::ranges::find(group.ranks, member) != group.ranks.end();
  };
  for (uint32_t member = 0; member < job.workers; ++member) {
    const CreateGroup* other = request_of(job, member, create.tag);
    if (!other || other->ranks == create.ranks) continue;
    if (!has(create, member) && !has(*other, rank)) continue;
    return fmt::format(
        "rank {} asks for the group of ranks {} with tag {}, rank {} for the group "
        "of ranks {}",
        rank, fmt::join(create.ranks, ", "), create.tag, member, fmt::join(other->ranks, ", "));
  }
  return {};
}

bool is_complete(const Job& job, const CreateGroup& create) {
  return std::ranges::all_of(create.ranks, [&](uint32_t member) {
    const CreateGroup* made = request_of(job, member, create.tag);
    return made && *made == create;
  });
}

void MemberGroups::on_create(Client& client, const CreateGroup& create) {
  if (!client.job || client.state != Client::State::kAttached) return;
  Job& job = *client.job;
  const uint32_t rank = value(client.rank);
  if (const std::string fault = fault_of(job, rank, create); !fault.empty())
    return connections_.refuse(client, INA_ERR_INVALID, "create_group: " + fault);
  take(job, rank, create);
}

void MemberGroups::on_peer_create(Job& job, const control::request::PeerCreate& said) {
  const CreateGroup create{.ranks = said.ranks, .tag = said.tag};
  if (said.rank < job.workers && fault_of(job, said.rank, create).empty())
    take(job, said.rank, create);
}

void MemberGroups::ask_above(const Job& job) {
  for (uint32_t rank = 0; rank < job.workers; ++rank)
    for (const CreateGroup& create : job.members[rank].creates)
      if (TreeGroups::go_up(job, create.ranks))
        job.above->say(control::request::PeerCreate{rank, create.ranks, create.tag});
}

/// A worker of this switch, or one below, asks.
void MemberGroups::take(Job& job, uint32_t rank, const CreateGroup& create) {
  job.members[rank].creates.push_back(create);
  // A group that cannot be made any more disagrees with none: other members may know so already.
  if (job.state == Job::State::kLeaving) refuse(job);
  if (!request_of(job, rank, create.tag)) return;
  if (const std::string sides = disagreement(job, rank, create); !sides.empty())
    return ending_.end_mismatched(job, sides);
  if (TreeGroups::go_up(job, create.ranks))
    return job.above->say(control::request::PeerCreate{rank, create.ranks, create.tag});
  if (is_complete(job, create)) complete_.push_back({job.id, create});
}

void MemberGroups::go_on() {
  if (complete_.empty()) return;
  const Complete next = std::move(complete_.front());
  complete_.pop_front();
  Job* job = jobs_.find(next.job);
  // Otherwise they have been told that the job has ended, or that a member has left it.
  if (!job || !is_complete(*job, next.create)) return;
  if (TreeGroups::go_down(*job, next.create.ranks))
    answer(*job, next.create, JobId{});  // the switch below makes it
  else
    answer(*job, next.create,
           maker_.make(*job, next.create.ranks, fmt::format("tag {}", next.create.tag)));
  offers_.offer();
}

/// To those members that have asked.
void MemberGroups::answer(Job& job, const CreateGroup& create, const Result<JobId>& group) {
  if (!group) logging::warn("no group", job.owner())("job", job.name)("text", group.error().text);
  RankSet below;
  for (uint32_t rank = 0; rank < create.ranks.size(); ++rank) {
    Job::Worker& member = job.members[create.ranks[rank]];
    if (member.elsewhere && std::erase(member.creates, create) != 0) {
      below.insert(Rank{static_cast<uint16_t>(create.ranks[rank])});
      continue;
    }
    if (std::erase(member.creates, create) == 0 || !member.client) continue;
    control::answer::CreateGroup said{.tag = create.tag};
    if (group) {
      said.group = maker_.place(*group, rank);
    } else {
      said.status = group.error().status;
      said.text = group.error().text;
    }
    connections_.send(*member.client, said);
  }
  if (below.empty()) return;
  control::answer::Grouped grouped =
      group ? tree_groups_.grouped(*group, create.ranks)
            : control::answer::Grouped{.status = group.error().status, .text = group.error().text};
  grouped.tag = create.tag;
  tree_groups_.tell_below(job, std::move(grouped), below);
}

void MemberGroups::refuse(Job& job) {
  const RankSet gone = job.leaving_or_gone();
  const auto has_gone = [&](uint32_t rank) {
    return gone.contains(Rank{static_cast<uint16_t>(rank)});
  };
  const std::string text =
      fmt::format("{} left job '{}' (ina_finalize), and cannot be in the group",
                  wire::ranks_text(gone), job.name);
  for (uint32_t rank = 0; rank < job.workers; ++rank) {
    const auto asked = job.members[rank].creates;
    for (const CreateGroup& create : asked)
      if (std::ranges::any_of(create.ranks, has_gone))
        answer(job, create, fail(INA_ERR_PEER_LOST, text));
  }
}

}  // namespace ina::switchd
