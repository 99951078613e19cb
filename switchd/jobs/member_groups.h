// Groups that their members ask for by themselves (ina_create_group): no other worker of the job
// takes part. See docs/protocol.md, "Groups".
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "control/messages.h"
#include "switchd/connections.h"
#include "switchd/jobs/group_maker.h"
#include "switchd/jobs/job_ending.h"
#include "switchd/jobs/job_offers.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/tree_groups.h"

namespace ina::switchd {

/// Why the request is none that rank `rank` of `job` may make; empty: it is one.
std::string fault_of(const Job& job, uint32_t rank, const control::request::CreateGroup& create);
/// A request with the same tag and other ranks, of a member of this group or for one with `rank`,
/// in words; empty: there is none.
std::string disagreement(const Job& job, uint32_t rank,
                         const control::request::CreateGroup& create);
/// True if all members have made this request.
bool is_complete(const Job& job, const control::request::CreateGroup& create);

class MemberGroups {
 public:
  /// All of them must outlive it.
  MemberGroups(JobTable& jobs, GroupMaker& maker, TreeGroups& tree_groups, JobEnding& ending,
               JobOffers& offers, Connections& connections)
      : jobs_(jobs),
        maker_(maker),
        tree_groups_(tree_groups),
        ending_(ending),
        offers_(offers),
        connections_(connections) {}

  /// Waits until all members have asked.
  void on_create(Client& client, const control::request::CreateGroup& create);
  /// A worker at a switch below asks.
  void on_peer_create(Job& job, const control::request::PeerCreate& said);
  /// The switch above is back, and may not know what was asked.
  static void ask_above(const Job& job);
  /// Makes one group: nobody waits for many groups of another.
  void go_on();
  bool under_way() const { return !complete_.empty(); }
  /// A worker has called ina_finalize: groups with it can never be made.
  void refuse(Job& job);

 private:
  /// A request that all members have made.
  struct Complete {
    JobId job{};
    control::request::CreateGroup create;
  };
  void take(Job& job, uint32_t rank, const control::request::CreateGroup& create);
  void answer(Job& job, const control::request::CreateGroup& create, const Result<JobId>& group);

  JobTable& jobs_;
  GroupMaker& maker_;
  TreeGroups& tree_groups_;
  JobEnding& ending_;
  JobOffers& offers_;
  Connections& connections_;
  std::deque<Complete> complete_;
};

}  // namespace ina::switchd
