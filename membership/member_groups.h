// A channel's requests for groups that their members make by themselves (ina_create_group). Any
// number of threads may ask at a time, each with a tag of its own. See docs/protocol.md, "Groups".
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "membership/callers.h"
#include "membership/group_offer.h"
#include "membership/presence.h"
#include "membership/switch_connection.h"

namespace ina::membership {

class MemberGroups {
 public:
  /// `channel`: of the connection. All must outlive it.
  MemberGroups(SwitchConnection& connection, uint32_t channel, const Presence& presence,
               Callers& callers)
      : connection_(connection), channel_(channel), presence_(presence), callers_(callers) {}

  /// Waits until all members have asked. Nothing: the time has passed, or the job has failed.
  /// Error: another thread waits with this tag.
  Result<std::optional<GroupOffer>> ask(const std::vector<uint32_t>& ranks, uint64_t tag,
                                        Nanos timeout_ns);

  // For the thread that reads the connection.
  /// `losses`: as Splits::on_split() takes it.
  void on_answer(const answer::CreateGroup& created, uint64_t losses);
  /// The switch has gone. Under the lock of Callers.
  void go_away();
  /// The job runs again.
  void ask_again();

 private:
  struct Asked {
    request::CreateGroup create;
    bool sent = false;  ///< on this connection
    std::optional<GroupOffer> offer = std::nullopt;
  };

  SwitchConnection& connection_;
  const uint32_t channel_;
  const Presence& presence_;
  Callers& callers_;
  std::map<uint64_t, Asked> asked_;  ///< by tag, under the lock of Callers
};

}  // namespace ina::membership
