#include "client/peer_errors.h"

#include <string>

#include "wire/text.h"

namespace ina::client {

namespace {

/// Compares numbers of operations, which are modulo 2^32.
bool comes_before(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a - b) < 0;
}

}  // namespace

/// This worker, or the fallback in it, found that the ranks disagree. The switch tells them all.
void PeerErrors::report(const aggregator::FallbackMismatch& mismatch) {
  mismatch_reported_ = connection_.send(
      channel_, request::Mismatch{wire::mismatch_text(mismatch.first, mismatch.first_signature,
                                                      mismatch.other, mismatch.other_signature)});
}

/// All ranks have found the same; the switch tells it to those that wait.
void PeerErrors::report_disagreement() {
  mismatch_reported_ = connection_.send(channel_, request::Mismatch{operations_.disagreement()});
}

void PeerErrors::on_peer_left(const answer::PeerLeft& left) {
  const auto lock = progress_.lock();
  if (!peer_left_ || comes_before(left.operations, peer_left_->operations)) peer_left_ = left;
  end_without_peer();
}

/// Under the lock of Progress. An operation that a rank has not called before it left never
/// completes.
void PeerErrors::end_without_peer() {
  if (!link_.has_engine() || callers_.failed() != INA_OK) return;
  const Operation* const hopeless = link_.engine().find_running([&](const Operation& operation) {
    return !comes_before(operation.number, peer_left_->operations);
  });
  if (!hopeless) return;
  const std::string text = "rank " + std::to_string(peer_left_->rank) +
                           " has called ina_finalize without calling " + describe(*hopeless);
  connection_.send(channel_, request::Abort{text, peer_left_->rank});
  progress_.end(INA_ERR_PEER_LOST, text);
}

}  // namespace ina::client
