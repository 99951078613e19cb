// The control plane's thread, which may block and allocate: it waits for messages of workers,
// lanes, administrators and helpers, and hands each one to the class that is responsible for it.
// The conductor reaches the lanes' state through their command rings only.
#pragma once

#include <optional>
#include <vector>

#include "control/admin/queue.h"
#include "control/doorman.h"
#include "control/socket.h"
#include "switchd/conductor_config.h"
#include "switchd/conductor_events.h"
#include "switchd/connections.h"
#include "switchd/credentials.h"
#include "switchd/epoll.h"
#include "switchd/jobs/job_services.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/state_file.h"
#include "switchd/lanes/lanes.h"
#include "switchd/memory/resources.h"
#include "switchd/reports/dropped_frames.h"
#include "switchd/reports/port_watch.h"
#include "switchd/reports/status.h"
#include "switchd/user_requests.h"
#include "switchd/worker_requests.h"

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
  void on_lane_events();
  void handle(Client& client, const control::Json& body);
  ControlState control();

  ConductorConfig config_;
  StateFile state_;
  Lanes lanes_;
  const JobRules rules_;
  Resources resources_;
  control::Doorman* doorman_;
  Epoll epoll_;
  ConductorEvents events_;
  Credentials credentials_;
  admin::Queue admin_;
  JobTable jobs_;
  Connections connections_;
  Nanos next_beat_ = 0;  ///< 0: none

  JobServices services_;
  DroppedFrames dropped_;
  PortWatch port_watch_;
  StatusReport status_;
  WorkerRequests workers_;
  UserRequests users_;
};

}  // namespace ina::switchd
