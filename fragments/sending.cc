#include "fragments/sending.h"

#include <algorithm>
#include <utility>

#include "wire/rules.h"

namespace ina::client {

Sending::Sending(Flow& flow, Deadlines& deadlines, size_t burst)
    : flow_(flow), deadlines_(deadlines) {
  to_close_.reserve(flow.config.window);
  prepared_.reserve(2 * burst);
}

/// A worker that enters the closing fragment says that it needs nothing sent again.
bool Sending::may_close(const Operation& operation) const {
  return operation.to_receive == 0 || !rule(Rule::kClosing);
}

size_t Sending::prepare_closings(std::span<TxPacket> packets) {
  size_t count = 0;
  // The ones that may go stand first.
  for (size_t i = 0; i < to_close_.size() && count < packets.size(); ++i) {
    if (!may_close(*to_close_[i])) continue;
    std::swap(to_close_[i], to_close_[count]);
    const Operation& operation = *to_close_[count];
    flow_.describe(operation.end() - 1, operation, flow_.in_flight, packets[count]);
    ++count;
  }
  return count;
}

void Sending::closings_sent(size_t count, Nanos now) {
  for (size_t i = 0; i < count; ++i) {
    Operation& operation = *to_close_[i];
    deadlines_.mark_sent(operation.end() - 1, operation, now);
    ++flow_.in_flight;
  }
  to_close_.erase(to_close_.begin(), to_close_.begin() + static_cast<ptrdiff_t>(count));
}

/// As far as new fragments of this operation may fill the window.
uint32_t Sending::window_for(const Operation& operation) const {
  const EngineConfig& config = flow_.config;
  const bool no_limit =
      config.most_in_flight == 0 || config.in_switch != 0 || operation.spec.target != 0;
  return no_limit ? flow_.window_now() : std::min(flow_.window_now(), config.most_in_flight);
}

size_t Sending::prepare_new(std::span<TxPacket> packets, size_t closings, Nanos now) {
  prepared_.clear();
  const EngineConfig& config = flow_.config;
  Batch batch{.packets = packets,
              .seq = flow_.ring.next(),
              .end = flow_.ring.low() + config.window,  // C1
              .in_flight = flow_.in_flight + static_cast<uint32_t>(closings)};
  const uint32_t window = flow_.window_now();
  const bool early = now < flow_.windows.paced_until();
  const uint32_t window_so_far =
      early ? batch.in_flight : std::min(window, batch.in_flight + flow_.windows.quantum());
  bool more = false;
  for (size_t i = 0; i < to_send_.size() && !more; ++i) {
    Operation& operation = *to_send_[i];
    if (operation.spec.held) break;
    if (!operation.placed) {
      operation.first_seq = batch.seq;
      operation.placed = true;
    }
    add_operation(i, std::min(window_so_far, window_for(operation)), batch);
    more = batch.seq < operation.end();
  }
  paced_ = early && more && batch.takes(window);
  const bool is_filled = batch.in_flight >= window;
  if (paced_ || (more && is_filled)) flow_.windows.all_used();
  clocked_ = full_;
  full_ = more && (is_filled || batch.seq >= batch.end || (early && full_));
  // On all of them, since they may go to different lanes.
  if (more && is_filled && config.in_switch != 0)
    for (TxPacket& packet : packets.first(batch.count)) packet.message.flags |= wire::kFlagFull;
  return batch.count;
}

/// Adds what may go of an operation, with no more than `limit` fragments in flight.
void Sending::add_operation(size_t index, uint32_t limit, Batch& batch) {
  const Operation& operation = *to_send_[index];
  const Seq operation_end = operation.end();
  const size_t entries_before = prepared_.size();
  while (batch.seq < operation_end) {
    if (operation.spec.blocks) {
      const bool is_followed = index + 1 < to_send_.size() && !to_send_[index + 1]->spec.held;
      const Next next = add_rest(operation, is_followed, batch);
      if (next == Next::kMustWait) return;
      if (next == Next::kAdded) continue;
    }
    if (!batch.takes(limit)) return;
    flow_.describe(batch.seq, operation, batch.in_flight++, batch.packets[batch.count++]);
    ++batch.seq;
    if (prepared_.size() == entries_before || prepared_.back().kind != New::Kind::kContribution)
      prepared_.push_back({New::Kind::kContribution, 0, 0});
    ++prepared_.back().packets;
    ++prepared_.back().fragments;
  }
}

/// Adds the next fragments of an operation with blocks if they are no contributions: a run of
/// marks, or the closing fragment, to be sent after later operations.
Sending::Next Sending::add_rest(const Operation& operation, bool is_followed, Batch& batch) {
  if (const uint64_t marks = marks_from(operation, batch.seq, batch.end); marks != 0)
    return add_marks(operation, marks, batch) ? Next::kAdded : Next::kMustWait;
  if (!operation.is_closing(batch.seq) || may_close(operation)) return Next::kContribution;
  // Later operations need not wait for it.
  if (!is_followed || batch.seq >= batch.end) return Next::kMustWait;
  prepared_.push_back({New::Kind::kClosingLater, 0, 1});
  ++batch.seq;
  return Next::kAdded;
}

/// Adds so many fragments of others: a run for each lane. False: there is no room for them.
bool Sending::add_marks(const Operation& operation, uint64_t marks, Batch& batch) {
  const uint32_t lanes = flow_.config.lanes;
  const auto packets = batch.packets.subspan(batch.count);
  const auto runs = static_cast<uint32_t>(std::min<uint64_t>(marks, lanes));
  if (packets.size() < runs) return false;
  for (uint32_t run = 0; run < runs; ++run) {
    flow_.describe(batch.seq + run, operation, batch.in_flight, packets[run]);
    packets[run].message.elements = static_cast<uint16_t>((marks - run + lanes - 1) / lanes);
  }
  prepared_.push_back({New::Kind::kMarks, runs, marks});
  batch.count += runs;
  batch.seq = batch.seq + marks;
  return true;
}

/// Fragments from `seq` on, within the window, that this worker adds nothing to.
uint64_t Sending::marks_from(const Operation& operation, Seq seq, Seq end) const {
  if (!rule(Rule::kRunWindow)) end = flow_.ring.low() + flow_.ring.size();
  if (seq >= end) return 0;
  uint64_t marks = operation.marks_from(seq, flow_.config.rank);
  if (!rule(Rule::kRunClosing) && marks != 0 && operation.is_closing(seq + marks)) ++marks;
  return std::min({marks, end - seq, uint64_t{UINT16_MAX}});
}

void Sending::new_sent(size_t count, Nanos now) {
  if (count != 0) flow_.windows.sent(count, now, flow_.timeouts.round_trip);
  for (New& some : prepared_) {
    const bool whole = some.packets <= count;
    if (!whole) {
      if (some.kind != New::Kind::kContribution) break;  // a run that went in part goes again
      some.fragments = some.packets = static_cast<uint32_t>(count);
    }
    count -= some.packets;
    start(some, now);
    if (!whole) break;  // the next ones have numbers behind those that did not go
  }
  prepared_.clear();
}

/// The next fragments have been sent, or are to be sent after others.
void Sending::start(const New& sent, Nanos now) {
  Operation* const operation = to_send_.front();
  for (uint64_t i = 0; i < sent.fragments; ++i) {
    const Seq seq = flow_.ring.next();
    Fragment& fragment = flow_.ring.start_next();
    fragment.operation = operation;
    fragment.mark = sent.kind == New::Kind::kMarks;
    fragment.clocked = clocked_;
    fragment.prompt = operation->spec.blocks && flow_.needs_prompt_results(flow_.in_flight);
    if (sent.kind == New::Kind::kClosingLater) continue;
    deadlines_.mark_sent(seq, *operation, now);
    if (!fragment.mark) ++flow_.in_flight;
  }
  if (sent.kind == New::Kind::kMarks) {
    flow_.counters.marks_sent += sent.fragments;
    flow_.counters.mark_runs_sent += sent.packets;
  }
  if (sent.kind == New::Kind::kClosingLater) to_close_.push_back(operation);
  operation->sent += sent.fragments;
  if (operation->sent == operation->fragments) to_send_.erase(to_send_.begin());
}

bool Sending::held_up_by_window() const {
  if (to_send_.empty() || to_send_.front()->spec.held) return false;
  const Operation& operation = *to_send_.front();
  const Seq end = flow_.ring.low() + flow_.config.window;
  const Seq next = flow_.ring.next();
  if (next >= end) return true;
  if (operation.placed && operation.spec.blocks &&
      (marks_from(operation, next, end) != 0 || next + 1 == operation.end()))
    return false;
  return flow_.in_flight >= window_for(operation);
}

}  // namespace ina::client
