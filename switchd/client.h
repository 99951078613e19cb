// A control connection, as the conductor knows it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "control/messages.h"
#include "control/socket.h"
#include "wire/types.h"

namespace ina::switchd {

struct Job;

/// The control connection of a worker, of a fallback server, of its part in one job, or of an
/// administrator.
struct Client {
  enum class Role { kWorker, kSwitch, kServer, kFallback, kAdministrator };
  /// kAdministrator: kJoined once it has asked for something.
  enum class State { kNew, kJoined, kAttached, kLeaving, kEnded };
  control::Connection connection;
  control::PeerCredentials peer;
  std::string tenant;            ///< over TCP: whose token or ticket it showed; empty before
  std::optional<JobId> ticket;   ///< it showed the ticket of this job, and may join no other
  bool returning = false;        ///< on a place that is kept for members that come back
  bool told = false;             ///< it was refused something: it may still have to read that
  Nanos paused_until = 0;        ///< nobody listens to it before; 0: somebody does
  bool watching_output = false;  ///< for room in the socket, because something waits for it
  /// When it connected; kEnded: when its job ended; kAdministrator: when it asked last.
  Nanos since = 0;
  std::string account;  ///< owner() of the job that it joined, also when that has ended
  State state = State::kNew;
  Role role = Role::kWorker;
  bool tells_status = false;  ///< a status or trace was sent that it may not have read yet
  uint64_t status = 0;        ///< number of the last status that was sent
  uint64_t token =
      0;  ///< the doorman or the mapper works for it, and nothing is read from it; or 0
  control::Request asked;  ///< then: its request
  bool wants_job = false;  ///< kServer: it asked for the next job and none was there
  Job* job = nullptr;      ///< nullptr in kNew and kEnded
  Rank rank{};
  /// Its places in groups, by the group's id. They speak over its connection.
  std::map<uint32_t, std::unique_ptr<Client>> places;
  /// Such a place: whose connection it speaks over, and its group's id.
  Client* carrier = nullptr;
  uint32_t channel = 0;
  JobId joined{};  ///< the job that the connection joined, also when that has ended; 0: none yet

  /// The sender of a message over this connection: its own worker, or one of its places in groups.
  /// nullptr: the place is no more.
  Client* from(std::optional<uint32_t> place) {
    if (!place) return this;
    const auto found = places.find(*place);
    return found == places.end() || !found->second->job ? nullptr : found->second.get();
  }
  /// The client whose connection carries its messages.
  Client& line() { return carrier ? *carrier : *this; }
  bool administers() const { return role == Role::kAdministrator; }
  /// Also over the control socket: root and the switch's own user are administrators.
  bool may_administer() const { return administers() || peer.is_trusted(); }
  /// For the log and for those concerned: "uid:1000, pid 4711", "red, 10.0.0.7:123", or of an
  /// administrator on another host "certificate 'alice', 10.0.0.7:123".
  std::string who() const {
    if (!peer.remote) return peer.whole_text();
    return (administers() ? "certificate '" + connection.peer_name().value_or("") + "'" : tenant) +
           ", " + peer.text();
  }
  /// The user or address that it counts for, for limits.
  std::string source() const { return peer.source(); }
  /// To whose account jobs go that it makes; Job::owner() of its own jobs.
  std::string owner() const { return peer.remote ? tenant : peer.source(); }
};

}  // namespace ina::switchd
