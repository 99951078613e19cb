#include "switchd/reports/status_answers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace ina::switchd {

namespace answer = control::answer;
using control::Json;

namespace {

/// Nobody can change it. Nothing: there is no memory, or no descriptor.
Fd memory_file(const Json& content) {
  const std::string text = content.dump(-1, ' ', false, Json::error_handler_t::replace);
  Fd file(::memfd_create("ina-answer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
          0)
    return {};
  return file;
}

}  // namespace

void StatusAnswers::on_status(Client& client) {
  if (const std::string text = unread_text(client); !text.empty())
    return connections_.refuse(client, INA_ERR_REFUSED, text);
  if (client.peer.remote)
    return connections_.send(
        client, answer::Status{client.administers() ? report_.make(true, maker_.draining())
                                                    : status_of_tenant(client)});
  // A client's second question may have come after the answer to its first was made.
  if (!shared_ || client.status == number_) {
    shared_ = memory_file(report_.make(true, maker_.draining()));
    ++number_;
  }
  client.status = number_;
  send_file<answer::Status>(client, shared_);
}

void StatusAnswers::send_trace(Client& client, Json content) {
  send_content<answer::Trace>(client, std::move(content));
}

/// What was done must not be told to have failed for want of a descriptor: a short answer needs
/// none.
void StatusAnswers::send_done(Client& client, Json content) {
  answer::Done done{std::move(content)};
  if (control::to_text(done).size() <= control::kMaxMessageBytes)
    return connections_.send(client, done);
  send_content<answer::Done>(client, std::move(done.content));
}

template <class Message>
void StatusAnswers::send_content(Client& client, Json content) {
  if (client.peer.remote) return connections_.send(client, Message{std::move(content)});
  send_file<Message>(client, memory_file(content));
}

template <class Message>
void StatusAnswers::send_file(Client& client, const Fd& file) {
  // A descriptor of its own, so that others' reading does not move the place where it reads.
  const Fd own(
      file ? ::open(fmt::format("/proc/self/fd/{}", file.get()).c_str(), O_RDONLY | O_CLOEXEC)
           : -1);
  if (!own)
    return connections_.refuse(client, INA_ERR_NO_MEMORY,
                               fmt::format("cannot make a memory file for '{}'", Message::kType));
  client.tells_status = true;
  connections_.send(client, Message{}, {own.get()});
}

/// On another host the names of other tenants' jobs are none of its business.
Json StatusAnswers::status_of_tenant(const Client& client) {
  Json status = report_.make(true, maker_.draining());
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
    const bool others_request = other->administers() && other.get() != &client;
    if (!other->tells_status || other->peer.uid != client.peer.uid || others_request) continue;
    other->tells_status = other->connection.unread() != 0;
    if (other->tells_status && other.get() == &client)
      return "the answer to the last request was not read yet";
    unread += other->tells_status;
  }
  if (unread < kMostUnread || client.administers()) return {};
  return fmt::format("{} answers to status were not read yet by uid {}", unread, client.peer.uid);
}

}  // namespace ina::switchd
