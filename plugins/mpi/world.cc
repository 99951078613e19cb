#include "plugins/mpi/world.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

namespace ina::mpi {

namespace {

/// On team_: the sender has no switch.
constexpr int kFailedTag = 1;
/// The group, and the calls that the sender has made on it.
constexpr int kCallsTag = 2;
/// There are none.
constexpr int kNoTag = 3;
/// Workers of a job that every switch takes, also one without others.
constexpr int kMostOfOneSwitch = 64;
/// When MPI has ended, all have sent their goodbye, or never will.
constexpr int kLastWaitS = 5;

std::string random_name() {
  std::array<char, 40> name{};
  std::random_device random;
  std::snprintf(name.data(), name.size(), "mpi-%08x%08x%08x", random(), random(), random());
  return name.data();
}

}  // namespace

Apart::Apart(std::function<int()> call)
    : thread_([result = result_, call = std::move(call)] {
        result->status = call();
        if (result->status != INA_OK) result->text = ina_last_error(nullptr);
        result->ended.store(true, std::memory_order_release);
      }) {}

Apart::~Apart() {
  if (thread_.joinable()) thread_.join();
}

World& World::of_process() {
  static auto* const world = new World;  // outlives all static objects that use it
  return *world;
}

void World::join(std::unique_ptr<Launcher> launcher) {
  why_not_.clear();
  PMPI_Comm_group(MPI_COMM_WORLD, &group_);
  find_members(launcher.get());
  launcher.reset();
  if (!why_not_.empty()) return;
  make_team();
  if (members_.size() <= INA_MAX_WORLD_SIZE) join_job();
}

/// All processes come to the same members, or find that they are not among them.
void World::find_members(Launcher* launcher) {
  int own = 0, size = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &own);
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  const char* const told = std::getenv("INA_MPI_ALL_PRELOADED");
  const bool all = size == 1 || (told && std::strcmp(told, "1") == 0);
  if (!all && !launcher) {
    why_not_ = "the launcher does not tell which processes have the library";
    if (own == 0)
      std::fprintf(stderr,
                   "ina: MPI goes on without the switch: %s; if all have it, set "
                   "INA_MPI_ALL_PRELOADED=1 for all\n",
                   why_not_.c_str());
    return;
  }
  place_.assign(static_cast<size_t>(size), -1);
  for (int rank = 0; rank < size; ++rank) {
    if (!all && rank != own && !launcher->has_library(rank)) continue;
    place_[static_cast<size_t>(rank)] = static_cast<int>(members_.size());
    members_.push_back(rank);
  }
  rank_ = place_[static_cast<size_t>(own)];
  if (rank_ == 0 && members_.size() < static_cast<size_t>(size))
    std::fprintf(stderr,
                 "ina: %zu of %d processes have %s; communicators with others stay MPI's (preload "
                 "it for all, as with mpirun -x LD_PRELOAD or -genv LD_PRELOAD)\n",
                 members_.size(), size, INA_MPI_LIBRARY);
  if (members_.size() == 1) why_not_ = size == 1 ? "one rank" : "no other process has the library";
}

/// The other processes of MPI_COMM_WORLD do not notice.
void World::make_team() {
  if (members_.size() == place_.size()) {
    PMPI_Comm_dup(MPI_COMM_WORLD, &team_);
  } else {
    MPI_Group members = MPI_GROUP_NULL;
    PMPI_Group_incl(group_, static_cast<int>(members_.size()), members_.data(), &members);
    PMPI_Comm_create_group(MPI_COMM_WORLD, members, 0, &team_);
    PMPI_Group_free(&members);
  }
  std::array<char, 40> name{};
  if (rank_ == 0) std::strncpy(name.data(), random_name().c_str(), name.size() - 1);
  PMPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_BYTE, 0, team_);
  name_ = name.data();
}

/// Joins a job of all members. All of them are here, so that it takes no time; if one of them
/// cannot, none does. Those that are too many for one switch have their small communicators then.
void World::join_job() {
  auto made = std::make_shared<ina_context*>(nullptr);
  const auto call = [made, name = name_, rank = rank_, size = static_cast<int>(members_.size())] {
    ina_config config;
    ina_config_init(&config);
    config.job = name.c_str();
    config.rank = rank;
    config.world_size = size;
    config.timeout_us = kNoLimitUs;
    return ina_init(&config, made.get());
  };
  Apart joining(call);
  while (!joining.ended() && !others_have_failed()) pause();
  const bool failed = joining.ended() && joining.status() != INA_OK;
  const std::vector<int> all_failed = tell_of_failure(failed);
  if (all_failed.empty()) {
    job_ = *made;
    return;
  }
  const bool too_many = members_.size() > kMostOfOneSwitch;
  if (too_many)
    most_ranks_ = kMostOfOneSwitch;
  else
    why_not_ = failed ? "no switch" : "another rank has no switch";
  if (rank_ == all_failed.front())
    std::fprintf(stderr, "ina: MPI goes on without the switch%s: %s: %s\n",
                 too_many ? " for communicators of more than 64 ranks" : "",
                 ina_status_name(joining.status()), joining.text().c_str());
  // A second join by this rank ends a job that still waits for ranks.
  if (!joining.ended()) Apart(call).leave_alone();
  joining.leave_alone();
}

bool World::others_have_failed() const {
  int there = 0;
  PMPI_Iprobe(MPI_ANY_SOURCE, kFailedTag, team_, &there, MPI_STATUS_IGNORE);
  return there != 0;
}

/// Returns the ranks that have failed. A rank that has lets others know, which wait for it.
std::vector<int> World::tell_of_failure(bool failed) const {
  const auto size = static_cast<int>(members_.size());
  std::vector<MPI_Request> sent;
  for (int rank = 0; failed && rank < size; ++rank)
    if (rank != rank_)
      PMPI_Isend(nullptr, 0, MPI_BYTE, rank, kFailedTag, team_,
                 &sent.emplace_back(MPI_REQUEST_NULL));
  const int own = failed ? 1 : 0;
  std::vector<int> all(members_.size());
  PMPI_Allgather(&own, 1, MPI_INT, all.data(), 1, MPI_INT, team_);
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) {
    if (all[static_cast<size_t>(rank)] == 0) continue;
    ranks.push_back(rank);
    if (rank != rank_) PMPI_Recv(nullptr, 0, MPI_BYTE, rank, kFailedTag, team_, MPI_STATUS_IGNORE);
  }
  PMPI_Waitall(static_cast<int>(sent.size()), sent.data(), MPI_STATUSES_IGNORE);
  return ranks;
}

void World::begin_leaving(std::vector<ina_context*> jobs) {
  why_not_ = "MPI_Finalize";
  if (job_) jobs.assign(1, job_);  // with all its groups
  if (jobs.empty()) return;
  leaving_ = std::make_unique<Apart>([jobs = std::move(jobs)] {
    int status = INA_OK;
    for (ina_context* job : jobs)
      if (const int left = ina_finalize(job, kNoLimitUs); left != INA_OK) status = left;
    return status;
  });
}

void World::end_leaving() {
  if (!leaving_) return;
  timespec begun{}, now{};
  ::clock_gettime(CLOCK_MONOTONIC, &begun);
  do {
    if (leaving_->ended()) return leaving_.reset();
    const timespec nap{0, 1'000'000};
    ::nanosleep(&nap, nullptr);
    ::clock_gettime(CLOCK_MONOTONIC, &now);
  } while (now.tv_sec - begun.tv_sec < kLastWaitS);
  leaving_->leave_alone();
}

std::optional<std::vector<int>> World::ranks_of(MPI_Comm comm) const {
  MPI_Group group = MPI_GROUP_NULL;
  PMPI_Comm_group(comm, &group);
  int size = 0;
  PMPI_Group_size(group, &size);
  std::vector<int> ranks(static_cast<size_t>(size)), in_world(ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  PMPI_Group_translate_ranks(group, size, ranks.data(), group_, in_world.data());
  PMPI_Group_free(&group);
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (in_world[i] < 0) return std::nullopt;  // MPI_UNDEFINED: of another MPI_COMM_WORLD
    ranks[i] = place_[static_cast<size_t>(in_world[i])];
    if (ranks[i] < 0) return std::nullopt;
  }
  return ranks;
}

void World::pause() const {
  progress();
  const timespec nap{0, 20'000};
  ::nanosleep(&nap, nullptr);
}

void World::progress() const {
  // There are no such messages: where one waits already, MPI would not look for others.
  int ignored = 0;
  PMPI_Iprobe(MPI_ANY_SOURCE, kNoTag, team_, &ignored, MPI_STATUS_IGNORE);
}

// Messages, because a collective call of MPI's would have to be at the same place among the
// program's on all ranks.
void World::tell_calls(const std::vector<int>& ranks, uint64_t group, uint64_t calls) {
  const std::lock_guard lock(calls_mutex_);
  heard_calls_[{rank_, group}] = calls;
  const auto& said = sent_calls_.emplace_back(std::array{group, calls});
  for (const int rank : ranks) {
    if (rank == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    PMPI_Isend(said.data(), static_cast<int>(sizeof said), MPI_BYTE, rank, kCallsTag, team_,
               &request);
    PMPI_Request_free(&request);
  }
}

uint64_t World::most_calls(const std::vector<int>& ranks, uint64_t group) {
  uint64_t most = 0;
  for (const int rank : ranks) {
    std::optional<uint64_t> calls;
    while (!(calls = heard_calls(rank, group))) {
      hear_calls();
      pause();
    }
    most = std::max(most, *calls);
  }
  return most;
}

std::optional<uint64_t> World::heard_calls(int rank, uint64_t group) {
  const std::lock_guard lock(calls_mutex_);
  const auto found = heard_calls_.find({rank, group});
  if (found == heard_calls_.end()) return std::nullopt;
  return found->second;
}

void World::hear_calls() {
  const std::lock_guard lock(calls_mutex_);
  for (int there = 1; there;) {
    MPI_Status status;
    PMPI_Iprobe(MPI_ANY_SOURCE, kCallsTag, team_, &there, &status);
    if (!there) return;
    std::array<uint64_t, 2> said{};
    PMPI_Recv(said.data(), static_cast<int>(sizeof said), MPI_BYTE, status.MPI_SOURCE, kCallsTag,
              team_, MPI_STATUS_IGNORE);
    heard_calls_[{status.MPI_SOURCE, said[0]}] = said[1];
  }
}

int World::wait(std::function<int()> call, std::string& text) const {
  Apart apart(std::move(call));
  while (!apart.ended()) pause();
  text = apart.text();
  return apart.status();
}

}  // namespace ina::mpi
