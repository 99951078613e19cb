#include "switchd/administration.h"

#include <exception>
#include <type_traits>
#include <utility>
#include <variant>

#include "common/clock.h"
#include "common/logging/record.h"
#include "control/messages.h"

namespace ina::switchd {

namespace request = control::request;
using control::Json;

namespace {

/// A text of many lines is cut where a message ends.
control::answer::Refused refusal_of(std::string text) {
  control::answer::Refused refused{INA_ERR_REFUSED, std::move(text)};
  while (control::to_text(refused).size() > control::kMaxMessageBytes)
    refused.text = refused.text.substr(0, refused.text.size() / 2) + "\n...";
  return refused;
}

}  // namespace

void Administration::on_message(Client& client, const request::Message& message) {
  // A request that has waited for longer than its sender is not carried out.
  if (client.connection.peer_has_closed()) return;
  client.state = Client::State::kJoined;
  client.since = now_ns();
  std::visit(
      [&]<class Message>(const Message& asked) {
        if constexpr (std::is_same_v<Message, request::Status>)
          status_answers_.on_status(client);
        else if constexpr (std::is_same_v<Message, request::Trace>)
          trace_answers_.on_trace(client, asked, client.since);
        else if constexpr (std::is_constructible_v<admin::Request, const Message&>)
          carry_out(client, asked);
        else
          connections_.refuse(client, INA_ERR_INVALID,
                              "'" + control::type_of(message) +
                                  "' is no request of an administrator: this is admin.socket or "
                                  "admin.listen");
      },
      message);
}

void Administration::carry_out(Client& client, const admin::Request& asked) {
  if (const std::string text = status_answers_.unread_text(client); !text.empty())
    return connections_.refuse(client, INA_ERR_REFUSED, text);
  admin::Answer answer = administer(asked, client.who());
  if (answer) return status_answers_.send_done(client, std::move(*answer));
  connections_.send(client, refusal_of(std::move(answer.error().text)));
}

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
