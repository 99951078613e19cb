#include "switchd/identification.h"

#include <fmt/format.h>

namespace ina::switchd {

namespace request = control::request;

bool Identification::may_say_over_tcp(Client& client, const std::string& type) {
  const auto refused = [&](ina_status status, const std::string& text) {
    connections_.refuse(client, status, text);
    return false;
  };
  if (type == request::Serve::kType || type == request::JoinFallback::kType)
    return refused(INA_ERR_UNSUPPORTED,
                   fmt::format("'{}' needs the switch's unix socket: over TCP nobody may serve as "
                               "fallback, since that sees every job's contributions",
                               type));
  if (type == request::Register::kType)
    return refused(
        INA_ERR_UNSUPPORTED,
        fmt::format("'{}' needs the switch's unix socket: no descriptors pass over TCP", type));
  const bool introduces = type == request::Join::kType || type == request::Rejoin::kType ||
                          type == request::Status::kType || type == request::Trace::kType;
  if (introduces || !client.tenant.empty()) return true;
  return refused(INA_ERR_REFUSED,
                 fmt::format("'{}' before join: the switch does not know who asks", type));
}

bool Identification::identify(Client& client, const request::Message& message) {
  const std::string* token = nullptr;
  const auto shows = [&](const request::Member& member) {
    token = &member.token;
    return member.ticket.empty() || check_ticket(client, member.ticket);
  };
  if (const auto* join = std::get_if<request::Join>(&message); join && !shows(join->member))
    return false;
  if (const auto* rejoin = std::get_if<request::Rejoin>(&message); rejoin && !shows(rejoin->member))
    return false;
  if (const auto* status = std::get_if<request::Status>(&message)) token = &status->token;
  if (const auto* trace = std::get_if<request::Trace>(&message)) token = &trace->token;
  return !client.peer.remote || !token || authenticate(client, *token);
}

bool Identification::check_version(Client& client, const request::Member& member) {
  if (member.version == control::kControlVersion) return true;
  if (!member.version) {
    connections_.refuse_malformed(client, {INA_ERR_INVALID, "'version' is missing"});
    return false;
  }
  connections_.refuse(
      client, INA_ERR_VERSION,
      fmt::format("libina {} speaks control version {}, this switch ({}) version {}: "
                  "install matching versions",
                  member.library.empty() ? "?" : member.library, *member.version,
                  INA_PROJECT_VERSION, control::kControlVersion));
  return false;
}

std::string Identification::foreign_text(const Client& client, const Job& job,
                                         const std::string& owner) {
  if (client.ticket) {
    if (*client.ticket == job.id) return {};
    return fmt::format("the ticket is for another job than '{}'", job.name);
  }
  if (client.owner() == job.owner()) return {};
  if (client.peer.remote)
    return fmt::format("job '{}' does not belong to tenant '{}', whose worker this is", job.name,
                       client.tenant);
  if (client.peer.uid != 0)
    return fmt::format(
        "job '{}' belongs to {}, and this is a worker of {}: it needs the job's "
        "ticket (INA_TICKET)",
        job.name, job.owner(), client.owner());
  if (owner == job.owner()) return {};
  return fmt::format("job '{}' belongs to {}: root joins it by naming its owner (INA_JOB_OWNER={})",
                     job.name, job.owner(), job.owner());
}

/// The client may join the job of the ticket, and no other.
bool Identification::check_ticket(Client& client, const std::string& ticket) {
  const Job* found = jobs_.find_ticket(ticket);
  if (!found) {
    connections_.refuse(
        client, INA_ERR_REFUSED,
        "the ticket is unknown: its job has ended, or its time has passed, or it was made for "
        "another switch (INA_TICKET)");
    return false;
  }
  client.ticket = found->id;
  client.tenant = found->owner();
  return true;
}

/// Over TCP: learns whose worker this is.
bool Identification::authenticate(Client& client, const std::string& token) {
  if (!client.tenant.empty()) return true;
  auto tenant = credentials_.tenant_of(client.connection.peer_name(), token);
  if (!tenant) {
    connections_.refuse(client, tenant.error().status, tenant.error().text);
    return false;
  }
  client.tenant = std::move(*tenant);
  return !connections_.refuse_if_crowded(client);
}

}  // namespace ina::switchd
