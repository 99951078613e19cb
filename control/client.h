// A client's messages on its control connection to a switch, and questions that every client may
// ask a running switch.
#pragma once

#include "control/socket.h"

namespace ina::control {

inline constexpr const char* kDefaultSocket = "/run/ina/switch.sock";

/// A message of the switch, and the descriptors beside it.
struct Heard {
  answer::Message message;
  std::optional<uint32_t> channel;
  std::vector<Fd> fds;
  bool lost_descriptors = false;  ///< Received::lost_descriptors
};

/// INA_ERR_INTERNAL: the message is malformed, and the text says where.
Result<Heard> heard(Received received);
/// Connection::receive(), of a switch. Errors: of both.
Result<std::optional<Heard>> hear(const Connection& connection, Nanos timeout_ns);
Result<void> say(const Connection& connection, const request::Message& message,
                 const std::vector<int>& fds = {});
/// Connection::ask(), of a switch. Errors: of both.
Result<std::optional<Heard>> ask(const Connection& connection, const request::Message& message,
                                 Nanos timeout_ns);

/// Why a switch ended or refused something, from a message of any kind.
Error error_of(const answer::Message& message);

/// Checks the numbers of a place but `shm`: a program that only claims to be the switch must not
/// decide how much memory this process takes.
Result<void> check(const answer::Place& place);

/// The switch's status, as `inactl status --json` prints it. `path`: the control socket, or
/// "tcp:HOST:PORT", or "tls:HOST:PORT". `token`: over TCP, see control/tokens.h; the jobs are those
/// of its tenant then, or of the certificate's. `trust`: Connection::open().
/// `connect_timeout_ns`: how long to wait for a switch that is being started, or has no room just
/// now; negative: `timeout_ns`.
Result<Json> query_status(const std::string& path, Nanos timeout_ns, const std::string& token = "",
                          const Trust& trust = {}, Nanos connect_timeout_ns = -1);

/// The next packets of a job, as `inactl trace --json` prints them, from a switch that runs.
/// The caller must own the job, or be an administrator. The rest as for query_status().
Result<Json> query_trace(const std::string& path, const request::Trace& trace,
                         const std::string& token = "", const Trust& trust = {});

/// An administrator's request, Status and Trace among them, and the answer's content. `address`: of
/// admin.socket, or "tls:HOST:PORT" of admin.listen. INA_ERR_REFUSED: the switch refused it, and
/// the text is its own. INA_ERR_NO_SWITCH: nothing was asked. INA_ERR_TIMEOUT: there was no answer;
/// a request that the switch has not begun with is not carried out then.
Result<Json> administer(const std::string& address, const request::Message& message,
                        Nanos timeout_ns, const Trust& trust);

}  // namespace ina::control
