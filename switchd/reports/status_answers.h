// Answers over the control socket with the status of the switch, and with other data that is too
// long for a message.
#pragma once

#include <string>

#include "common/fd.h"
#include "switchd/connections.h"
#include "switchd/jobs/job_maker.h"
#include "switchd/reports/status.h"

namespace ina::switchd {

class StatusAnswers {
 public:
  /// All of them must outlive it.
  StatusAnswers(StatusReport& report, const JobMaker& maker, Connections& connections)
      : report_(report), maker_(maker), connections_(connections) {}

  /// A worker on another host gets what concerns its own tenant. Users of this host who ask in the
  /// same turn of the thread get the same answer: many questions take little more of its time than
  /// one.
  void on_status(Client& client);
  /// To be called at the end of a turn, and before anything else is done for a client: the next
  /// question gets a new answer.
  void outdate() { shared_.reset(); }
  // A user of this host gets a memory file, so that a long answer costs nobody room in a socket.
  void send_trace(Client& client, control::Json content);
  /// To an administrator.
  void send_done(Client& client, control::Json content);
  /// Why a user gets no such answer just now; empty: the user does. Descriptors on their way are
  /// limited in number, over all messages of the switch.
  std::string unread_text(const Client& client) const;

 private:
  template <class Message>
  void send_content(Client& client, control::Json content);
  template <class Message>
  void send_file(Client& client, const Fd& file);
  control::Json status_of_tenant(const Client& client);

  StatusReport& report_;
  const JobMaker& maker_;
  Connections& connections_;
  Fd shared_;            ///< the answer of this turn; -1: none was made yet
  uint64_t number_ = 0;  ///< of the answer
};

}  // namespace ina::switchd
