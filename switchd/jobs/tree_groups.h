// Groups of workers of several switches: the requests go up to a switch that has them all, or below
// it, and the groups down to those whose workers are in them.
#pragma once

#include <string>
#include <vector>

#include "control/messages.h"
#include "switchd/connections.h"
#include "switchd/jobs/group_maker.h"
#include "switchd/jobs/job.h"

namespace ina::switchd {

class TreeGroups {
 public:
  /// Both must outlive it.
  TreeGroups(GroupMaker& maker, Connections& connections)
      : maker_(maker), connections_(connections) {}

  /// True if workers of these ranks are at the switch above, which has to make their group.
  static bool go_up(const Job& job, const std::vector<uint32_t>& ranks);
  /// True if one switch below has them all, and is to make their group.
  static bool go_down(const Job& job, const std::vector<uint32_t>& ranks);

  /// Tells the switches below of a group, or of an error: `grouped`, whose ranks that asked are
  /// `of`.
  void tell_below(Job& job, control::answer::Grouped grouped, const RankSet& of);
  /// A group of `ranks` that has been made here, as messages have it.
  control::answer::Grouped grouped(JobId group, const std::vector<uint32_t>& ranks) const;
  /// The switch above has answered: for workers here, and below.
  void on_grouped(Job& job, const control::answer::Grouped& said);

 private:
  void answer(Job& job, uint32_t rank, const control::answer::Grouped& said, JobId group);

  GroupMaker& maker_;
  Connections& connections_;
};

}  // namespace ina::switchd
