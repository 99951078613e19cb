// Requests of workers and fallback servers, from joining to leaving: each is handed to the class
// that is responsible for it.
#pragma once

#include <cstdint>
#include <optional>

#include "control/doorman.h"
#include "control/messages.h"
#include "control/socket.h"
#include "switchd/epoll.h"
#include "switchd/jobs/departures.h"
#include "switchd/jobs/fallback_places.h"
#include "switchd/jobs/fallback_server.h"
#include "switchd/jobs/gathering.h"
#include "switchd/jobs/group_maker.h"
#include "switchd/jobs/groups.h"
#include "switchd/jobs/job_services.h"
#include "switchd/jobs/joining.h"
#include "switchd/jobs/member_groups.h"
#include "switchd/jobs/rejoin.h"
#include "switchd/jobs/splits.h"
#include "switchd/jobs/switch_above.h"
#include "switchd/jobs/switches_below.h"
#include "switchd/jobs/worker_calls.h"
#include "switchd/memory/peer_memory.h"
#include "switchd/memory/result_buffers.h"
#include "switchd/reports/status.h"

namespace ina::switchd {

class WorkerRequests {
 public:
  WorkerRequests(const ControlState& control, JobServices& services, StatusReport& status,
                 control::Doorman* doorman, ConductorEvent& uplinks);

  /// Finds the jobs of the last switch. Before any request.
  void restore(const ControlState& control);

  /// Handles a message of a client that has said who it is. `channel`: its place in a group.
  void handle(Client& client, std::optional<uint32_t> channel,
              const control::request::Message& message);
  void on_descriptors(Client& client, const control::Json& body) {
    peer_memory_.on_descriptors(client, body);
  }
  /// Its connection is gone.
  void on_closed(Client& client);
  void on_doorman(Epoll& epoll) { peer_memory_.on_doorman(epoll); }
  void on_mapped(Mapper& mapper);
  /// Lanes have rung: some wait for workers to be woken.
  void on_uplinks() { switch_above_.on_events(); }
  void on_lane_events(Nanos now) { worker_calls_.call(now); }

  bool under_way() const { return splits_.under_way() || member_groups_.under_way(); }
  /// When turn() is wanted at the latest, if before `until`.
  Nanos next(Nanos until) const {
    return gathering_.next(
        switches_below_.next_overdue(rejoin_.next_overdue(worker_calls_.next(until))));
  }
  void go_on();
  void call_again(Nanos now) { worker_calls_.call_again(now); }
  void end_overdue(Nanos now) {
    rejoin_.end_overdue(now);
    switches_below_.end_overdue(now);
    gathering_.turn(now);
  }

  Departures& departures() { return departures_; }

 private:
  void on_channel(Client& line, uint32_t channel, const control::request::Message& message);
  void dispatch(Client& client, const control::request::Message& message);
  void on_attach(Client& client);
  void attach_member(Client& client);

  Connections& connections_;
  JobEnding& ending_;
  StatusReport& status_;
  // In the order of a job's life.
  Joining joining_;
  Gathering gathering_;
  PeerMemory peer_memory_;
  ResultBuffers result_buffers_;
  GroupMaker group_maker_;
  TreeGroups tree_groups_;
  Splits splits_;
  MemberGroups member_groups_;
  WorkerCalls worker_calls_;
  Departures departures_;
  Rejoin rejoin_;
  Groups groups_;
  FallbackPlaces fallback_places_;
  SwitchesBelow switches_below_;
  SwitchAbove switch_above_;
  FallbackServers fallback_servers_;
};

}  // namespace ina::switchd
