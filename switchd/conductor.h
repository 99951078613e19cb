// The control plane: it admits workers over the control socket, tells the lanes which jobs to
// serve, and tells the workers about errors. One thread, which may block and allocate. It reaches
// the lanes' state through their command rings only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "aggregator/fallback.h"
#include "control/admin/requests.h"
#include "control/doorman.h"
#include "control/socket.h"
#include "control/tls_server.h"
#include "control/tokens.h"
#include "scheduler/admission.h"
#include "switchd/handles.h"
#include "switchd/held_memory.h"
#include "switchd/lane.h"
#include "switchd/mapper.h"
#include "switchd/state_file.h"
#include "switchd/work_budget.h"

namespace ina::switchd {

class WorkTimer;

struct FramePortInfo {
  std::string name;
  wire::Address address;
  bool multicast = false;   ///< results are sent to groups
  bridge::VlanId vlan = 0;  ///< of the switch itself behind this port
};

struct ConductorConfig {
  std::string socket_path;
  mode_t socket_mode = 0660;
  std::string listen;      ///< "ADDRESS:PORT" for workers on other hosts; empty: none
  std::string token_file;  ///< who may join over TCP
  /// TLS for workers on other hosts (control::kControlTlsNames); no certificate: none.
  control::TlsFiles tls;
  bool require_client_certificate = true;
  bool allow_anonymous = false;               ///< who shows no token may join over TCP, too
  Nanos dead_peer_ns = control::kDeadPeerNs;  ///< a host that answers nothing over TCP is dead then
  uint32_t max_connections = 1024;
  uint32_t max_connections_per_user = 0;  ///< or tenant; 0: half of max_connections
  uint32_t max_unjoined = 128;            ///< of connections over TCP, from one address
  /// How long a host may take to hear why its connection over TCP is closed.
  Nanos farewell_ns = 1'000'000'000;
  Nanos join_timeout_ns = 30'000'000'000;  ///< a connection that joins no job is closed after this
  Nanos rejoin_timeout_ns = 30'000'000'000;  ///< for all workers of a job, after a restart
  uint32_t max_jobs = 64;
  uint32_t slots = 0;  ///< of the whole array
  uint32_t slot_bytes = 0;
  uint32_t slots_per_job = 0;
  scheduler::PolicyKind policy{};
  Home home = Home::kWorkers;
  uint64_t window_bytes = 4ull << 20;
  /// Straggler help: bytes that a worker may run ahead; window_bytes bounds what it has in the
  /// switch. 0: none.
  uint64_t run_ahead_bytes = 0;
  uint64_t park_bytes = 0;  ///< that each worker keeps; 0: the fallback does
  bool park_home = false;   ///< aggregator::JobSpec::park_home
  Nanos park_patience_ns = 0;
  uint32_t slots_floor = 0;    ///< of each job, of the whole array; shared slots only
  uint32_t slots_ceiling = 0;  ///< 0: all
  uint8_t priority_max = 255;
  uint64_t memory_bytes = 1ull << 30;  ///< for all jobs together
  /// Mappings and descriptors for all jobs together; 0: what the process's limits let it have.
  uint64_t mappings = 0;
  uint64_t descriptors = 0;
  uint32_t handles_share_percent = 50;  ///< of them, what one tenant or user may have
  std::vector<scheduler::TenantQuota> tenants;
  scheduler::TenantQuota other_tenants;  ///< of each that is not in `tenants`
  int64_t rto_min_us = 2'000;
  int64_t rto_max_us = 200'000;
  bool tags = false;  ///< frames carry tags
  bool ecn = true;
  bool aggregator_window = true;
  IdleMode idle = IdleMode::kAuto;
  bool has_shm = true;
  std::string shm_name = "shm0";
  std::vector<FramePortInfo> frame_ports;
  WorkBudget::Limits work = {};  ///< how much of the conductor's time one user or address may take
  /// Has the log go on in the file that is at its path now; empty: there is no file.
  std::function<Result<void>()> reopen_log = {};

  /// Each job has slots of its own; otherwise the jobs share all.
  bool fixed_slots() const { return !scheduler::traits(policy).hashed; }
  bool helps() const { return run_ahead_bytes != 0 && !fixed_slots(); }
};

class Conductor {
 public:
  /// How many hosts at a time are given ConductorConfig::farewell_ns.
  static constexpr size_t kMaxFarewells = 64;

  /// `state`: opened before anything else was. `lanes`: their threads must run before run() is
  /// called and until it has returned. `doorman`: outlives the conductor; without one nobody can
  /// join over shared memory.
  Conductor(ConductorConfig config, StateFile state, std::vector<LaneLink*> lanes,
            control::Doorman* doorman = nullptr);
  ~Conductor();

  /// Opens the control socket, and holds the places of the jobs that ran when the last switch
  /// ended. Posts nothing to the lanes, which need not run yet.
  Result<void> open();
  /// Serves until stop(). Running jobs are not ended then: the next switch goes on with them.
  void run();
  /// From any thread or signal handler.
  void stop();
  /// Reads the token file again. From any thread or signal handler.
  void reload();
  /// For administrators, from other threads.
  admin::Queue& admin() { return admin_; }
  /// Where workers on other hosts join, after open(); 0: nowhere.
  uint16_t tcp_port() const { return tcp_listener_ ? tcp_listener_->port() : uint16_t{0}; }

 private:
  struct Job;
  struct Client;
  using Json = control::Json;

  struct Transport;

  int turn_ms(Nanos now) const;
  Result<void> watch(int fd);
  Result<void> open_tcp();
  Result<void> load_credentials();
  std::vector<int> listening() const;
  void read_client(Client& client);

  // Connections and how much of this thread's time they take, in connections.cc.
  struct Places {
    struct Use {
      uint32_t total = 0;
      uint32_t idle = 0;
      uint32_t unjoined = 0;
      uint32_t guests = 0;
    };
    std::map<uint64_t, Use> of;  ///< by PeerCredentials::key()
    uint32_t guests = 0;         ///< on places that are kept for those that come back
    uint32_t missing = 0;        ///< who may come back
  };
  /// A connection that is closed as soon as its peer has read why.
  struct Farewell {
    control::Connection connection;
    Nanos until = 0;
  };
  static bool is_trusted(const control::PeerCredentials& peer);
  static bool is_idle(const Client& client);
  uint32_t connections_per_user() const;
  Places count_places() const;
  uint32_t missing_of(const control::PeerCredentials& peer) const;
  std::string no_room(const control::PeerCredentials& peer, Places& places, bool& returning);
  bool make_room(const control::PeerCredentials& peer, Places& places);
  void accept_clients(const control::Listener& listener);
  void accept_client(control::Connection connection, Places& places, const WorkTimer& timer);
  bool may_say(Client& client, const std::string& type);
  bool is_crowded(Client& client);
  void refuse_for_now(Client& client, const std::string& text);
  void close_silent(Nanos now);
  void serve_client(Client& client);
  void charge_time(const Client& client, Nanos spent);
  void pause(Client& client, Nanos until);
  void resume_paused(Nanos now);
  void say_farewell(control::Connection connection);
  void serve_farewell(int fd);
  void end_farewells(Nanos now);
  void handle(Client& client, control::Received& received);
  bool authenticate(Client& client, const Json& body);
  bool authenticate_by(Client& client, const std::string& common_name);
  static std::string foreign_text(const Client& client, const Job& job, const Json& body);
  std::string crowded_text(const Job& job) const;
  static void part(Client& client);
  void watch_output(Client& client);
  void close_client(int fd);

  void on_join(Client& client, const Json& body);
  Job* find_or_admit(Client& client, const Json& body);
  Result<Job*> admit(const SavedJob& fresh, scheduler::JobRequest request, uint64_t window_bytes,
                     const std::string& who);
  SavedJob new_job(const std::string& name, uint32_t workers);
  bool check_version(Client& client, const Json& body);
  std::optional<Transport> transport_of(Client& client, const Json& body);
  Result<std::vector<int>> place(Job& job, Rank rank, const Transport& transport, Json& joined);
  void answer_join(Client& client, Job& job, Rank rank, const Transport& transport);

  Result<void> take_resources(Job& job, scheduler::JobRequest request, uint64_t window_bytes);
  Result<void> retake_resources(Job& job, const SavedJob& saved);
  Result<void> take_memory(Job& job);
  void give_back_resources(Job& job);
  void fill_spec(Job& job, uint32_t lane, Seq start, aggregator::JobSpec& spec);
  void grant_help(scheduler::Grant& grant, uint64_t in_switch) const;
  void fill_help(Job& job, uint32_t lane, aggregator::JobSpec& spec) const;
  aggregator::FallbackConfig spill_config(const Job& job, uint32_t lane, Seq start) const;
  void add_rules(const Job& job, Json& joined) const;
  void on_attach(Client& client);
  void attach_member(Client& client);
  void attach_worker(Client& client);

  // Descriptors that workers send, in descriptors.cc.
  bool doorman_busy() const;
  std::string no_descriptors_text(const Client& client, const std::string& type) const;
  void on_descriptors(Client& client, Json body);
  Client* asking(uint64_t token);
  Json resume(Client& client);
  void on_doorman();
  void on_memory_file(Client& client, control::Doorman::Answer& answer);
  void on_mapped();
  void on_region(Client& client, Result<io::shm::Region>& region);

  // Whom memory is charged to, in memory.cc.
  Result<void> charge(Job& job, uint64_t bytes);
  Result<void> take_handles(Job& job);
  Result<void> make_session(Job& job, Rank rank);
  void drop_worker(Job& job, Rank rank);
  void hold(const std::string& owner, io::shm::Region region);
  void credit_held(size_t most);
  void look_after_memory(Nanos now);

  // Memory that workers bring and results that they share, in buffers.cc.
  void on_registered(Client& client, const Json& body, Result<io::shm::Region>& region);
  void answer_register(Client& client, const Json& body, ina_status status,
                       const std::string& text);
  void on_unregister(Client& client, const Json& body);
  void on_share_results(Client& client, const Json& body);
  void on_free_results(Client& client, const Json& body);
  void share_results(Job& job);
  Job* making(uint64_t token);
  void on_results_made(Job& job, Result<io::shm::Region>& region);
  void tell_results(Job& job, const Json& body, const std::vector<int>& fds = {});

  void on_leave(Client& client);
  void on_abort(Client& client, const Json& body);
  void on_mismatch(Client& client, const Json& body);
  static std::string mismatch_text(const Job& job, const std::string& sides);
  void on_explain(Client& client);
  void on_status(Client& client);
  std::string unread_status_text(const Client& client);
  void on_lane_events();
  void call_idle_workers(Nanos now);

  // Jobs that outlive the process, in rejoin.cc.
  void restore_jobs();
  void restore(const SavedJob& saved, Nanos deadline);
  std::string unfit_text(const SavedJob& saved) const;
  void begin_reserved_jobs();
  void on_rejoin(Client& client, const Json& body);
  void on_rejoined(Job& job);
  void end_overdue_rejoins(Nanos now);
  std::string rejoin_text(Job& job);
  static SavedJob saved_of(const Job& job);
  void save(const Job& job);
  void forget(const Job& job);

  std::unique_ptr<Job> make_job(const SavedJob& saved, size_t index);
  Result<void> make_results(Job& job);
  void add_to_lanes(Job& job, Seq start);
  Result<void> attach_to_lanes(Job& job, Rank rank);

  // Administration, in administration.cc.
  admin::Answer administer(const admin::Request& request, const std::string& who);
  admin::Answer carry_out(const admin::CreateJob& request, const std::string& who);
  admin::Answer carry_out(const admin::AbortJob& request, const std::string& who);
  admin::Answer carry_out(const admin::KickWorker& request, const std::string& who);
  admin::Answer carry_out(const admin::Drain& request, const std::string& who);
  admin::Answer carry_out(const admin::Undrain& request, const std::string& who);
  admin::Answer carry_out(const admin::GetDrain& request, const std::string& who);
  admin::Answer carry_out(const admin::GetStatus& request, const std::string& who);
  admin::Answer carry_out(const admin::Reload& request, const std::string& who);
  // Names are of their owners: a job is found by both, or by its id. In names.cc.
  Job* job_of(const std::string& owner, const std::string& name) const;
  Job* job_of(JobId id) const;
  tl::expected<Job*, admin::Error> job_meant(const std::string& name,
                                             const std::string& owner) const;
  bool check_ticket(Client& client, const Json& body);
  void end_overdue_reservations(Nanos now);

  // Fallback servers: switchd/fallback_server.cc.
  void handle_server(Client& client, control::Received& received, const std::string& type);
  void on_serve(Client& client, const Json& body);
  void offer_jobs();
  void on_join_fallback(Client& client, const Json& body);
  void attach_fallback(Client& client);
  void fallback_gone(Client& client);
  void release_fallback(Job& job);
  bool has_fallback(const Job& job) const;
  Result<uint32_t> next_epoch(const Job& job) const;

  // Why workers on Ethernet ports are not heard, in dropped.cc.
  struct Arrivals;
  std::vector<Arrivals> arrivals_of(Job& job);
  std::string drop_cause(Job& job, Rank rank, const PortDrops& drops) const;
  std::string drop_text(Job& job, Rank rank, const Arrivals& arrivals) const;
  std::string arrivals_text(Job& job);
  void tell_dropped(Job& job, Rank rank, const Arrivals& arrivals);
  void tell_dropped(Nanos now);

  void on_gathered(Job& job);
  void worker_gone(Client& client);
  void tell_missing(Job& job);
  void end_job(Job& job, ina_status status, const std::string& text);
  void tell_end(Job& job, ina_status status, const std::string& text);
  void remove_job(Job& job);
  Result<uint32_t> frame_port_of(const std::string& name, const wire::MacAddress& mac);
  std::string waiting_text(Job& job);
  std::optional<aggregator::Waiting> oldest_waiting(const Job& job);
  void refuse(Client& client, ina_status status, const std::string& text);
  void send(Client& client, const Json& body, const std::vector<int>& fds = {});
  /// Runs `prepare`d copies of a command on all lanes and waits for them.
  template <class Prepare>
  std::vector<std::unique_ptr<LaneCommand>> on_lanes(LaneCommand::Kind kind, Prepare&& prepare);
  Json status_json();
  Json job_json(Job& job);
  Json tenants_json() const;

  ConductorConfig config_;
  StateFile state_;
  std::vector<LaneLink*> lanes_;
  bool lanes_run_ = false;  ///< commands posted before would be waited for without end
  scheduler::Admission admission_;
  Handles handles_;
  Mapper mapper_;
  HeldMemory held_{mapper_};
  Nanos look_again_ = 0;  ///< at the memory that is held
  control::Doorman* doorman_;
  uint64_t last_token_ = 0;
  std::map<uint64_t, int> asking_;       ///< clients for which the doorman or the mapper works
  std::map<uint64_t, uint32_t> making_;  ///< jobs for which the mapper makes a result buffer, by id
  Fd epoll_;
  Fd stop_event_;
  Fd reload_event_;
  Fd lane_event_;
  std::optional<control::Listener> listener_;
  std::optional<control::Listener> tcp_listener_;
  std::optional<control::TokenTable> tokens_;
  admin::Queue admin_;
  bool draining_ = false;
  std::map<int, std::unique_ptr<Client>> clients_;
  std::set<int> unread_;  ///< clients that have said more than was read, and the socket is silent
  std::set<int>
      to_close_;  ///< closed after the current event, so that handlers may keep references
  std::vector<std::unique_ptr<Job>> jobs_;  ///< by JobIndex
  std::set<std::pair<Nanos, int>> paused_;  ///< clients to whom nobody listens until then
  std::map<int, Farewell> farewells_;
  WorkBudget budget_;
  Nanos looked_for_silent_ = 0;
  Nanos call_again_ = 0;    ///< when workers are called that have been called too often; 0: none
  Nanos accept_again_ = 0;  ///< when the listeners are watched again; 0: they are
  Nanos started_;
};

}  // namespace ina::switchd
