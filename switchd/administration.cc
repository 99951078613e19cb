#include "switchd/administration.h"

#include <exception>

#include "common/clock.h"
#include "common/logging/record.h"
#include "control/messages.h"

namespace ina::switchd {

using control::Json;

admin::Answer Administration::administer(const admin::Request& request, const std::string& who) {
  admin::Answer answer = Json();
  try {
    answer = carry_out(request, who);
  } catch (const std::exception& e) {
    answer = tl::unexpected(admin::Error{admin::Error::Code::kInternal,
                                         std::string("the request failed: ") + e.what()});
  }
  if (!answer)
    logging::warn("administrator refused", "administrators")("by", who)("text",
                                                                        answer.error().text);
  return answer;
}

admin::Answer Administration::carry_out(const admin::Request& request, const std::string& who) {
  return std::visit(
      control::Overloaded{
          [&](const admin::CreateJob& asked) { return admin_jobs_.create(asked, who); },
          [&](const admin::AbortJob& asked) { return admin_jobs_.abort(asked, who); },
          [&](const admin::KickWorker& asked) { return admin_jobs_.kick(asked, who); },
          [&](const admin::Drain&) { return drain(true, who); },
          [&](const admin::Undrain&) { return drain(false, who); },
          [&](const admin::GetDrain&) { return draining(); },
          [&](const admin::GetStatus&) -> admin::Answer {
            return status_.make(true, maker_.draining());
          },
          [&](const admin::GetCounters&) -> admin::Answer {
            return status_.make(false, maker_.draining());
          },
          [&](const admin::GetSlots&) -> admin::Answer { return slot_map_.make(); },
          [&](const admin::BeginTrace& asked) { return tracing_.begin(asked, who, now_ns()); },
          [&](const admin::GetTrace& asked) { return tracing_.get(asked, now_ns()); },
          [&](const admin::Reload& asked) { return reload_.carry_out(asked, who); },
          [&](const admin::GetPolicy&) { return reload_.policy(); },
          [&](const admin::SetPolicy& asked) { return reload_.set_policy(asked, who); }},
      request);
}

admin::Answer Administration::drain(bool on, const std::string& who) {
  if (on && !maker_.draining()) logging::info("drained: no new jobs")("by", who);
  if (!on && maker_.draining()) logging::info("drained no more")("by", who);
  maker_.set_draining(on);
  return draining();
}

admin::Answer Administration::draining() const {
  Json left = Json::array();
  for (const Job& job : jobs_) left.push_back({{"name", job.name}, {"owner", job.owner()}});
  return Json{{"draining", maker_.draining()}, {"jobs", left}};
}

}  // namespace ina::switchd
