// Errors that concern the ranks of a channel together: they disagree, or one has left before an
// operation that the others have called. The switch tells them all.
#pragma once

#include <optional>

#include "client/link.h"
#include "client/operations.h"
#include "client/progress.h"
#include "control/messages.h"
#include "membership/callers.h"
#include "membership/switch_connection.h"

namespace ina::client {

namespace request = control::request;
namespace answer = control::answer;

class PeerErrors {
 public:
  /// `channel`: of the connection. All must outlive it.
  PeerErrors(membership::SwitchConnection& connection, uint32_t channel, Link& link,
             const Operations& operations, const membership::Callers& callers, Progress& progress)
      : connection_(connection),
        channel_(channel),
        link_(link),
        operations_(operations),
        callers_(callers),
        progress_(progress) {}

  // Under the lock of Progress.
  /// After each turn: reports to the ranks the errors that the turn has found.
  void look_at_turn() {
    if (const auto& mismatch = link_.engine().mismatch(); mismatch && !mismatch_reported_)
      report(*mismatch);
    if (!mismatch_reported_ && !operations_.disagreement().empty()) report_disagreement();
    if (peer_left_) end_without_peer();
  }
  /// Another switch has been told nothing yet.
  void report_again() { mismatch_reported_ = false; }

  /// On the background thread.
  void on_peer_left(const answer::PeerLeft& left);

 private:
  void report(const aggregator::FallbackMismatch& mismatch);
  void report_disagreement();
  void end_without_peer();

  membership::SwitchConnection& connection_;
  const uint32_t channel_;
  Link& link_;
  const Operations& operations_;
  const membership::Callers& callers_;
  Progress& progress_;

  // Under the lock of Progress.
  std::optional<answer::PeerLeft> peer_left_;  ///< that called the fewest operations
  bool mismatch_reported_ = false;             ///< to this switch
};

}  // namespace ina::client
