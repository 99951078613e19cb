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

template <class Message>
AdminAnswer Administration::administer(const Message& asked, const std::string& who) {
  AdminAnswer answer = Json();
  try {
    answer = carry_out(asked, who);
  } catch (const std::exception& e) {
    answer = tl::unexpected(
        AdminError{AdminError::Code::kInternal, std::string("the request failed: ") + e.what()});
  }
  if (!answer)
    logging::warn("administrator refused", "administrators")("by", who)("text",
                                                                        answer.error().text);
  return answer;
}

template <class Message>
void Administration::administer(Client& client, const Message& asked) {
  if (const std::string text = status_answers_.unread_text(client); !text.empty())
    return connections_.refuse(client, INA_ERR_REFUSED, text);
  AdminAnswer answer = administer(asked, client.who());
  if (answer) return status_answers_.send_done(client, std::move(*answer));
  connections_.send(client, refusal_of(std::move(answer.error().text)));
}

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
        else if constexpr (is_carried_out<Message>())
          administer(client, asked);
        else
          connections_.refuse(client, INA_ERR_INVALID,
                              "'" + control::type_of(message) +
                                  "' is no request of an administrator: this is admin.socket or "
                                  "admin.listen");
      },
      message);
}

void Administration::reload(const std::string& who) {
  (void)administer(request::Reload{}, who);
}

admin::Answer Administration::answer(admin::Question question) try {
  switch (question) {
    case admin::Question::kStatus:
      return status_.make(true, maker_.draining());
    case admin::Question::kCounters:
      return status_.make(false, maker_.draining());
    case admin::Question::kSlots:
      return slot_map_.make();
  }
  return std::nullopt;
} catch (const std::exception& e) {
  logging::warn("no answer to another thread", "threads")("text", e.what());
  return std::nullopt;
}

AdminAnswer Administration::drain(bool on, const std::string& who) {
  if (on && !maker_.draining()) logging::info("drained: no new jobs")("by", who);
  if (!on && maker_.draining()) logging::info("drained no more")("by", who);
  maker_.set_draining(on);
  return draining();
}

AdminAnswer Administration::draining() const {
  Json left = Json::array();
  for (const Job& job : jobs_) left.push_back({{"name", job.name}, {"owner", job.owner()}});
  return Json{{"draining", maker_.draining()}, {"jobs", left}};
}

}  // namespace ina::switchd
