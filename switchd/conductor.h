// The control plane: admits workers over the control socket, tells the lanes what to serve, and
// tells the workers what went wrong. One thread, which may block and allocate; it never touches the
// lanes' state but through their command rings.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/socket.h"
#include "scheduler/admission.h"
#include "switchd/lane.h"
#include "switchd/state_file.h"

namespace ina::switchd {

struct FramePortInfo {
  std::string name;
  wire::Address address;
};

struct ConductorConfig {
  std::string socket_path;
  mode_t socket_mode = 0660;
  uint32_t max_connections = 1024;
  Nanos join_timeout_ns = 30'000'000'000;  ///< a connection that joins no job is closed after this
  Nanos rejoin_timeout_ns = 30'000'000'000;  ///< for all workers of a job, after a restart
  uint32_t max_jobs = 64;
  uint32_t slots = 0;  ///< of the whole array
  uint32_t slot_bytes = 0;
  uint32_t slots_per_job = 0;
  std::string policy = "static";
  IdleMode idle = IdleMode::kAuto;
  bool has_shm = true;
  std::string shm_name = "shm0";
  std::vector<FramePortInfo> frame_ports;
};

class Conductor {
 public:
  /// `state`: opened before anything else was. `lanes`: their threads must run before run() is
  /// called and until it has returned.
  Conductor(ConductorConfig config, StateFile state, std::vector<LaneLink*> lanes);
  ~Conductor();

  /// Opens the control socket, and holds the places of the jobs that ran when the last switch
  /// ended.
  Result<void> open();
  /// Serves until stop(). Running jobs are not ended then: the next switch goes on with them.
  void run();
  /// From any thread or signal handler.
  void stop();

 private:
  struct Job;
  struct Client;
  using Json = control::Json;

  struct Transport;

  int turn_ms(Nanos now) const;
  Result<void> watch(int fd);
  void accept_clients();
  void read_client(Client& client);
  void handle(Client& client, control::Received& received);
  void close_client(int fd);

  void on_join(Client& client, const Json& body);
  Job* find_or_admit(Client& client, const std::string& name, uint32_t workers,
                     uint64_t window_bytes);
  bool check_version(Client& client, const Json& body);
  std::optional<Transport> transport_of(Client& client, const Json& body);
  void answer_join(Client& client, Job& job, Rank rank, const Transport& transport);
  void on_attach(Client& client, control::Received& received);
  void on_leave(Client& client);
  void on_abort(Client& client, const Json& body);
  void on_explain(Client& client);
  void on_status(Client& client);
  void on_lane_events();

  // Jobs that outlive the process, in rejoin.cc.
  void restore_jobs();
  void restore(const SavedJob& saved, Nanos deadline);
  void on_rejoin(Client& client, const Json& body);
  void on_rejoined(Job& job);
  void end_overdue_rejoins(Nanos now);
  std::string rejoin_text(Job& job);
  void save(const Job& job);
  void forget(const Job& job);

  std::unique_ptr<Job> make_job(const SavedJob& saved, size_t index);
  Result<void> make_results(Job& job);
  void add_to_lanes(Job& job, Seq start);
  Result<void> attach_to_lanes(Job& job, Rank rank);
  void worker_gone(Client& client);
  void tell_missing(Job& job);
  void end_job(Job& job, ina_status status, const std::string& text);
  void remove_job(Job& job);
  std::string waiting_text(Job& job);
  std::optional<aggregator::Waiting> oldest_waiting(const Job& job);
  void refuse(Client& client, ina_status status, const std::string& text);
  void send(Client& client, const Json& body, const std::vector<int>& fds = {});
  /// Runs `prepare`d copies of a command on all lanes and waits for them.
  template <class Prepare>
  std::vector<std::unique_ptr<LaneCommand>> on_lanes(LaneCommand::Kind kind, Prepare&& prepare);
  Json status_json();
  Json job_json(Job& job);

  ConductorConfig config_;
  StateFile state_;
  std::vector<LaneLink*> lanes_;
  scheduler::StaticAdmission admission_;
  Fd epoll_;
  Fd stop_event_;
  Fd lane_event_;
  std::optional<control::Listener> listener_;
  std::map<int, std::unique_ptr<Client>> clients_;
  std::set<int>
      to_close_;  ///< closed after the current event, so that handlers may keep references
  std::vector<std::unique_ptr<Job>> jobs_;  ///< by JobIndex
  Nanos accept_again_ = 0;                  ///< when the listener is watched again; 0: it is
  Nanos started_;
};

}  // namespace ina::switchd
