#include "membership/member_groups.h"

#include <utility>

namespace ina::membership {

Result<std::optional<GroupOffer>> MemberGroups::ask(const std::vector<uint32_t>& ranks,
                                                    uint64_t tag, Nanos timeout_ns) {
  auto state = callers_.lock();
  const auto inserted = asked_.try_emplace(tag, Asked{.create = {ranks, tag}});
  if (!inserted.second)
    return fail(INA_ERR_INVALID,
                "another thread makes a group with tag " + std::to_string(tag) + " just now");
  Asked& own = inserted.first->second;
  // Otherwise it is sent once the switch is back.
  own.sent = !presence_.is_away();
  if (own.sent) connection_.send(channel_, own.create);
  callers_.await(state, timeout_ns, [&own] { return own.offer.has_value(); });
  auto offer = std::move(own.offer);
  asked_.erase(inserted.first);
  return offer;
}

void MemberGroups::on_answer(const answer::CreateGroup& created, uint64_t losses) {
  GroupOffer offer{{created.status, created.text}, created.group, losses};
  callers_.tell([&] {
    if (const auto own = asked_.find(created.tag); own != asked_.end())
      own->second.offer.emplace(std::move(offer));
  });
}

void MemberGroups::go_away() {
  for (auto& [tag, asked] : asked_) asked.sent = false;
}

void MemberGroups::ask_again() {
  std::vector<request::CreateGroup> again;
  {
    const auto state = callers_.lock();
    for (auto& [tag, asked] : asked_) {
      if (asked.sent || asked.offer) continue;
      asked.sent = true;
      again.push_back(asked.create);
    }
  }
  for (const request::CreateGroup& create : again) connection_.send(channel_, create);
}

}  // namespace ina::membership
