// The engine's receipt of messages: above all results, and the path and congestion that they
// report.
#include <algorithm>

#include "fragments/engine.h"
#include "wire/rules.h"

namespace ina::client {

using wire::Message;
using wire::Type;

namespace {

// Results of operations of this size and more have left the caches before a program reads them.
constexpr uint64_t kStreamBytes = 8 << 20;
// A worker that has run ahead by more than this part of the window is one of the first.
constexpr uint32_t kFarAhead = 4;

/// True if a result is of a parked fragment: a part left the array before the rest came.
bool was_parked(const Message& result) {
  return result.origin == wire::Origin::kParker || (result.flags & wire::kFlagParked) != 0;
}

}  // namespace

size_t Engine::accept(const RxPacket& packet, Nanos now, CopyJob* jobs) {
  const Message& message = packet.message;
  if (message.type == Type::kPark ||
      (message.type == Type::kPart && message.origin == wire::Origin::kParker))
    return on_park(packet, now, jobs);
  switch (message.type) {
    case Type::kResult:
      return accept_result(packet, now, jobs);
    case Type::kStale:
      set_epoch(message.epoch, now);
      return 0;
    case Type::kParked:
      on_parked(message, now);
      return 0;
    case Type::kPoll:
      if (message.phase >= wire::Phase::kAgain) {
        send_again(extend(message.seq, low_), message.phase == wire::Phase::kLost, now);
        return 0;
      }
      if (questions_.full()) {
        ++counters_.answers_lost;  // it will be asked again
        return 0;
      }
      questions_.push({extend(message.seq, low_), message.bitmap, message.instance, message.phase});
      return 0;
    default:
      if (fallback_) return on_fallback_message(packet, now, jobs);
      ++counters_.results_ignored;
      return 0;
  }
}

/// With straggler help half of all results come from workers. A result decided here is taken at
/// once, and need not come back over this worker's link.
size_t Engine::on_fallback_message(const RxPacket& packet, Nanos now, CopyJob* jobs) {
  const uint64_t decided = fallback_->counters().decided;
  fallback_->on_message(packet.message, packet.payload);
  if (!keeps_results() || fallback_->counters().decided == decided || !rule(Rule::kKeptResult))
    return 0;
  TxPacket result;
  if (!fallback_->result_of(extend(packet.message.seq, low_), result)) return 0;
  // Nobody else would miss it, should the switch not hear of it.
  if (result.message.receiver != 0) return 0;
  return accept_result({result.message, result.payload, result.payload_bytes}, now, jobs);
}

size_t Engine::accept_result(const RxPacket& packet, Nanos now, CopyJob* jobs) {
  const Message& message = packet.message;
  if (message.bare()) [[unlikely]] {
    accept_bare_results(message, now);
    return 0;
  }
  const auto ignore = [this]() -> size_t {
    ++counters_.results_ignored;
    return 0;
  };
  const Seq seq = extend(message.seq, low_);
  if ((message.flags & wire::kFlagAgain) != 0) look_for_needless_question(seq, now);
  if (seq < low_ || seq >= next_) return ignore();
  Fragment& fragment = this->fragment(seq);
  if (fragment.state == State::kDone) {
    // A sum completed here has come back, into the transport's memory.
    if (config_.results_stay && parker_ && message.origin == wire::Origin::kParker)
      if (Parker::Held* const held = parker_->find(seq)) {
        fragment.result = packet.payload;
        parker_->release(*held);
      }
    return ignore();
  }
  if (fragment.state == State::kUnsent) return ignore();
  // A bound worker waits for the fallback's decision: others may have been given another sum.
  if (fragment.bound != 0) {
    if (message.origin != wire::Origin::kFallback && rule(Rule::kResultOrigin)) return ignore();
    if (message.instance + 1 < fragment.bound && rule(Rule::kInstance)) return ignore();
  }
  Operation& operation = *fragment.operation;
  const ExpectedResult ours = operation.expected(seq, config_.rank);
  note_mismatch(ours.signature, message);
  if (!ours.bytes || message.signature() != ours.signature || message.elements != ours.elements ||
      packet.payload_bytes != ours.elements * wire_bytes(message.dtype))
    return ignore();
  // Only the switch can write there.
  if (message.target != 0 && packet.payload != ours.to) return ignore();
  complete(seq, fragment, message, now);
  fragment.elements = message.elements;
  fragment.flags = message.flags & (wire::kFlagOverflow | wire::kFlagSplit);
  fragment.target = message.target;
  fragment.to_one = message.receiver != 0;
  fragment.result = config_.results_stay ? packet.payload : kept_.row(seq);
  const bool closes = operation.is_closing(seq);
  const uint32_t told_at = rule(Rule::kReceiptWhole) ? 0 : 1;
  if (!closes && --operation.to_receive <= told_at && operation.closes)
    received_.push_back(&operation);
  fragment.operation = nullptr;
  counters_.bytes_received += packet.payload_bytes;
  if (packet.payload_bytes != 0) ++counters_.payloads_received;
  if (message.origin != wire::Origin::kSwitch) counters_.bytes_by_fallback += packet.payload_bytes;
  if (message.flags & wire::kFlagOverflow) ++counters_.overflows;
  if (closes) accept_missing_bare_results(operation, message, now);
  if (packet.payload_bytes == 0 || message.target != 0) return 0;
  size_t count = 0;
  if (!ours.is_there) {
    counters_.bytes_copied += packet.payload_bytes;
    const bool stream = operation.spec.elements * wire_bytes(operation.spec.dtype) >= kStreamBytes;
    jobs[count++] = {ours.to, packet.payload, packet.payload_bytes, stream};
  }
  if (!config_.results_stay) jobs[count++] = {kept_.row(seq), packet.payload, packet.payload_bytes};
  return count;
}

/// An answer has come for a fragment whose result was here before. So the only question for it was
/// sent while the result was under way, and did not cause it (as D-SACK tells TCP, RFC 3708): the
/// round trip is a sample. Where all round trips have become longer than the time-out, there are no
/// others.
void Engine::look_for_needless_question(Seq seq, Nanos now) {
  if (seq >= next_ || seq + ring_.size() < next_) return;
  const Fragment& done = fragment(seq);
  if (done.state == State::kDone && done.asked_once && done.epoch == config_.epoch)
    timeouts_.round_trip.sample(done.deadline - done.sent_at, now, done.clocked);
}

/// Fragments that are decided, of which this worker gets nothing. Nobody could have been given
/// anything else, so it does not matter who says so.
void Engine::accept_bare_results(const Message& message, Nanos now) {
  const Seq begin = extend(message.seq, low_);
  for (uint64_t i = 0; i < message.elements; ++i) {
    const Seq seq = begin + i * config_.lanes;
    if (seq >= next_) return;
    if (seq < low_) continue;
    Fragment& fragment = this->fragment(seq);
    if (!takes_bare_result(seq, fragment, message)) {
      // Later ones may be of the next operation, or have bytes for this worker.
      const bool waits = fragment.state == State::kSent || fragment.state == State::kOverdue;
      if (i == 0 && waits)
        note_mismatch(fragment.operation->expected(seq, config_.rank).signature, message);
      if (i == 0 || fragment.bare) ++counters_.results_ignored;
      continue;
    }
    fragment.bare = true;
    complete(seq, fragment, message, now);
  }
}

/// No other operation ever has a fragment of this number, so a worker that was given another result
/// called another operation. Marks may have met where nobody could compare them.
void Engine::note_mismatch(const wire::Signature& ours, const Message& message) {
  if (mismatch_ || same_operation(ours, message.signature()) || !rule(Rule::kResultAgrees)) return;
  const WorkerSet self = WorkerSet::of(config_.rank);
  mismatch_ = aggregator::FallbackMismatch{self, WorkerSet::first(config_.workers) - self, ours,
                                           message.signature()};
}

bool Engine::takes_bare_result(Seq seq, const Fragment& fragment, const Message& message) const {
  if (fragment.state != State::kSent && fragment.state != State::kOverdue) return false;
  const Operation& operation = *fragment.operation;
  if (!operation.spec.blocks || operation.number != message.operation) return false;
  return operation.is_for_others(seq, config_.rank);
}

/// All workers have entered the operation's closing fragment: all that is missing here is bare.
void Engine::accept_missing_bare_results(Operation& operation, const Message& message, Nanos now) {
  const Seq end = operation.end() - 1;
  for (Seq seq = std::max(low_, operation.first_seq); seq < end; ++seq) {
    Fragment& fragment = this->fragment(seq);
    if (!takes_bare_result(seq, fragment, message)) continue;
    fragment.bare = true;
    complete(seq, fragment, message, now);
  }
}

/// A result has been taken, with bytes or without.
void Engine::complete(Seq seq, Fragment& fragment, const Message& message, Nanos now) {
  // Karn: never from a fragment that was sent or asked for again. A mark waits for its fragment's
  // source, and the fragments of a closing one's bare results wait for that one. A result that came
  // later than a time-out may have waited until other workers recovered a loss.
  const bool stood_for = fragment.bare && !message.bare();
  const bool own_round_trip = !fragment.parked && !fragment.mark && !stood_for;
  if (fragment.timeouts == 0 && fragment.state == State::kSent && fragment.epoch == config_.epoch &&
      own_round_trip && !fragment.waited)
    timeouts_.round_trip.sample(now - fragment.sent_at, now, fragment.clocked);
  else
    doubt_rtt(fragment, now);
  // More are overdue: half of those before are recovered.
  if (recoveries_until_look_ != 0 && fragment.bound != 0 && --recoveries_until_look_ == 0)
    next_deadline_ = now;
  adjust_windows(message, seq, fragment);
  // The result or a contribution was lost: what the switch gives twice comes in order.
  if ((message.flags & wire::kFlagAgain) != 0) link_loses(seq);
  if (fragment.timeouts == 0 && !fragment.mark && !stood_for)
    delivered_sent_at_ = std::max(delivered_sent_at_, fragment.sent_at);
  if (config_.lossy_link && !fragment.mark) look_after_overtaken(fragment, seq);
  if (fragment.parked)
    --parked_;
  else if (!fragment.mark)
    --in_flight_;
  progress_at_ = now;
  windows_.delivered(now, in_flight_ == 0, timeouts_.round_trip);

  fragment.asked_once = fragment.timeouts == 1 && fragment.queried && own_round_trip;
  fragment.deadline = now;
  fragment.state = State::kDone;
  fragment.operation_elements = message.operation_elements;
  fragment.operation_number = message.operation;
  fragment.dtype = message.dtype;
  fragment.op = message.op;
  fragment.collective = message.collective;
  if (seq >= results_end_) {
    const Seq before = results_end_;
    results_end_ = seq + 1;
    if (before < seq) expect_late(before, seq, now);
    if (fallback_ && seq.value >= config_.window) fallback_->raise_floor(seq - config_.window);
  }
  ++counters_.results;
  if (message.origin == wire::Origin::kFallback) ++counters_.results_from_fallback;
  Operation& operation = *fragment.operation;
  if (++operation.complete == operation.fragments) finished_.push_back(&operation);
}

/// True if a result's mark is for this worker. `parked`: the result's fragment was parked.
bool Engine::is_slowed_by(const Message& message, bool parked) const {
  // A fragment parked in the switch loads links only with its result, which comes as fast as the
  // last contribution: only the sender of that can slow it down.
  if (config_.home == Home::kSpill) return !parked || message.origin != wire::Origin::kFallback;
  // A fragment kept by a worker loads links when it leaves the array, too. The workers furthest
  // ahead can wait; if the others did, too, all would wait for them in the end.
  if (config_.park_room == 0 || (!parked && !was_parked(message))) return true;
  return next_ - low_ > config_.window / kFarAhead;
}

void Engine::adjust_windows(const Message& message, Seq seq, const Fragment& fragment) {
  const bool parked = fragment.parked;
  catches_up_ = config_.park_room != 0 && !parked && was_parked(message);
  if (message.flags & wire::kFlagEcn) {
    ++counters_.ecn_marks;
    if (is_slowed_by(message, parked)) windows_.marked(seq, next_);
  } else {
    // The array is full: a contribution that finds no slot must find room elsewhere.
    if (message.origin == wire::Origin::kFallback && !config_.lossy_link) windows_.go_slower();
    if (!fragment.mark) windows_.unmarked(seq, next_, in_flight_);
  }
  // The parts of a parked fragment must meet outside the switch.
  windows_.losing(loses_now(seq));
  if ((message.flags & wire::kFlagSplit) != 0 && !parked)
    windows_.split(seq, next_, in_flight_, timeouts_.round_trip);
  else
    windows_.whole(seq, in_flight_, timeouts_.round_trip);
}

}  // namespace ina::client
