// The conductor's state of its workers and jobs; for the conductor's own files only.
#pragma once

#include <fmt/format.h>
#include <sched.h>

#include <bit>
#include <cassert>

#include "common/clock.h"
#include "common/debt.h"
#include "switchd/conductor.h"
#include "switchd/look_schedule.h"
#include "wire/text.h"

namespace ina::switchd {

inline std::vector<uint32_t> ranks_of(Bitmap bits) {
  std::vector<uint32_t> ranks;
  for (; bits != 0; bits &= bits - 1)
    ranks.push_back(static_cast<uint32_t>(std::countr_zero(bits)));
  return ranks;
}

using wire::ranks_text;
using wire::text_of;

/// For keys.
uint64_t random_u64();

/// "ranks 1, 2 and the fallback server (ina-psd)"
std::string missing_text(Bitmap ranks, bool fallback);

/// The control connection of a worker, of a fallback server, or of its part in one job.
struct Conductor::Client {
  enum class Role { kWorker, kServer, kFallback };
  enum class State { kNew, kJoined, kAttached, kLeaving, kEnded };
  control::Connection connection;
  control::PeerCredentials peer;
  std::string tenant;            ///< over TCP: whose token or ticket it showed; empty before
  std::optional<JobId> ticket;   ///< it showed the ticket of this job, and may join no other
  bool returning = false;        ///< on a place that is kept for members that come back
  bool told = false;             ///< it was refused something: it may still have to read that
  Nanos paused_until = 0;        ///< nobody listens to it before; 0: somebody does
  bool watching_output = false;  ///< for room in the socket, because something waits for it
  Nanos since = 0;               ///< when it connected; kEnded: when its job ended
  std::string account;           ///< owner() of the job that it joined, also when that has ended
  State state = State::kNew;
  Role role = Role::kWorker;
  bool tells_status = false;  ///< a status was sent that it may not have read yet
  uint64_t token =
      0;       ///< the doorman or the mapper works for it, and nothing is read from it; or 0
  Json asked;  ///< then: what it asked for
  bool wants_job = false;  ///< kServer: it asked for the next job and none was there
  Job* job = nullptr;      ///< nullptr in kNew and kEnded
  Rank rank{};

  /// By whose act it is what it is, for limits.
  std::string source() const { return peer.source(); }
  /// To whose account jobs go that it makes; Job::owner() of its own jobs.
  std::string owner() const { return peer.remote ? tenant : peer.source(); }
};

/// How a worker that joins or re-joins wants to be reached.
struct Conductor::Transport {
  bool shm = false;
  bool takes_buffers = false;  ///< reads results where a result buffer has them
  uint32_t frame_port = 0;
  std::optional<wire::Address> address = std::nullopt;  ///< on an Ethernet port
  bool multicast = false;                               ///< results by the job's group
  bool parks = false;  ///< keeps sums for the switch while somebody is slow
};

struct Conductor::Job {
  /// kRejoining: it ran when the last switch ended. The lanes know nothing of it until all its
  /// workers are back.
  enum class State { kJoining, kRunning, kLeaving, kRejoining };
  struct Worker {
    Client* client = nullptr;
    std::unique_ptr<io::shm::WorkerSession> session;  ///< none on an Ethernet port
    Handles::Share share;                             ///< of the session
    std::map<uint32_t, Handles::Share> registered;    ///< of registered memory, by number
    std::optional<wire::Address> address;
    uint32_t frame_port = 0;
    bool takes_buffers = false;
    std::optional<wire::TagKeys> tag_keys;  ///< on an Ethernet port, if frames carry tags
    bool multicast = false;
    bool parks = false;
    bool attached = false;
    uint64_t drops_told = 0;  ///< frames that it knows were dropped
    Debt calls;               ///< for which it was woken
    /// Bytes of a result buffer that it asked for; the others have not yet.
    std::optional<uint64_t> wants_results;
  };
  /// Results that all workers share: io/shm/layout.h.
  struct ResultBuffer {
    io::shm::Region region;
    uint32_t first_unit = 0;
    uint32_t units = 0;
    Handles::Share share;
    Bitmap freed = 0;  ///< workers that need it no more
    uint64_t bytes() const { return uint64_t{units} * wire::kTargetUnitBytes; }
  };
  std::string name;
  aggregator::JobIndex index = 0;
  JobId id{};
  uint32_t epoch = 0;
  uint64_t key = 0;
  wire::SipKey payload_key;  ///< of tags; as new as this process, as the workers' own are
  uid_t uid = 0;
  std::string tenant;  ///< whose it is, if it was made over TCP; else empty, and it is `uid`'s
  uint32_t workers = 0;
  scheduler::Grant grant;
  uint32_t instance = 0;                      ///< of the fallback
  std::vector<std::vector<Bitmap>> seen;      ///< by lane; read and written by the lane
  std::vector<std::vector<uint64_t>> placed;  ///< likewise
  std::vector<std::vector<uint8_t>> parked;   ///< likewise; straggler help only
  std::vector<std::unique_ptr<aggregator::Fallback>> spill;  ///< by lane, likewise; home spill only
  io::shm::Geometry geometry;
  io::shm::Region results;
  Handles::Share share;                      ///< of the job itself
  std::vector<ResultBuffer> result_buffers;  ///< by first unit
  std::optional<ResultBuffer> making;        ///< one that is being made: nothing but its place
  /// In kRejoining: how many requests for one the worker that is furthest had answered.
  uint64_t buffers_shared = 0;
  /// Made by an administrator: whoever shows this may join. Else empty.
  std::string ticket;
  Nanos reserved_until = 0;  ///< in kJoining: the job waits for its workers until then; 0: no
                             ///< longer than one of them is there
  State state = State::kJoining;
  Nanos rejoin_deadline = 0;  ///< in kRejoining
  LookSchedule looks;         ///< at the frames of its workers that were dropped
  Seq start;                  ///< in kRejoining: no worker needs a fragment before it any more
  std::vector<Worker> members;
  Worker fallback;       ///< a fallback server's place; home dedicated only
  bool offered = false;  ///< the fallback server that is connected was told of it

  /// To whose account it goes.
  std::string owner() const { return tenant.empty() ? fmt::format("uid:{}", uid) : tenant; }
  Worker& at(Rank rank) { return rank == kFallbackRank ? fallback : members[value(rank)]; }
  /// Where `client` has its place; nullptr: it has none.
  static Worker* of(const Client& client) {
    if (!client.job) return nullptr;
    Worker& worker = client.job->at(client.rank);
    return worker.client == &client ? &worker : nullptr;
  }
  Bitmap bits(auto&& has) const {
    Bitmap bits = 0;
    for (uint32_t rank = 0; rank < workers; ++rank)
      if (has(members[rank])) bits |= Bitmap{1} << rank;
    return bits;
  }
  Bitmap attached() const {
    return bits([](const Worker& worker) { return worker.attached; });
  }
  Bitmap members_present() const {
    return bits([](const Worker& worker) { return worker.client != nullptr; });
  }
};

/// What the lanes saw of a worker's frames.
struct Conductor::Arrivals {
  bool heard = false;
  uint64_t dropped = 0;
  std::optional<PortDrops> most;  ///< of these, those with one fate of which there are most
};

template <class Prepare>
std::vector<std::unique_ptr<LaneCommand>> Conductor::on_lanes(LaneCommand::Kind kind,
                                                              Prepare&& prepare) {
  assert(lanes_run_);
  std::vector<std::unique_ptr<LaneCommand>> commands;
  // All of them before the first is posted: a lane must not work on one that memory ran out after.
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    commands.push_back(std::make_unique<LaneCommand>());
    commands.back()->kind = kind;
    prepare(*commands.back(), lane);
  }
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) lanes_[lane]->post(*commands[lane]);
  for (auto& command : commands)
    for (int polls = 0; !command->done.load(std::memory_order_acquire); ++polls) {
      if (polls < 100)
        ::sched_yield();
      else
        ::usleep(100);
    }
  return commands;
}

}  // namespace ina::switchd
