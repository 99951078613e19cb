// Tells those who ask over the control socket how the switch stands.
#pragma once

#include <string>

#include "switchd/connections.h"
#include "switchd/job_maker.h"
#include "switchd/status.h"

namespace ina::switchd {

class StatusAnswers {
 public:
  /// All of them must outlive it.
  StatusAnswers(StatusReport& report, const JobMaker& maker, Connections& connections)
      : report_(report), maker_(maker), connections_(connections) {}

  /// A user of this host gets a memory file, so that a long answer costs nobody room in a socket. A
  /// worker on another host gets what concerns its own tenant.
  void on_status(Client& client);

 private:
  void answer_remote(Client& client);
  std::string unread_text(const Client& client) const;

  StatusReport& report_;
  const JobMaker& maker_;
  Connections& connections_;
};

}  // namespace ina::switchd
