// A channel's requests for groups that their members make by themselves (ina_create_group). Any
// number of threads may ask at a time, each with a tag of its own. See docs/protocol.md, "Groups".
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "client/callers.h"
#include "client/group_offer.h"
#include "client/progress.h"
#include "client/session.h"

namespace ina::client {

class MemberGroups {
 public:
  /// `channel`: of the session. All must outlive it.
  MemberGroups(Session& session, uint32_t channel, const Progress& progress, Callers& callers)
      : session_(session), channel_(channel), progress_(progress), callers_(callers) {}

  /// Waits until all members have asked. Nothing: the time has passed, or the job has failed.
  /// Error: another thread waits with this tag.
  Result<std::optional<GroupOffer>> ask(const std::vector<uint32_t>& ranks, uint64_t tag,
                                        Nanos timeout_ns);

  // On the background thread.
  void on_answer(const answer::CreateGroup& created);
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

  Session& session_;
  const uint32_t channel_;
  const Progress& progress_;
  Callers& callers_;
  std::map<uint64_t, Asked> asked_;  ///< by tag, under the lock of Callers
};

}  // namespace ina::client
