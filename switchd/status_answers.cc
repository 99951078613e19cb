#include "switchd/status_answers.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace ina::switchd {

namespace answer = control::answer;
using control::Json;

void StatusAnswers::on_status(Client& client) {
  if (const std::string text = unread_text(client); !text.empty())
    return connections_.refuse(client, INA_ERR_REFUSED, text);
  send<answer::Status>(client, status_for(client));
}

template <class Message>
void StatusAnswers::send(Client& client, Json content) {
  if (client.peer.remote) return connections_.send(client, Message{std::move(content)});
  const std::string text = content.dump(-1, ' ', false, Json::error_handler_t::replace);
  const Fd file(::memfd_create("ina-answer", MFD_CLOEXEC));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return connections_.refuse(client, INA_ERR_NO_MEMORY,
                               fmt::format("cannot make a memory file for the {}", Message::kType));
  client.tells_status = true;
  connections_.send(client, Message{}, {file.get()});
}
template void StatusAnswers::send<answer::Status>(Client& client, Json content);
template void StatusAnswers::send<answer::Trace>(Client& client, Json content);

/// On another host the names of other tenants' jobs are none of its business.
Json StatusAnswers::status_for(const Client& client) {
  Json status = report_.make(true, maker_.draining());
  if (!client.peer.remote) return status;
  Json own = Json::array();
  for (Json& job : status["jobs"])
    if (client.ticket ? job["id"] == value(*client.ticket) ||
                            job.value("group_of", 0u) == value(*client.ticket)
                      : job.value("tenant", "") == client.tenant)
      own.push_back(std::move(job));
  status["jobs"] = std::move(own);
  Json tenants = Json::array();
  for (Json& tenant : status["tenants"])
    if (!client.ticket && tenant["name"] == client.tenant) tenants.push_back(std::move(tenant));
  status["tenants"] = std::move(tenants);
  return status;
}

std::string StatusAnswers::unread_text(const Client& client) const {
  constexpr uint32_t kMostUnread = 16;
  if (client.peer.remote) return {};
  uint32_t unread = 0;
  for (const auto& [fd, other] : connections_.all()) {
    if (!other->tells_status || other->peer.uid != client.peer.uid) continue;
    other->tells_status = other->connection.unread() != 0;
    if (other->tells_status && other.get() == &client)
      return "the answer to the last status was not read yet";
    unread += other->tells_status;
  }
  if (unread < kMostUnread) return {};
  return fmt::format("{} answers to status were not read yet by uid {}", unread, client.peer.uid);
}

}  // namespace ina::switchd
