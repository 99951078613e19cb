// A job, or a group of a job's ranks, as the conductor knows it.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/fallback.h"
#include "aggregator/given_results.h"
#include "common/debt.h"
#include "io/shm/region.h"
#include "scheduler/admission.h"
#include "switchd/client.h"
#include "switchd/memory/handles.h"
#include "switchd/ports/way.h"
#include "switchd/reports/look_schedule.h"
#include "wire/frame.h"

namespace ina::switchd {

struct Job {
  /// kRejoining: it ran when the last switch ended. The lanes know nothing of it until all its
  /// workers are back.
  enum class State { kJoining, kRunning, kLeaving, kRejoining };
  struct Worker {
    Client* client = nullptr;
    Way way;
    Handles::Share share;  ///< of the session in `way`
    bool attached = false;
    uint64_t drops_told = 0;  ///< frames that it knows were dropped
    Debt calls;               ///< for which it was woken
    /// Bytes of a result buffer that it asked for; the others have not yet.
    std::optional<uint64_t> wants_results;
    /// Its call of ina_split, until all have called it and the switch has made the groups.
    std::optional<control::request::Split> split;
    /// Its calls of ina_create_group, each until all members of that group have made it.
    std::vector<control::request::CreateGroup> creates;
  };
  /// Results that all workers share: io/shm/layout.h.
  struct ResultBuffer {
    io::shm::Region region;
    uint32_t first_unit = 0;
    uint32_t units = 0;
    Handles::Share share;
    WorkerSet freed = {};  ///< workers that need it no more
    uint64_t bytes() const { return uint64_t{units} * wire::kTargetUnitBytes; }
  };
  std::string name;
  aggregator::JobIndex index = 0;
  JobId id{};
  JobId root{};                      ///< of a group: the job whose workers are in it; 0: it is none
  std::vector<uint32_t> root_ranks;  ///< of a group: its workers' ranks in `root`
  uint32_t epoch = 0;
  uint64_t key = 0;
  wire::SipKey payload_key;  ///< of tags; as new as this process, as the workers' own are
  uid_t uid = 0;
  std::string tenant;  ///< owner, if it was made over TCP; else empty: it is `uid`'s
  uint32_t workers = 0;
  control::request::Settings settings;  ///< of the workers that have joined
  scheduler::Grant grant;
  Home home = Home::kWorkers;                 ///< place of the fallback, as told to its workers
  uint32_t instance = 0;                      ///< of the fallback
  std::vector<std::vector<WorkerSet>> seen;   ///< by lane; read and written by the lane
  std::vector<std::vector<uint64_t>> placed;  ///< by lane; read and written by the lane
  std::vector<std::vector<uint8_t>> parked;   ///< each lane's own; straggler help only
  /// Each lane's own; where workers may be on links that lose frames.
  std::vector<std::vector<aggregator::GivenResult>> given;
  std::vector<std::unique_ptr<aggregator::Fallback>> spill;  ///< each lane's own; home spill only
  io::shm::Geometry geometry;
  io::shm::Region results;
  Handles::Share share;                      ///< of the job itself
  std::vector<ResultBuffer> result_buffers;  ///< by first unit
  std::optional<ResultBuffer> making;        ///< one that is being made: nothing but its place
  /// In kRejoining: requests for a result buffer to which the furthest worker had the answer.
  uint64_t buffers_shared = 0;
  uint32_t splits = 0;  ///< in kRejoining: splits to which the furthest worker had the answer
  /// Made by an administrator: a worker that shows this may join. Else empty.
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
  bool is_group() const { return value(root) != 0; }
  /// `id` is that of the job, or, if it is a group, of the job whose workers are in it.
  bool is_of(JobId id_of_job) const { return id == id_of_job || root == id_of_job; }
  Worker& at(Rank rank) { return rank == kFallbackRank ? fallback : members[value(rank)]; }
  const Worker& at(Rank rank) const {
    return rank == kFallbackRank ? fallback : members[value(rank)];
  }
  /// Where `client` has its place; nullptr: it has none.
  static Worker* of(const Client& client) {
    if (!client.job) return nullptr;
    Worker& worker = client.job->at(client.rank);
    return worker.client == &client ? &worker : nullptr;
  }
  WorkerSet all() const { return WorkerSet::first(workers); }
  /// The workers of whose places `has` is true.
  WorkerSet those(auto&& has) const {
    WorkerSet found = {};
    for (const Rank rank : all())
      if (has(members[value(rank)])) found.insert(rank);
    return found;
  }
  WorkerSet attached() const {
    return those([](const Worker& worker) { return worker.attached; });
  }
  /// Not attached.
  WorkerSet missing() const { return all() - attached(); }
  WorkerSet members_present() const {
    return those([](const Worker& worker) { return worker.client != nullptr; });
  }
  /// Ranks whose workers have called ina_finalize, or are gone.
  WorkerSet leaving_or_gone() const {
    return those([](const Worker& worker) {
      return !worker.client || worker.client->state == Client::State::kLeaving;
    });
  }
};

}  // namespace ina::switchd
