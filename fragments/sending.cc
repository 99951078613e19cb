// The engine's sending: new fragments as the windows allow, after all messages for which others
// wait.
#include <algorithm>
#include <utility>

#include "fragments/engine.h"
#include "wire/rules.h"

namespace ina::client {

using wire::Message;
using wire::Type;

/// `in_flight`: fragments besides this one.
void Engine::describe(Seq seq, const Operation& operation, uint32_t in_flight,
                      TxPacket& packet) const {
  Message& message = packet.message;
  message = Message{};
  message.type = Type::kGrad;
  message.bitmap = WorkerSet::of(config_.rank);
  message.epoch = config_.epoch;
  message.seq = seq.low();
  message.rank = config_.rank;
  message.lane = static_cast<uint8_t>(seq.value % config_.lanes);
  operation.describe(seq, config_.rank, packet);
  if (operation.spec.blocks && needs_prompt_results(in_flight)) message.flags |= wire::kFlagPrompt;
}

/// So many fragments of others from `seq` on: a run for each lane. 0: there is no room for them.
size_t Engine::describe_marks(Seq seq, uint64_t fragments, const Operation& operation,
                              uint32_t in_flight, std::span<TxPacket> packets) const {
  const uint64_t runs = std::min<uint64_t>(fragments, config_.lanes);
  if (packets.size() < runs) return 0;
  for (uint64_t run = 0; run < runs; ++run) {
    describe(seq + run, operation, in_flight, packets[run]);
    packets[run].message.elements =
        static_cast<uint16_t>((fragments - run + config_.lanes - 1) / config_.lanes);
  }
  return static_cast<size_t>(runs);
}

/// A worker that enters the closing fragment says that it needs nothing sent again.
bool Engine::may_close(const Operation& operation) const {
  return operation.to_receive == 0 || !rule(Rule::kClosing);
}

size_t Engine::prepare(std::span<TxPacket> packets, Nanos now) {
  if (now >= next_deadline_) find_overdue(now);
  prepared_answers_ = prepare_answers(packets);
  size_t count = prepared_answers_;
  prepared_fallback_ = fallback_ ? fallback_->prepare(packets.subspan(count)) : 0;
  for (TxPacket& packet : packets.subspan(count, prepared_fallback_)) flag_kept(packet);
  count += prepared_fallback_;
  prepared_parked_ = prepare_parked(packets.subspan(count));
  count += prepared_parked_;
  prepared_overdue_ = prepare_overdue(packets.subspan(count));
  count += prepared_overdue_;
  prepared_closings_ = prepare_closings(packets.subspan(count));
  count += prepared_closings_;
  return count + prepare_new(packets.subspan(count), now);
}

/// Closing fragments that later operations have overtaken.
size_t Engine::prepare_closings(std::span<TxPacket> packets) {
  size_t count = 0;
  // The ones that may go stand first.
  for (size_t i = 0; i < to_close_.size() && count < packets.size(); ++i) {
    if (!may_close(*to_close_[i])) continue;
    std::swap(to_close_[i], to_close_[count]);
    const Operation& operation = *to_close_[count];
    describe(operation.end() - 1, operation, in_flight_, packets[count]);
    ++count;
  }
  return count;
}

/// New fragments, as the windows allow.
size_t Engine::prepare_new(std::span<TxPacket> packets, Nanos now) {
  prepared_new_.clear();
  size_t count = 0;
  Seq seq = next_;
  const Seq end = low_ + config_.window;  // C1
  const uint32_t window = window_now();
  uint32_t in_flight = in_flight_ + static_cast<uint32_t>(prepared_closings_);
  const bool early = now < windows_.paced_until();
  const uint32_t window_so_far =
      early ? in_flight : std::min(window, in_flight + windows_.quantum());
  const auto may_send = [&](uint32_t limit) {
    return count < packets.size() && seq < end && in_flight < limit;
  };
  bool more = false;
  for (size_t i = 0; i < to_send_.size(); ++i) {
    Operation& operation = *to_send_[i];
    if (operation.spec.held) break;
    if (!operation.placed) {
      operation.first_seq = seq;
      operation.placed = true;
    }
    const Seq operation_end = operation.end();
    const bool of_blocks = operation.spec.blocks != nullptr;
    const uint32_t limit = std::min(window_so_far, window_for(operation));
    uint64_t contributions = 0;  // of this operation, in the last entry
    while (seq < operation_end) {
      if (of_blocks) {
        const uint64_t marks = marks_from(operation, seq, end);
        if (marks != 0) {
          const size_t runs =
              describe_marks(seq, marks, operation, in_flight, packets.subspan(count));
          if (runs == 0) break;
          prepared_new_.push_back({New::Kind::kMarks, static_cast<uint32_t>(runs), marks});
          count += runs;
          seq = seq + marks;
          continue;
        }
        if (operation.is_closing(seq) && !may_close(operation)) {
          // Later operations need not wait for it.
          const bool later = i + 1 < to_send_.size() && !to_send_[i + 1]->spec.held;
          if (!later || seq >= end) break;
          prepared_new_.push_back({New::Kind::kClosingLater, 0, 1});
          ++seq;
          continue;
        }
      }
      if (!may_send(limit)) break;
      describe(seq, operation, in_flight++, packets[count++]);
      ++seq;
      if (contributions == 0 || prepared_new_.back().kind != New::Kind::kContribution)
        prepared_new_.push_back({New::Kind::kContribution, 0, 0});
      ++prepared_new_.back().packets;
      contributions = ++prepared_new_.back().fragments;
    }
    more = seq < operation_end;
    if (more) break;
  }
  paced_ = early && more && may_send(window);
  if (paced_ || (more && in_flight >= window)) windows_.all_used();
  clocked_ = full_;
  full_ = more && (in_flight >= window || seq >= end || (early && full_));
  // On all of them, since they may go to different lanes.
  if (more && in_flight >= window && config_.in_switch != 0)
    for (TxPacket& packet : packets.first(count)) packet.message.flags |= wire::kFlagFull;
  return count;
}

/// Fragments from `seq` on, within the window, that this worker adds nothing to.
uint64_t Engine::marks_from(const Operation& operation, Seq seq, Seq end) const {
  if (!rule(Rule::kRunWindow)) end = low_ + ring_.size();
  if (seq >= end) return 0;
  uint64_t marks = operation.marks_from(seq, config_.rank);
  if (!rule(Rule::kRunClosing) && marks != 0 && operation.is_closing(seq + marks)) ++marks;
  return std::min({marks, end - seq, uint64_t{UINT16_MAX}});
}

void Engine::mark_sent(Seq seq, Operation& operation, Nanos now) {
  Fragment& fragment = this->fragment(seq);
  fragment.operation = &operation;
  fragment.epoch = config_.epoch;
  fragment.state = State::kSent;
  fragment.sent_at = now;
  fragment.deadline = now + timeout_of_sent(seq, fragment);
  next_deadline_ = std::min(next_deadline_, fragment.deadline);
  if (fragment.mark) return;
  ++counters_.fragments_sent;
  const uint64_t bytes = operation.contribution_bytes(seq);
  counters_.bytes_sent += bytes;
  if (bytes != 0) ++counters_.payloads_sent;
}

/// The next fragments have been sent, or are to be sent after others.
void Engine::new_sent(const New& sent, Nanos now) {
  Operation* const operation = to_send_.front();
  for (uint64_t i = 0; i < sent.fragments; ++i, ++next_) {
    Fragment& fragment = this->fragment(next_);
    fragment = Fragment{};
    if (parker_) parker_->forget_before(next_);
    fragment.operation = operation;
    fragment.mark = sent.kind == New::Kind::kMarks;
    fragment.clocked = clocked_;
    fragment.prompt = operation->spec.blocks && needs_prompt_results(in_flight_);
    if (sent.kind == New::Kind::kClosingLater) continue;
    mark_sent(next_, *operation, now);
    if (!fragment.mark) ++in_flight_;
  }
  if (sent.kind == New::Kind::kMarks) {
    counters_.marks_sent += sent.fragments;
    counters_.mark_runs_sent += sent.packets;
  }
  if (sent.kind == New::Kind::kClosingLater) to_close_.push_back(operation);
  operation->sent += sent.fragments;
  if (operation->sent == operation->fragments) to_send_.erase(to_send_.begin());
}

void Engine::sent(size_t count, Nanos now) {
  counters_.packets_sent += count;
  // In the order of prepare().
  const auto take = [&count](size_t& prepared) {
    const size_t taken = std::min(count, std::exchange(prepared, 0));
    count -= taken;
    return taken;
  };
  questions_.pop(take(prepared_answers_));
  if (const size_t of_fallback = take(prepared_fallback_); of_fallback != 0)
    fallback_->sent(of_fallback);
  parked_sent(take(prepared_parked_));
  overdue_sent(take(prepared_overdue_), now);
  closings_sent(take(prepared_closings_), now);
  if (count != 0) windows_.sent(count, now, timeouts_.round_trip);
  for (New& some : prepared_new_) {
    const bool whole = some.packets <= count;
    if (!whole) {
      if (some.kind != New::Kind::kContribution) break;  // a run that went in part goes again
      some.fragments = some.packets = static_cast<uint32_t>(count);
    }
    count -= some.packets;
    new_sent(some, now);
    if (!whole) break;  // the next ones have numbers behind those that did not go
  }
  prepared_new_.clear();
}

void Engine::closings_sent(size_t count, Nanos now) {
  for (size_t i = 0; i < count; ++i) {
    Operation& operation = *to_close_[i];
    mark_sent(operation.end() - 1, operation, now);
    ++in_flight_;
  }
  to_close_.erase(to_close_.begin(), to_close_.begin() + static_cast<ptrdiff_t>(count));
}

}  // namespace ina::client
