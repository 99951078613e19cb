// The owner of a client, and the jobs in which it may have a place. These follow from its
// credentials (control version, ticket, token, certificate) and from the jobs' owners.
#pragma once

#include <string>

#include "control/messages.h"
#include "switchd/connections.h"
#include "switchd/credentials.h"
#include "switchd/jobs/job_table.h"

namespace ina::switchd {

class Identification {
 public:
  /// All of them must outlive it.
  Identification(const Credentials& credentials, const JobTable& jobs, Connections& connections)
      : credentials_(credentials), jobs_(jobs), connections_(connections) {}

  // False: refused.
  /// A message of that type by a worker on another host.
  bool may_say_over_tcp(Client& client, const std::string& type);
  /// Checks the client's credentials.
  bool identify(Client& client, const control::request::Message& message);
  /// Checks that the worker and this switch understand each other.
  bool check_version(Client& client, const control::request::Member& member);

  /// Why `client` may not take part in `job`; empty if it may. Its own, the one of its ticket, or,
  /// as root on this host, the one whose `owner` it names.
  static std::string foreign_text(const Client& client, const Job& job, const std::string& owner);

 private:
  bool check_ticket(Client& client, const std::string& ticket);
  bool authenticate(Client& client, const std::string& token);

  const Credentials& credentials_;
  const JobTable& jobs_;
  Connections& connections_;
};

}  // namespace ina::switchd
