#include "fragments/results.h"

#include <algorithm>
#include <cstring>

#include "wire/rules.h"

namespace ina::client {

using wire::Message;

namespace {

// Results of operations of this size and more have left the caches before a program reads them.
constexpr uint64_t kStreamBytes = 8 << 20;
// A worker that has run ahead by more than this part of the window is one of the first.
constexpr uint32_t kFarAhead = 4;

/// True if a result is of a parked fragment: a part left the array before the rest came.
bool was_parked(const Message& result) {
  return result.origin == wire::Origin::kParker || (result.flags & wire::kFlagParked) != 0;
}

/// True if a fragment under way waits for this result. A bound worker waits for the fallback's
/// decision: others may have been given another sum.
bool waits_for(const Fragment& fragment, const Message& message) {
  if (fragment.state == Fragment::State::kUnsent) return false;
  if (fragment.bound == 0) return true;
  if (message.origin != wire::Origin::kFallback && rule(Rule::kResultOrigin)) return false;
  return message.instance + 1 >= fragment.bound || !rule(Rule::kInstance);
}

/// True if it is the result of the operation that this worker has called, where it expects it.
bool is_as_expected(const ExpectedResult& ours, const RxPacket& packet) {
  const Message& message = packet.message;
  if (!ours.bytes || message.signature() != ours.signature || message.elements != ours.elements ||
      packet.payload_bytes != ours.elements * wire_bytes(message.dtype))
    return false;
  // Only the switch can write there.
  return message.target == 0 || packet.payload == ours.to;
}

/// What HAVE tells of a result, which is kept at `kept`.
void note_result(const Message& message, const std::byte* kept, Fragment& fragment) {
  fragment.elements = message.elements;
  fragment.flags = message.flags & (wire::kFlagOverflow | wire::kFlagSplit);
  fragment.target = message.target;
  fragment.to_one = message.receiver != 0;
  fragment.result = kept;
  fragment.operation = nullptr;
}

void count_result(const RxPacket& packet, EngineCounters& counters) {
  counters.bytes_received += packet.payload_bytes;
  if (packet.payload_bytes != 0) ++counters.payloads_received;
  if (packet.message.origin != wire::Origin::kSwitch)
    counters.bytes_by_fallback += packet.payload_bytes;
  if (packet.message.flags & wire::kFlagOverflow) ++counters.overflows;
}

}  // namespace

Results::Results(Flow& flow, const Others& others)
    : flow_(flow), others_(others), kept_(2 * size_t{flow.config.window}, flow.config.slot_bytes) {}

size_t Results::accept(const RxPacket& packet, Nanos now, CopyJob* jobs) {
  const Message& message = packet.message;
  if (message.bare()) [[unlikely]] {
    accept_bare(message, now);
    return 0;
  }
  if (is_of_earlier_life(message)) return ignore();
  const Seq seq = flow_.ring.extended(message.seq);
  if ((message.flags & wire::kFlagAgain) != 0) look_for_needless_question(seq, now);
  if (!flow_.ring.is_started(seq)) return ignore();
  Fragment& fragment = flow_.ring[seq];
  if (fragment.is_done()) {
    // A sum completed here has come back, into the transport's memory.
    if (flow_.config.results_stay && message.origin == wire::Origin::kParker &&
        others_.parking.release(seq))
      fragment.result = packet.payload;
    return ignore();
  }
  if (!waits_for(fragment, message)) return ignore();
  Operation& operation = *fragment.operation;
  const ExpectedResult ours = operation.expected(seq, flow_.config.rank);
  note_mismatch(ours.signature, message);
  if (!is_as_expected(ours, packet)) return ignore();
  complete(seq, fragment, message, now);
  std::byte* const row = flow_.config.results_stay ? nullptr : kept_.row(seq);
  note_result(message, row ? row : packet.payload, fragment);
  count_result(packet, flow_.counters);
  if (operation.is_closing(seq)) {
    accept_missing_bare(operation, message, now);
  } else {
    const uint32_t told_at = rule(Rule::kReceiptWhole) ? 0 : 1;
    if (--operation.to_receive <= told_at && operation.closes)
      others_.operations.note_received(operation);
  }
  if (packet.payload_bytes == 0 || message.target != 0) return 0;
  size_t copies = 0;
  if (!ours.is_there) {
    flow_.counters.bytes_copied += packet.payload_bytes;
    const bool stream = operation.spec.elements * wire_bytes(operation.spec.dtype) >= kStreamBytes;
    jobs[copies++] = {ours.to, packet.payload, packet.payload_bytes, stream};
  }
  if (row) jobs[copies++] = {row, packet.payload, packet.payload_bytes};
  return copies;
}

/// True for another sum, perhaps, than that of this life of the switch.
bool Results::is_of_earlier_life(const Message& message) const {
  const EngineConfig& config = flow_.config;
  return config.in_tree() && message.epoch < config.epoch && rule(Rule::kOldResult);
}

/// An answer has come for a fragment whose result was here before. So the only question for it was
/// sent while the result was under way, and did not cause it (as D-SACK tells TCP, RFC 3708): the
/// round trip is a sample. Where all round trips have become longer than the time-out, there are no
/// others.
void Results::look_for_needless_question(Seq seq, Nanos now) {
  const Seq next = flow_.ring.next();
  if (seq >= next || seq + flow_.ring.size() < next) return;
  const Fragment& done = flow_.ring[seq];
  if (done.is_done() && done.asked_once && done.epoch == flow_.config.epoch)
    flow_.timeouts.round_trip.sample(done.done_at - done.sent_at, now, done.clocked);
}

/// Fragments that are decided, of which this worker gets nothing. Nobody could have been given
/// anything else, so it does not matter who says so.
void Results::accept_bare(const Message& message, Nanos now) {
  const Seq begin = flow_.ring.extended(message.seq);
  for (uint64_t i = 0; i < message.elements; ++i) {
    const Seq seq = begin + i * flow_.config.lanes;
    if (seq >= flow_.ring.next()) return;
    if (seq < flow_.ring.low()) continue;
    Fragment& fragment = flow_.ring[seq];
    if (!takes_bare(seq, fragment, message)) {
      // Later ones may be of the next operation, or have bytes for this worker.
      if (i == 0 && fragment.awaits_result())
        note_mismatch(fragment.operation->expected(seq, flow_.config.rank).signature, message);
      if (i == 0 || fragment.bare) ++flow_.counters.results_ignored;
      continue;
    }
    fragment.bare = true;
    complete(seq, fragment, message, now);
  }
}

/// No other operation ever has a fragment of this number, so a worker that was given another result
/// called another operation. Marks may have met where nobody could compare them.
void Results::note_mismatch(const wire::Signature& ours, const Message& message) {
  if (mismatch_ || same_operation(ours, message.signature()) || !rule(Rule::kResultAgrees)) return;
  const WorkerSet self = WorkerSet::of(flow_.config.at_switch());
  const uint32_t members = std::min(flow_.config.workers, kMaxWorkers);
  mismatch_ = aggregator::FallbackMismatch{self, WorkerSet::first(members) - self,
                                           ours, message.signature()};
}

bool Results::takes_bare(Seq seq, const Fragment& fragment, const Message& message) const {
  if (!fragment.awaits_result()) return false;
  const Operation& operation = *fragment.operation;
  if (!operation.spec.blocks || operation.number != message.operation) return false;
  return operation.is_for_others(seq, flow_.config.rank);
}

/// All workers have entered the operation's closing fragment: all that is missing here is bare.
void Results::accept_missing_bare(Operation& operation, const Message& message, Nanos now) {
  const Seq end = operation.end() - 1;
  for (Seq seq = std::max(flow_.ring.low(), operation.first_seq); seq < end; ++seq) {
    Fragment& fragment = flow_.ring[seq];
    if (!takes_bare(seq, fragment, message)) continue;
    fragment.bare = true;
    complete(seq, fragment, message, now);
  }
}

/// A result has been taken, with bytes or without.
void Results::complete(Seq seq, Fragment& fragment, const Message& message, Nanos now) {
  // Karn: never from a fragment that was sent or asked for again. A mark waits for its fragment's
  // source, and the fragments of a closing one's bare results wait for that one. A result that came
  // later than a time-out may have waited until other workers recovered a loss.
  RoundTrip& rtt = flow_.timeouts.round_trip;
  const bool stood_for = fragment.bare && !message.bare();
  const bool own_round_trip = !fragment.parked && !fragment.mark && !stood_for;
  if (fragment.timeouts == 0 && fragment.state == Fragment::State::kSent &&
      fragment.epoch == flow_.config.epoch && own_round_trip && !fragment.waited)
    rtt.sample(now - fragment.sent_at, now, fragment.clocked);
  else
    others_.recovery.doubt_round_trips(fragment, now);
  adjust_windows(message, seq, fragment);
  // The result or a contribution was lost: what the switch gives twice comes in order.
  if ((message.flags & wire::kFlagAgain) != 0) others_.deadlines.link_loses(seq);
  others_.recovery.on_result(seq, fragment, !stood_for, now);
  if (fragment.parked)
    --flow_.parked;
  else if (!fragment.mark)
    --flow_.in_flight;
  flow_.windows.delivered(now, flow_.in_flight == 0, rtt);

  fragment.asked_once = fragment.timeouts == 1 && fragment.queried && own_round_trip;
  fragment.done_at = now;
  fragment.state = Fragment::State::kDone;
  fragment.operation_elements = message.operation_elements;
  fragment.operation_number = message.operation;
  fragment.dtype = message.dtype;
  fragment.op = message.op;
  fragment.collective = message.collective;
  if (const Seq before = flow_.ring.results_end(); seq >= before) {
    flow_.ring.extend_results(seq);
    if (before < seq) others_.recovery.expect_late(before, seq, now);
    if (others_.fallback && seq.value >= flow_.config.window)
      others_.fallback->raise_floor(seq - flow_.config.window);
  }
  ++flow_.counters.results;
  if (message.origin == wire::Origin::kFallback) ++flow_.counters.results_from_fallback;
  Operation& operation = *fragment.operation;
  if (++operation.complete == operation.fragments) others_.operations.note_complete(operation);
}

/// True if a result's mark is for this worker. `parked`: the result's fragment was parked.
bool Results::is_slowed_by(const Message& message, bool parked) const {
  const EngineConfig& config = flow_.config;
  // A fragment parked in the switch loads links only with its result, which comes as fast as the
  // last contribution: only the sender of that can slow it down.
  if (config.in_tree()) return !parked;
  if (config.rules.home == Home::kSpill)
    return !parked || message.origin != wire::Origin::kFallback;
  // A fragment kept by a worker loads links when it leaves the array, too. The workers furthest
  // ahead can wait; if the others did, too, all would wait for them in the end.
  if (config.park_room == 0 || (!parked && !was_parked(message))) return true;
  return flow_.ring.next() - flow_.ring.low() > config.window / kFarAhead;
}

void Results::adjust_windows(const Message& message, Seq seq, const Fragment& fragment) {
  Windows& windows = flow_.windows;
  const Seq next = flow_.ring.next();
  const bool parked = fragment.parked;
  flow_.catches_up = flow_.config.park_room != 0 && !parked && was_parked(message);
  if (message.flags & wire::kFlagEcn) {
    ++flow_.counters.ecn_marks;
    if (is_slowed_by(message, parked)) windows.marked(seq, next);
  } else {
    // The array is full: a contribution that finds no slot must find room elsewhere.
    if (message.origin == wire::Origin::kFallback && !flow_.config.lossy_link) windows.go_slower();
    if (!fragment.mark) windows.unmarked(seq, next, flow_.in_flight);
  }
  // The parts of a parked fragment must meet outside the switch.
  windows.losing(others_.deadlines.loses_now(seq));
  if ((message.flags & wire::kFlagSplit) != 0 && !parked)
    windows.split(seq, next, flow_.in_flight, flow_.timeouts.round_trip);
  else
    windows.whole(seq, flow_.in_flight, flow_.timeouts.round_trip);
}

template <class Where>
void Results::keep_where(Where&& where) {
  const uint32_t window = flow_.config.window;
  const Seq low = flow_.ring.low();
  const Seq first = low.value > window ? low - window : Seq{0};
  for (Seq seq = first; seq < flow_.ring.next(); ++seq) {
    Fragment& fragment = flow_.ring[seq];
    if (!fragment.is_done() || fragment.result == nullptr || !where(fragment.result)) continue;
    std::byte* row = kept_.row(seq);
    if (fragment.result == row) continue;
    std::memcpy(row, fragment.result, fragment.elements * wire_bytes(fragment.dtype));
    fragment.result = row;
  }
}

void Results::keep_all() {
  keep_where([](const std::byte*) { return true; });
}

void Results::keep(std::span<const std::byte> memory) {
  // As numbers: pointers into different memory have no order.
  keep_where([&](const std::byte* result) {
    return reinterpret_cast<uintptr_t>(result) - reinterpret_cast<uintptr_t>(memory.data()) <
           memory.size();
  });
}

}  // namespace ina::client
