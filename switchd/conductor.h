// The control plane's thread, which may block and allocate: it waits for messages of workers,
// lanes, administrators and helpers, and hands each one to the class that is responsible for it.
// The conductor reaches the lanes' state through their command rings only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "control/admin/requests.h"
#include "control/doorman.h"
#include "control/messages.h"
#include "control/socket.h"
#include "switchd/administration.h"
#include "switchd/conductor_config.h"
#include "switchd/connections.h"
#include "switchd/credentials.h"
#include "switchd/epoll.h"
#include "switchd/identification.h"
#include "switchd/jobs/departures.h"
#include "switchd/jobs/fallback_places.h"
#include "switchd/jobs/fallback_server.h"
#include "switchd/jobs/gathering.h"
#include "switchd/jobs/group_maker.h"
#include "switchd/jobs/group_places.h"
#include "switchd/jobs/groups.h"
#include "switchd/jobs/job_administration.h"
#include "switchd/jobs/job_ending.h"
#include "switchd/jobs/job_maker.h"
#include "switchd/jobs/job_offers.h"
#include "switchd/jobs/job_records.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/joining.h"
#include "switchd/jobs/lane_jobs.h"
#include "switchd/jobs/member_groups.h"
#include "switchd/jobs/placement.h"
#include "switchd/jobs/rejoin.h"
#include "switchd/jobs/splits.h"
#include "switchd/jobs/state_file.h"
#include "switchd/jobs/transports.h"
#include "switchd/jobs/wait_reasons.h"
#include "switchd/jobs/worker_calls.h"
#include "switchd/lanes/lanes.h"
#include "switchd/memory/peer_memory.h"
#include "switchd/memory/resources.h"
#include "switchd/memory/result_buffers.h"
#include "switchd/reload.h"
#include "switchd/reports/dropped_frames.h"
#include "switchd/reports/port_watch.h"
#include "switchd/reports/slot_map.h"
#include "switchd/reports/status.h"
#include "switchd/reports/status_answers.h"
#include "switchd/reports/trace_answers.h"
#include "switchd/reports/tracing.h"

namespace ina::switchd {

class Conductor {
 public:
  /// `state`: opened before anything else was. `lanes`: their threads must run before run() is
  /// called and until it has returned. `doorman`: outlives the conductor; without one nobody can
  /// join over shared memory.
  Conductor(ConductorConfig config, StateFile state, std::vector<LaneLink*> lanes,
            control::Doorman* doorman = nullptr);
  ~Conductor();

  /// Opens the control socket, and holds the places of the jobs that ran when the last switch
  /// ended. Posts nothing to the lanes, which need not run yet.
  Result<void> open();
  /// Serves until stop(), or until the switch is to start again (next()). Running jobs are not
  /// ended then: the next switch goes on with them.
  void run();
  /// After run(): with which configuration the switch is to start again. Nothing: it was told to
  /// stop, maybe besides.
  std::optional<Configuration::Version> next() const;
  /// After run(): reload() was called when the configuration had been read. It is for the next
  /// switch.
  bool is_to_reload() const;
  /// From any thread or signal handler.
  void stop();
  /// Reads the configuration again. From any thread or signal handler.
  void reload();
  /// For other threads.
  admin::Queue& admin() { return admin_; }
  /// Where workers on other hosts join, after open(); 0: nowhere.
  uint16_t tcp_port() const { return connections_.tcp_port(); }
  /// Where administrators on other hosts come in, after open(); 0: nowhere.
  uint16_t admin_port() const { return connections_.admin_port(); }

 private:
  Result<void> watch_events();
  void begin_reserved_jobs();
  int turn_ms(Nanos now) const;
  void serve(int fd, bool& stopping);
  void end_turn();
  void remove_deserted_jobs();
  void end_serving();
  void beat(Nanos now);

  void on_message(Client& client, control::Received& received);
  void on_closed(Client& client);
  void on_mapped();
  void on_lane_events();

  void handle(Client& client, const control::Json& body);
  void on_channel(Client& line, uint32_t channel, const control::request::Message& message);
  void dispatch(Client& client, const control::request::Message& message);
  void on_attach(Client& client);
  void attach_member(Client& client);

  ConductorConfig config_;
  StateFile state_;
  Lanes lanes_;
  const JobRules rules_;
  Resources resources_;
  control::Doorman* doorman_;
  Epoll epoll_;
  Fd stop_event_;
  Fd reload_event_;
  Fd lane_event_;
  Credentials credentials_;
  admin::Queue admin_;
  JobTable jobs_;
  Connections connections_;
  Nanos next_beat_ = 0;  ///< 0: none

  // Shared by all parts that change jobs.
  JobRecords records_;
  LaneJobs lane_jobs_;
  GroupPlaces group_places_;
  JobEnding ending_;
  JobMaker maker_;
  JobOffers offers_;
  DroppedFrames dropped_;
  WaitReasons wait_reasons_;
  PortWatch port_watch_;
  StatusReport status_;
  Transports transports_;
  Placement placement_;
  Identification identification_;

  // Requests of workers and fallback servers, in the order of a job's life.
  Joining joining_;
  Gathering gathering_;
  PeerMemory peer_memory_;
  ResultBuffers result_buffers_;
  GroupMaker group_maker_;
  Splits splits_;
  MemberGroups member_groups_;
  WorkerCalls worker_calls_;
  Departures departures_;
  Rejoin rejoin_;
  Groups groups_;
  FallbackPlaces fallback_places_;
  FallbackServers fallback_servers_;

  // Requests of users and administrators.
  StatusAnswers status_answers_;
  SlotMap slot_map_;
  Tracing tracing_;
  TraceAnswers trace_answers_;
  Reload reload_;
  JobAdministration job_administration_;
  Administration administration_;
};

}  // namespace ina::switchd
