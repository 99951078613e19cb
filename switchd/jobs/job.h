// A job, or a group of a job's ranks, as the conductor knows it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/debt.h"
#include "io/shm/region.h"
#include "scheduler/admission.h"
#include "switchd/client.h"
#include "switchd/jobs/domain.h"
#include "switchd/jobs/tree.h"
#include "switchd/lanes/lane_place.h"
#include "switchd/memory/handles.h"
#include "switchd/ports/way.h"
#include "switchd/reports/look_schedule.h"
#include "wire/frame.h"
#include "wire/rank_set.h"

namespace ina::switchd {

/// The fallback server's place: no worker has this rank.
inline constexpr Rank kServerPlace{0xffff};
/// Places of switches below, in their order, from here on.
inline constexpr uint16_t kFirstPlaceBelow = 0x8000;

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
    /// In kRejoining, of a job in a tree: the fragments whose results it has, and the end of all of
    /// which it has seen results.
    std::vector<Seq> held;
    Seq results_end;
    // Of a spread job.
    uint32_t number = 0;     ///< among the members of this switch
    bool elsewhere = false;  ///< at another switch
    bool has_left = false;   ///< elsewhere: it has said goodbye
  };
  /// A switch below, which is one member for its workers.
  struct Below {
    Worker place;
    RankSet ranks;
    uint64_t key = 0;      ///< of its frames; each life of the switch has another
    Nanos lost_since = 0;  ///< its connection is gone; 0: it is there
  };
  /// Results that all workers share: io/shm/layout.h.
  struct ResultBuffer {
    io::shm::Region region;
    uint32_t first_unit = 0;
    uint32_t units = 0;
    Handles::Share share;
    RankSet freed = {};  ///< workers that need it no more
    uint64_t bytes() const { return uint64_t{units} * wire::kTargetUnitBytes; }
  };
  std::string name;
  /// Its workers may be at several switches. Members of its domains are the workers of this switch
  /// and the switches below then, in the order in which they came.
  bool spread = false;
  std::vector<std::unique_ptr<Below>> below;
  std::unique_ptr<Above> above;  ///< nullptr: all its workers are here or below, or not known yet
  /// One, or those of its members, 64 each, and then their root.
  std::vector<Domain> domains;
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
  Home home = Home::kWorkers;  ///< place of the fallback, as told to its workers
  uint32_t instance = 0;       ///< of the fallback
  io::shm::Geometry geometry;
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
  Nanos rejoin_deadline = 0;   ///< in kRejoining
  bool tells_missing = false;  ///< its workers are to hear soon for whom they wait
  LookSchedule looks;          ///< at the frames of its workers that were dropped
  Seq start;                   ///< in kRejoining: no worker needs a fragment before it any more
  std::vector<Worker> members;
  Worker fallback;       ///< a fallback server's place; home dedicated only
  bool offered = false;  ///< the fallback server that is connected was told of it

  /// To whose account it goes.
  std::string owner() const { return tenant.empty() ? fmt::format("uid:{}", uid) : tenant; }
  bool is_group() const { return value(root) != 0; }
  /// `id` is that of the job, or, if it is a group, of the job whose workers are in it.
  bool is_of(JobId id_of_job) const { return id == id_of_job || root == id_of_job; }
  const Worker& at(Rank rank) const {
    if (rank == kServerPlace) return fallback;
    if (value(rank) >= kFirstPlaceBelow) return below[value(rank) - kFirstPlaceBelow]->place;
    return members[value(rank)];
  }
  Worker& at(Rank rank) { return const_cast<Worker&>(std::as_const(*this).at(rank)); }
  /// nullptr: `rank` is the place of no switch.
  Below* below_at(Rank rank) {
    if (rank == kServerPlace || value(rank) < kFirstPlaceBelow) return nullptr;
    return below[value(rank) - kFirstPlaceBelow].get();
  }
  const Below* below_at(Rank rank) const { return const_cast<Job*>(this)->below_at(rank); }
  /// The switch below that has the worker; nullptr: none.
  const Below* below_with(uint32_t rank) const {
    for (const auto& one : below)
      if (one->ranks.contains(Rank{static_cast<uint16_t>(rank)})) return one.get();
    return nullptr;
  }
  static Rank place_below(size_t number) {
    return Rank{static_cast<uint16_t>(kFirstPlaceBelow + number)};
  }
  /// All its members' places: `visit(rank, worker)`.
  void for_each_place(auto&& visit) { for_each_place_of(*this, visit); }
  void for_each_place(auto&& visit) const { for_each_place_of(*this, visit); }
  /// Those who are connected: `visit(client)`.
  void for_each_client(auto&& visit) {
    for_each_place([&](Rank, Worker& worker) {
      if (worker.client) visit(*worker.client);
    });
  }
  /// How many domains a job with so many members at this switch has.
  static uint32_t domains_for(size_t members) {
    return members <= kMaxWorkers
               ? 1
               : static_cast<uint32_t>((members + kMaxWorkers - 1) / kMaxWorkers) + 1;
  }
  /// By which others find it.
  aggregator::JobIndex index() const { return domains.front().index; }
  bool is_wide() const { return domains.size() > 1; }
  /// Of a wide job: above the domains of its members; otherwise the only one.
  const Domain& root_domain() const { return domains.back(); }
  /// Those of workers, and of switches below.
  std::span<const Domain> workers_domains() const {
    return std::span(domains).first(is_wide() ? domains.size() - 1 : 1);
  }
  /// Among the members of this switch.
  uint32_t number_of(Rank rank) const { return spread ? at(rank).number : value(rank); }
  Domain& domain_of(Rank rank) { return domains[is_wide() ? number_of(rank) / kMaxWorkers : 0]; }
  LanePlace lane_place(Rank rank) const {
    if (rank == kServerPlace) return {index(), kFallbackRank};
    const uint32_t number = number_of(rank);
    return {domains[number / kMaxWorkers].index, Rank{static_cast<uint16_t>(number % kMaxWorkers)}};
  }
  /// The workers that are members of one of its domains, or below them.
  RankSet ranks_of(aggregator::JobIndex domain, WorkerSet those_members) const {
    RankSet ranks;
    for (const Domain& one : domains) {
      if (one.index != domain) continue;
      for (uint32_t rank = 0; rank < workers; ++rank)
        if (const uint8_t member = one.member_at(rank);
            member < kMaxWorkers && those_members.contains(Rank{member}))
          ranks.insert(Rank{static_cast<uint16_t>(rank)});
    }
    return ranks;
  }
  /// The workers of a switch below are back, or not.
  void set_attached(const Below& one, bool attached) {
    for (const Rank rank : one.ranks) at(rank).attached = attached;
  }
  /// Some of its workers are at other switches.
  bool is_apart() const {
    return std::ranges::any_of(members, [](const Worker& worker) { return worker.elsewhere; });
  }
  /// The workers of a switch below, so far.
  void set_below(Below& one, const RankSet& ranks) {
    for (const Rank rank : one.ranks) members[value(rank)] = Worker{};
    one.ranks = ranks;
    for (const Rank rank : ranks) {
      members[value(rank)].elsewhere = true;
      members[value(rank)].attached = true;
    }
  }
  /// The lowest number that no member of a spread job has.
  uint32_t free_number() const {
    RankSet taken;
    for_each_place([&](Rank, const Worker& worker) {
      if (worker.client) taken.insert(Rank{static_cast<uint16_t>(worker.number)});
    });
    uint32_t number = 0;
    while (number < kMaxRanks && taken.contains(Rank{static_cast<uint16_t>(number)})) ++number;
    return number;
  }
  /// Of a spread job, all of whose members are known: says which ranks are below which of them.
  /// False: one has left again, and so their numbers have a gap.
  bool settle() {
    for (Domain& domain : domains) {
      domain.member_of.assign(workers, aggregator::TreePlace::kElsewhere);
      domain.members = 0;
    }
    RankSet numbers;
    for_each_place([&](Rank place, const Worker& worker) {
      numbers.insert(Rank{static_cast<uint16_t>(worker.number)});
      const uint32_t at = worker.number / kMaxWorkers;
      const auto set = [&](Rank rank) {
        domains[at].member_of[value(rank)] = static_cast<uint8_t>(worker.number % kMaxWorkers);
        if (is_wide()) domains.back().member_of[value(rank)] = static_cast<uint8_t>(at);
      };
      if (const Below* const one = below_at(place))
        for (const Rank rank : one->ranks) set(rank);
      else
        set(place);
      ++domains[at].members;
    });
    if (is_wide()) domains.back().members = static_cast<uint32_t>(domains.size() - 1);
    return numbers == RankSet::first(numbers.size()) &&
           domains.size() == domains_for(numbers.size());
  }
  /// Where `client` has its place; nullptr: it has none.
  static Worker* of(const Client& client) {
    if (!client.job) return nullptr;
    Worker& worker = client.job->at(client.rank);
    return worker.client == &client ? &worker : nullptr;
  }
  RankSet all() const { return RankSet::first(workers); }
  /// The workers of whose places `has` is true.
  RankSet those(auto&& has) const {
    RankSet found;
    for (uint32_t rank = 0; rank < workers; ++rank)
      if (has(members[rank])) found.insert(Rank{static_cast<uint16_t>(rank)});
    return found;
  }
  RankSet attached() const {
    return those([](const Worker& worker) { return worker.attached; });
  }
  /// Not attached.
  RankSet missing() const { return all() - attached(); }
  RankSet members_present() const {
    return those([](const Worker& worker) { return worker.client || worker.elsewhere; });
  }
  /// Ranks whose workers have called ina_finalize, or are gone.
  RankSet leaving_or_gone() const {
    return those([](const Worker& worker) {
      if (worker.elsewhere) return worker.has_left;
      return !worker.client || worker.client->state == Client::State::kLeaving;
    });
  }

 private:
  template <class Self>
  static void for_each_place_of(Self& job, auto&& visit) {
    for (uint32_t rank = 0; rank < job.workers; ++rank)
      if (!job.members[rank].elsewhere) visit(Rank{static_cast<uint16_t>(rank)}, job.members[rank]);
    for (size_t i = 0; i < job.below.size(); ++i) visit(place_below(i), job.below[i]->place);
  }
};

}  // namespace ina::switchd
