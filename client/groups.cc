// Context: groups of ranks. All workers of a job or group ask the switch to split it, which makes a
// job for each colour (membership/splits.h), or the members of a group ask for it
// (membership/member_groups.h).
// They join it as another channel of the session, and come back to it after their job. See
// docs/protocol.md, "Groups".
#include "client/context.h"
#include "common/clock.h"
#include "membership/control_text.h"

namespace ina::client {

Result<std::shared_ptr<Context>> Context::split(int32_t colour, int32_t key) {
  const auto one_at_a_time = splits_.one_at_a_time();
  const Nanos deadline = now_ns() + settings_.timeout_ns;
  auto answer = ask_to_split(colour, key);
  if (!answer) return tl::unexpected(answer.error());
  if (!answer->place) return std::shared_ptr<Context>();
  return enter_group(*answer, deadline);
}

/// A restart of the switch loses the requests and offers that it met, on all members or on none:
/// each asks again.
Result<std::shared_ptr<Context>> Context::create_group(const std::vector<uint32_t>& ranks,
                                                       uint64_t tag) {
  const Nanos deadline = now_ns() + settings_.timeout_ns;
  for (;;) {
    if (callers_.failed() != INA_OK) return callers_.failure();
    auto offer = member_groups_.ask(ranks, tag, deadline - now_ns());
    if (!offer) return tl::unexpected(offer.error());
    if (!*offer) return give_up_waiting("ina_create_group");
    if ((*offer)->error.status != INA_OK) return tl::unexpected((*offer)->error);
    auto group = enter_group(**offer, deadline);
    if (group || group.error().status != INA_ERR_SWITCH_LOST) return group;
  }
}

Result<std::shared_ptr<Context>> Context::enter_group(const membership::GroupOffer& offer,
                                                      Nanos deadline) {
  Settings settings = settings_;
  settings.job = offer.place->job;
  settings.rank = offer.place->rank;
  settings.world_size = offer.place->world_size;
  std::shared_ptr<Context> group(new Context(settings, session_, offer.place->job_id));
  if (auto joined = group->join_group(attachment_, offer.losses, deadline); !joined) {
    // The others would wait for it.
    session_->connection().send(group->id_, request::Abort{joined.error().text});
    group->close();
    return tl::unexpected(joined.error());
  }
  return group;
}

/// A request that times out ends the job: a group that only some workers have got would break the
/// job.
tl::unexpected<Error> Context::give_up_waiting(const char* function) {
  if (callers_.failed() == INA_OK) {
    std::string text = "waited " + membership::seconds(settings_.timeout_ns) +
                       " for all ranks to call " + function + "; " + explain();
    send_control(request::Abort{text});
    end(INA_ERR_TIMEOUT, text);
  }
  return callers_.failure();
}

Result<membership::GroupOffer> Context::ask_to_split(int32_t colour, int32_t key) {
  if (callers_.failed() != INA_OK) return callers_.failure();
  auto answer = splits_.ask(colour, key, settings_.timeout_ns);
  if (!answer) return give_up_waiting("ina_split");
  if (answer->error.status != INA_OK) return tl::unexpected(answer->error);
  return std::move(*answer);
}

/// Takes its place in the group, and waits for the others to do so. `parent`: of the context that
/// was split. `losses`: of the switch's answer.
Result<void> Context::join_group(const membership::Attachment& parent, uint64_t losses,
                                 Nanos deadline) {
  if (auto shared = member_.share(parent); !shared) return shared;
  if (!session_->add(shared_from_this(), losses))
    return fail(INA_ERR_SWITCH_LOST, "the switch was restarted while this group was made");
  member_.ask_to_join();
  callers_.await(deadline - now_ns(), [&] { return progress_.is_live(); });
  std::string missing = progress_.presence().others_missing();
  if (missing.empty()) missing = membership::kOtherRanks;
  if (callers_.failed() != INA_OK) return callers_.failure();
  if (progress_.is_live()) return {};
  return fail(INA_ERR_TIMEOUT, "rank " + std::to_string(settings_.rank) + " of group '" +
                                   settings_.job + "' waited " +
                                   membership::seconds(settings_.timeout_ns) + " for " + missing +
                                   " to join it; " + explain());
}

}  // namespace ina::client
