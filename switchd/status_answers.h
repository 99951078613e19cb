// Answers over the control socket with the status of the switch, and with other data that is too
// long for a message.
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

  /// A worker on another host gets what concerns its own tenant.
  void on_status(Client& client);
  /// `Message`: answer::Status or answer::Trace. A user of this host gets a memory file, so that a
  /// long answer costs nobody room in a socket.
  template <class Message>
  void send(Client& client, control::Json content);
  /// Why a user gets no such answer just now; empty: the user does. Descriptors on their way are
  /// limited in number, over all messages of the switch.
  std::string unread_text(const Client& client) const;

 private:
  control::Json status_for(const Client& client);

  StatusReport& report_;
  const JobMaker& maker_;
  Connections& connections_;
};

}  // namespace ina::switchd
