// Jobs that their workers split into groups. See docs/protocol.md, "Groups".
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "control/messages.h"
#include "switchd/connections.h"
#include "switchd/jobs/group_maker.h"
#include "switchd/jobs/job_ending.h"
#include "switchd/jobs/job_offers.h"
#include "switchd/jobs/job_table.h"
#include "switchd/jobs/tree_groups.h"

namespace ina::switchd {

/// Ranks that become a group.
struct Colour {
  int64_t colour = 0;
  std::vector<uint32_t> ranks;  ///< of the job that is split, by rank in the group
  JobId group{};                ///< once it is made
  bool operator==(const Colour&) const = default;
};
/// The colours that all members of the job have asked for, each for its own rank. Error: they
/// disagree, and its text names the difference.
Result<std::vector<Colour>> colours_of(const Job& job);

class Splits {
 public:
  /// All of them must outlive it.
  Splits(JobTable& jobs, GroupMaker& maker, TreeGroups& tree_groups, JobEnding& ending,
         JobOffers& offers, Connections& connections)
      : jobs_(jobs),
        maker_(maker),
        tree_groups_(tree_groups),
        ending_(ending),
        offers_(offers),
        connections_(connections) {}

  /// Collective: happens once all workers have asked.
  void on_split(Client& client, const control::request::Split& split);
  /// A worker at a switch below asks.
  void on_peer_split(Job& job, const control::request::PeerSplit& said);
  /// The switch above is back, and may not know what was asked.
  static void ask_above(const Job& job);
  /// Makes one group of the split whose turn it is: nobody waits for many groups of another.
  void go_on();
  bool under_way() const { return !splits_.empty(); }
  /// A worker has called ina_finalize: the splits that others ask for can never be made.
  void refuse(Job& job);

 private:
  /// A split that all members have asked for.
  struct Split {
    JobId job{};
    uint32_t number = 0;
    std::vector<Colour> colours;
    size_t made = 0;
  };
  void take(Job& job, uint32_t rank, const control::request::Split& split);
  void begin(Job& job);
  void answer(Job& job, const Split& split);
  void give_up(const Split& split, Job* job, const Error& error);

  JobTable& jobs_;
  GroupMaker& maker_;
  TreeGroups& tree_groups_;
  JobEnding& ending_;
  JobOffers& offers_;
  Connections& connections_;
  std::deque<Split> splits_;
};

}  // namespace ina::switchd
