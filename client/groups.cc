// Context: groups of ranks. All workers of a job or group ask the switch to split it, which makes a
// job for each colour. Those of a colour join it as another channel of the session. See
// docs/protocol.md, "Groups".
#include <algorithm>

#include "client/context.h"
#include "client/control_text.h"
#include "common/clock.h"

namespace ina::client {

Result<std::shared_ptr<Context>> Context::split(int32_t colour, int32_t key) {
  const auto one_at_a_time = splits_.one_at_a_time();
  const Nanos deadline = now_ns() + settings_.timeout_ns;
  auto answer = ask_to_split(colour, key);
  if (!answer) return tl::unexpected(answer.error());
  if (answer->job_id == 0) return std::shared_ptr<Context>();
  Settings settings = settings_;
  settings.job = answer->name;
  settings.rank = answer->rank;
  settings.world_size = answer->world_size;
  std::shared_ptr<Context> group(new Context(settings, session_, answer->job_id));
  if (auto joined = group->join_group(link_.frames(), answer->losses, deadline); !joined) {
    // The others would wait for it.
    session_->send(group->id_, request::Abort{joined.error().text});
    group->close();
    return tl::unexpected(joined.error());
  }
  return group;
}

/// What some have got and others have not would break the job, so one whose time has passed ends
/// it.
Result<Splits::Answer> Context::ask_to_split(int32_t colour, int32_t key) {
  if (callers_.failed() != INA_OK) return callers_.failure();
  auto answer = splits_.ask(colour, key, settings_.timeout_ns);
  if (!answer && callers_.failed() == INA_OK) {
    std::string text = "waited " + seconds(settings_.timeout_ns) +
                       " for all ranks to call ina_split; " + explain();
    send_control(request::Abort{text});
    end(INA_ERR_TIMEOUT, text);
  }
  if (!answer) return callers_.failure();
  if (answer->error.status != INA_OK) return tl::unexpected(answer->error);
  return std::move(*answer);
}

/// Takes its place in the group, and waits for the others to do so. `frames`: of the context that
/// was split, if they are what its transport carries. `losses`: of the switch's answer.
Result<void> Context::join_group(FrameTransport* frames, uint64_t losses, Nanos deadline) {
  if (frames) {
    auto shared = frames->share();
    if (!shared) return tl::unexpected(shared.error());
    link_.open(std::move(*shared));
  }
  if (!session_->add(shared_from_this(), losses))
    return fail(INA_ERR_SWITCH_LOST, "the switch was restarted while this group was made");
  session_->send(id_, request::Join{.member = admission_.member()});
  std::string missing;
  {
    auto state = callers_.lock();
    callers_.await(state, deadline - now_ns(), [&] { return progress_.is_live(); });
    missing = others_missing_.empty() ? "the other ranks" : others_missing_;
  }
  if (callers_.failed() != INA_OK) return callers_.failure();
  if (progress_.is_live()) return {};
  return fail(INA_ERR_TIMEOUT, "rank " + std::to_string(settings_.rank) + " of group '" +
                                   settings_.job + "' waited " + seconds(settings_.timeout_ns) +
                                   " for " + missing + " to join it");
}

}  // namespace ina::client
