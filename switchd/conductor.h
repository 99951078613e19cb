// The control plane: it admits workers over the control socket, tells the lanes which jobs to
// serve, and tells the workers about errors. One thread, which may block and allocate. It reaches
// the lanes' state through their command rings only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "aggregator/fallback.h"
#include "control/admin/requests.h"
#include "control/doorman.h"
#include "control/messages.h"
#include "control/socket.h"
#include "scheduler/admission.h"
#include "switchd/conductor_config.h"
#include "switchd/connections.h"
#include "switchd/credentials.h"
#include "switchd/dropped_frames.h"
#include "switchd/epoll.h"
#include "switchd/job_table.h"
#include "switchd/lanes.h"
#include "switchd/peer_memory.h"
#include "switchd/resources.h"
#include "switchd/result_buffers.h"
#include "switchd/slot_map.h"
#include "switchd/state_file.h"
#include "switchd/status.h"
#include "switchd/waiting.h"

namespace ina::switchd {

namespace request = control::request;
namespace answer = control::answer;

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
  /// Serves until stop(). Running jobs are not ended then: the next switch goes on with them.
  void run();
  /// From any thread or signal handler.
  void stop();
  /// Reads the token file again. From any thread or signal handler.
  void reload();
  /// For administrators, from other threads.
  admin::Queue& admin() { return admin_; }
  /// Where workers on other hosts join, after open(); 0: nowhere.
  uint16_t tcp_port() const { return connections_.tcp_port(); }

 private:
  using Json = control::Json;

  struct Transport;

  int turn_ms(Nanos now) const;
  void serve(int fd, bool& stopping);
  void look_after_jobs(Nanos now);
  void end_serving();
  void on_message(Client& client, control::Received& received);
  void on_closed(Client& client);
  void on_mapped();
  void handle(Client& client, const Json& body);
  bool may_say_over_tcp(Client& client, const std::string& type);
  bool identify(Client& client, const request::Message& message);
  bool authenticate(Client& client, const std::string& token);
  static std::string foreign_text(const Client& client, const Job& job, const std::string& owner);
  std::string crowded_text(const Job& job) const;
  void leave_job(Client& client);

  void dispatch(Client& client, const request::Message& message);
  void on_join(Client& client, const request::Join& join);
  Job* find_or_admit(Client& client, const request::Join& join);
  Result<Job*> admit(const SavedJob& fresh, scheduler::JobRequest request, uint64_t window_bytes,
                     const std::string& who);
  SavedJob new_job(const std::string& name, uint32_t workers);
  bool check_version(Client& client, const request::Member& member);
  std::optional<Transport> transport_of(Client& client, const request::Reach& reach);
  answer::Place place_in(const Job& job) const;
  Result<std::vector<int>> give_place(Job& job, Rank rank, const Transport& transport,
                                      answer::Place& place);
  void answer_join(Client& client, Job& job, Rank rank, const Transport& transport);
  Result<void> take_place(Client& client, Job& job, Rank rank, const Transport& transport);

  void on_attach(Client& client);
  void attach_member(Client& client);
  void attach_worker(Client& client);

  // Groups of ranks of a job, in groups.cc.
  /// A split that all members have asked for. The switch makes one group a turn, so that nobody
  /// waits for many.
  struct Split {
    struct Colour {
      int64_t colour = 0;
      std::vector<uint32_t> ranks;  ///< of the job that is split, by rank in the group
      JobId group{};                ///< once it is made
    };
    JobId job{};
    uint32_t number = 0;
    std::vector<Colour> colours;
    size_t made = 0;
  };
  Client& new_place(Client& line, uint32_t channel);
  void remove_left_places();
  void on_channel(Client& line, uint32_t channel, const request::Message& message);
  void on_join_group(Client& line, uint32_t channel, const request::Join& join);
  void on_rejoin_group(Client& line, uint32_t channel, const request::Rejoin& rejoin);
  void on_split(Client& client, const request::Split& split);
  void begin_split(Job& job);
  void go_on_splitting();
  Result<JobId> make_group(Job& job, const Split::Colour& colour);
  Result<void> check_room_for_group(const Job& job) const;
  void answer_split(Job& job, const Split& split);
  void fail_split(const Split& split, Job* job, const Error& error);
  void refuse_splits(Job& job);
  void end_groups_of(JobId root, ina_status status, const std::string& text, bool rejoining_only);

  void on_leave(Client& client);
  void on_abort(Client& client, const request::Abort& abort);
  void on_mismatch(Client& client, const request::Mismatch& mismatch);
  static std::string mismatch_text(const Job& job, const std::string& sides);
  void on_explain(Client& client);
  void on_status(Client& client);
  std::string unread_status_text(const Client& client);
  void on_lane_events();
  void call_idle_workers(Nanos now);
  void beat(Nanos now);

  // Jobs that outlive the process, in rejoin.cc.
  void restore_jobs();
  void restore(const SavedJob& saved, Nanos deadline);
  std::string unfit_text(const SavedJob& saved) const;
  void begin_reserved_jobs();
  void on_rejoin(Client& client, const request::Rejoin& message);
  void rejoin(Client& client, Job& job, const request::Rejoin& message);
  void on_rejoined(Job& job);
  void end_overdue_rejoins(Nanos now);
  static SavedJob saved_of(const Job& job);
  void save(const Job& job);
  void forget(const Job& job);

  std::unique_ptr<Job> make_job(const SavedJob& saved, size_t index);
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
  admin::Answer carry_out(const admin::GetCounters& request, const std::string& who);
  admin::Answer carry_out(const admin::GetSlots& request, const std::string& who);
  admin::Answer carry_out(const admin::Reload& request, const std::string& who);
  bool check_ticket(Client& client, const std::string& ticket);
  void end_overdue_reservations(Nanos now);

  // Fallback servers: switchd/fallback_server.cc.
  void handle_server(Client& client, const request::Message& message);
  void on_serve(Client& client, const request::Serve& serve);
  void offer_jobs();
  void on_join_fallback(Client& client, const request::JoinFallback& join);
  void attach_fallback(Client& client);
  void fallback_gone(Client& client);
  void release_fallback(Job& job);
  Result<uint32_t> next_epoch(const Job& job) const;

  void on_gathered(Job& job);
  void worker_gone(Client& client);
  void tell_missing(Job& job);
  void end_job(Job& job, ina_status status, const std::string& text);
  void tell_end(Job& job, ina_status status, const std::string& text);
  void remove_job(Job& job);
  Result<uint32_t> frame_port_of(const std::string& name, const wire::MacAddress& mac);
  void refuse(Client& client, ina_status status, const std::string& text) {
    connections_.refuse(client, status, text);
  }
  void refuse_malformed(Client& client, const Error& error) {
    connections_.refuse_malformed(client, error);
  }
  void send(Client& client, const answer::Message& message, const std::vector<int>& fds = {}) {
    connections_.send(client, message, fds);
  }

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
  bool draining_ = false;
  JobTable jobs_;
  Connections connections_;
  std::deque<Split> splits_;
  std::set<int> left_places_;  ///< clients with places in groups that have ended
  Nanos call_again_ = 0;       ///< when workers are called that have been called too often; 0: none
  Nanos next_beat_ = 0;        ///< 0: none
  PeerMemory peer_memory_;
  ResultBuffers result_buffers_;
  DroppedFrames dropped_;
  Waiting waiting_;
  StatusReport status_;
  SlotMap slot_map_;
};

}  // namespace ina::switchd
