#include "engine/engine.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "wire/rules.h"

namespace ina::client {

using wire::Message;
using wire::Type;

namespace {

// With static slots, every this many time-outs the fallback is asked instead of sending again.
constexpr uint8_t kQueryEvery = 4;
// Time-outs of a fragment before they begin to double.
constexpr int kPatientAfter = 2;
// And of one that is lost: most steps of its recovery may be lost in turn.
constexpr int kPatientAfterLoss = 8;
// Results of operations from here on have left the caches before anybody reads them.
constexpr uint64_t kStreamBytes = 8 << 20;
// How much later a fragment must have been sent than one that it overtook, beside a quarter of the
// round trip (RACK, RFC 8985), for that to be taken for lost.
constexpr Nanos kReorderNs = 100'000;
// Between questions for a fragment that was overtaken.
constexpr Nanos kLeastBetweenQuestionsNs = 500'000;
constexpr Nanos kRoundTripsOfAnswer = 4;
// A link that has lost something is one that loses for so many windows.
constexpr uint64_t kLossyWindows = 4;
// Of the window: a worker that has run ahead by more than this part of it is one of the first.
constexpr uint32_t kFarAhead = 4;
// Overdue fragments that are looked after at once: the oldest, because the window waits for them.
constexpr size_t kMaxOverdue = 64;

/// Whether what waits in queues or slots may be in others' way, and nobody is to run ahead.
bool is_capped(const EngineConfig& config) {
  return config.window_cap && config.lossy_link && config.aggregator_window &&
         config.in_switch == 0 && !config.fixed_slots;
}

}  // namespace

Engine::Engine(const EngineConfig& config)
    : config_(config),
      ring_(2 * size_t{config.window}),
      questions_(2 * size_t{config.window}),
      windows_({.most = config.in_switch == 0 ? config.window
                                              : std::min(config.window, config.in_switch),
                .first = config.lossy_link ? Windows::kFirstOnLossyLink : config.first_window,
                .congestion = config.congestion_window,
                .aggregators = config.aggregator_window && !config.fixed_slots,
                .first_aggregators = config.lossy_link ? Windows::kFirstAggregators : 0,
                .capped = is_capped(config),
                .paced = config.lossy_link}) {
  if (config.park_room != 0) {
    parker_.emplace(config.workers, config.window, config.slot_bytes, config.park_room);
    parked_out_ = aggregator::FixedQueue<Seq>(config.park_room);
  }
  overdue_.reserve(kMaxOverdue);
  to_close_.reserve(config.window);
  prepared_new_.reserve(2 * kBurst);
  received_.reserve(config.window);
  finished_.reserve(config.window);
  if (config.home == Home::kWorkers) {
    aggregator::FallbackConfig fallback;
    fallback.workers = config.workers;
    fallback.window = config.window;
    fallback.slot_bytes = config.slot_bytes;
    fallback.lanes = config.lanes;
    fallback.shards = config.workers;
    fallback.shard = value(config.rank);
    fallback.epoch = config.epoch;
    fallback.bind_at_once = config.fixed_slots;
    fallback_.emplace(fallback);
  }
}

// ---- operations

/// Many at once: how many groups of small operations are under way at a time is chance, and a
/// program that has run for a while shall not allocate.
void Engine::more_operations() {
  constexpr size_t kBlock = 32;
  storage_.push_back(std::make_unique<Operation[]>(kBlock));
  spare_.reserve(storage_.size() * kBlock);
  for (size_t i = 0; i < kBlock; ++i) spare_.push_back(&storage_.back()[i]);
}

Operation* Engine::submit(const OperationSpec& spec, Nanos now) {
  if (spare_.empty()) more_operations();
  Operation* operation = spare_.back();
  spare_.pop_back();
  priority_.started(now, running_.size());
  operation->spec = spec;
  operation->number = operations_submitted_++;
  operation->cut(config_.slot_bytes, config_.rank);
  operation->sent = 0;
  operation->complete = 0;
  operation->started = now;
  operation->priority = std::min(priority_.priority(now), config_.priority_max);
  counters_.priority = operation->priority;
  operation->placed = false;
  operation->done.store(false, std::memory_order_relaxed);
  running_.push_back(operation);
  to_send_.push_back(operation);
  return operation;
}

void Engine::release_hold(Operation* operation, const std::byte* send, uint64_t elements,
                          bool skip) {
  operation->spec.held = false;
  operation->spec.send = send;
  operation->spec.elements = elements;
  operation->cut(config_.slot_bytes, config_.rank);
  if (!skip) return;
  operation->fragments = 0;
  std::erase(to_send_, operation);
  finished_.push_back(operation);
}

void Engine::release(Operation* operation) {
  operation->spec.blocks = nullptr;
  spare_.push_back(operation);
}

// ---- sending

void Engine::describe(Seq seq, const Operation& operation, TxPacket& packet) const {
  Message& message = packet.message;
  message = Message{};
  message.type = Type::kGrad;
  message.bitmap = bit_of(config_.rank);
  message.epoch = config_.epoch;
  message.seq = seq.low();
  message.rank = config_.rank;
  message.lane = static_cast<uint8_t>(seq.value % config_.lanes);
  operation.describe(seq, config_.rank, packet);
  if (operation.spec.blocks && needs_prompt_results()) message.flags |= wire::kFlagPrompt;
}

/// So many fragments of others from `seq` on: a run for each lane. 0: there is no room for them.
size_t Engine::describe_marks(Seq seq, uint64_t fragments, const Operation& operation,
                              std::span<TxPacket> packets) const {
  const uint64_t runs = std::min<uint64_t>(fragments, config_.lanes);
  if (packets.size() < runs) return 0;
  for (uint64_t run = 0; run < runs; ++run) {
    describe(seq + run, operation, packets[run]);
    packets[run].message.elements =
        static_cast<uint16_t>((fragments - run + config_.lanes - 1) / config_.lanes);
  }
  return static_cast<size_t>(runs);
}

/// Whoever enters the closing fragment says that nobody needs to send it anything again.
bool Engine::may_close(const Operation& operation) const {
  return operation.to_receive == 0 || !rule(Rule::kClosing);
}

/// Closing fragments that later operations have overtaken.
size_t Engine::prepare_closings(std::span<TxPacket> packets) {
  size_t count = 0;
  // The ones that may go stand first.
  for (size_t i = 0; i < to_close_.size() && count < packets.size(); ++i) {
    if (!may_close(*to_close_[i])) continue;
    std::swap(to_close_[i], to_close_[count]);
    const Operation& operation = *to_close_[count];
    describe(operation.end() - 1, operation, packets[count]);
    ++count;
  }
  return count;
}

void Engine::query(Seq seq, TxPacket& packet) const {
  packet = TxPacket{};
  packet.message.type = Type::kQuery;
  packet.message.bitmap = bit_of(config_.rank);
  packet.message.epoch = config_.epoch;
  packet.message.seq = seq.low();
  packet.message.rank = config_.rank;
  packet.message.lane = static_cast<uint8_t>(seq.value % config_.lanes);
}

/// A contribution leaves its worker in one epoch only: what the switch lost with the older one is
/// for the fallback to collect.
Engine::Overdue Engine::what_to_do(const Fragment& fragment) const {
  if (fragment.epoch < config_.epoch)
    return rule(Rule::kOneEpoch) ? Overdue::kQuery : Overdue::kAgain;
  if (!config_.fixed_slots || fragment.bound != 0) return Overdue::kQuery;
  return (fragment.timeouts + 1) % kQueryEvery == 0 ? Overdue::kQuery : Overdue::kAgain;
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

size_t Engine::prepare_answers(std::span<TxPacket> packets) {
  size_t count = 0;
  while (count < packets.size() && count < questions_.size()) {
    if (answer(questions_[count], packets[count])) {
      ++count;
    } else if (count == 0) {
      questions_.pop();
    } else {
      break;
    }
  }
  return count;
}

size_t Engine::prepare_parked(std::span<TxPacket> packets) {
  size_t count = 0;
  while (count < packets.size() && count < parked_out_.size()) {
    if (const Parker::Held* const held = parker_->find(parked_out_[count]); held && held->queued) {
      describe_parked(*held, packets[count]);
      flag_kept(packets[count++]);
    } else if (count == 0) {
      parked_out_.pop();
    } else {
      break;
    }
  }
  return count;
}

size_t Engine::prepare_overdue(std::span<TxPacket> packets) {
  std::erase_if(overdue_, [this](Seq seq) { return fragment(seq).state != State::kOverdue; });
  const size_t count = std::min(packets.size(), overdue_.size());
  for (size_t i = 0; i < count; ++i) {
    const Fragment& overdue = fragment(overdue_[i]);
    if (what_to_do(overdue) == Overdue::kQuery)
      query(overdue_[i], packets[i]);
    else
      describe(overdue_[i], *overdue.operation, packets[i]);
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
    uint64_t contributions = 0;  // of this operation, in the last entry
    while (seq < operation_end) {
      if (of_blocks) {
        const uint64_t marks = marks_from(operation, seq, end);
        if (marks != 0) {
          const size_t runs = describe_marks(seq, marks, operation, packets.subspan(count));
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
      if (!may_send(window_so_far)) break;
      ++in_flight;
      describe(seq, operation, packets[count++]);
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
  // On all of them, since they may go to different lanes.
  if (more && in_flight >= window && config_.in_switch != 0)
    for (TxPacket& packet : packets.first(count)) packet.message.flags |= wire::kFlagFull;
  return count;
}

bool Engine::held_up_by_window() const {
  if (to_send_.empty() || to_send_.front()->spec.held) return false;
  const Operation& operation = *to_send_.front();
  const Seq end = low_ + config_.window;
  if (next_ >= end) return true;
  if (operation.placed && operation.spec.blocks &&
      (marks_from(operation, next_, end) != 0 || next_ + 1 == operation.end()))
    return false;
  return in_flight_ >= window_now();
}

/// Fragments from `seq` on, within the window, that this worker adds nothing to.
uint64_t Engine::marks_from(const Operation& operation, Seq seq, Seq end) const {
  if (seq >= end) return 0;
  const uint64_t marks = operation.marks_from(seq, config_.rank);
  return std::min({marks, end - seq, uint64_t{UINT16_MAX}});
}

void Engine::mark_sent(Seq seq, Operation& operation, Nanos now) {
  Fragment& fragment = this->fragment(seq);
  fragment.operation = &operation;
  fragment.epoch = config_.epoch;
  fragment.state = State::kSent;
  fragment.sent_at = now;
  fragment.deadline = now + timeout_after(fragment.timeouts);
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
  if (count != 0) windows_.left(count, now, rtt_);
  for (New& some : prepared_new_) {
    const bool whole = some.packets <= count;
    if (!whole) {
      if (some.kind != New::Kind::kContribution) break;  // a run that went in part goes again
      some.fragments = some.packets = static_cast<uint32_t>(count);
    }
    count -= some.packets;
    new_sent(some, now);
    if (!whole) break;  // what follows has numbers behind what did not go
  }
  prepared_new_.clear();
}

void Engine::overdue_sent(size_t count, Nanos now) {
  for (size_t i = 0; i < count; ++i) {
    Fragment& fragment = this->fragment(overdue_[i]);
    const Overdue what = what_to_do(fragment);
    if (fragment.timeouts < 255) ++fragment.timeouts;
    if (what == Overdue::kAgain) {
      mark_sent(overdue_[i], *fragment.operation, now);
      if (fragment.mark) {
        ++counters_.marks_sent;
        ++counters_.mark_runs_sent;
      } else {
        ++counters_.fragments_resent;
      }
    } else {
      fragment.state = State::kSent;
      fragment.queried = true;
      fragment.deadline = now + timeout_of(overdue_[i], fragment);
      next_deadline_ = std::min(next_deadline_, fragment.deadline);
      ++counters_.queries;
    }
  }
  overdue_.erase(overdue_.begin(), overdue_.begin() + static_cast<ptrdiff_t>(count));
}

void Engine::closings_sent(size_t count, Nanos now) {
  for (size_t i = 0; i < count; ++i) {
    Operation& operation = *to_close_[i];
    mark_sent(operation.end() - 1, operation, now);
    ++in_flight_;
  }
  to_close_.erase(to_close_.begin(), to_close_.begin() + static_cast<ptrdiff_t>(count));
}

// ---- deadlines

Nanos Engine::timeout_after(uint8_t timeouts) const {
  const Nanos base = std::max(config_.rto_min_ns, rtt_.late());
  // Getting a result that does not come takes two questions, so patience grows after these.
  const int doublings = std::clamp<int>(timeouts - kPatientAfter, 0, 10);
  return std::min(base << doublings, std::max(base, config_.rto_max_ns));
}

/// Until the next question. The floor of timeout_after() is for answers that are merely late.
Nanos Engine::timeout_of(Seq seq, const Fragment& fragment) const {
  // It is known why, until the result of a later one says that all have sent this one, too.
  if (fragment.parked && seq >= results_end_) return std::max(timeout_after(0), config_.rto_max_ns);
  if (!fragment.overtaken) return timeout_after(fragment.timeouts);
  const int doublings = std::clamp<int>(fragment.timeouts - kPatientAfterLoss, 0, 20);
  return std::min(between_questions() << doublings, timeout_after(UINT8_MAX));
}

/// A question, the fallback's own, and their answers.
Nanos Engine::between_questions() const {
  return std::max(kLeastBetweenQuestionsNs,
                  kRoundTripsOfAnswer * std::min(rtt_.standing(), rtt_.late()));
}

/// Nothing overtakes what was sent last. So the oldest fragment is asked for when it has been that
/// for long, as TCP's tail loss probe does (RFC 8985, section 7). Not where nothing was lost of
/// late: somebody is merely slow then.
void Engine::probe_oldest(Nanos now) {
  Fragment& oldest = fragment(low_);
  if (low_ >= losses_end_ || oldest.overtaken || oldest.state != State::kSent || oldest.parked)
    return;
  oldest.overtaken = true;
  oldest.deadline = std::min(oldest.deadline, now + between_questions());
  next_deadline_ = std::min(next_deadline_, oldest.deadline);
}

void Engine::find_overdue(Nanos now) {
  next_deadline_ = kNever;
  recoveries_until_look_ = 0;
  for (Seq seq = low_; seq < next_; ++seq) {
    Fragment& fragment = this->fragment(seq);
    if (fragment.state != State::kSent) continue;
    if (fragment.deadline > now) {
      next_deadline_ = std::min(next_deadline_, fragment.deadline);
    } else if (overdue_.size() == kMaxOverdue) {
      next_deadline_ = std::min(next_deadline_, now + timeout_after(0));
      recoveries_until_look_ = kMaxOverdue / 2;
      return;
    } else {
      fragment.state = State::kOverdue;
      overdue_.push_back(seq);
    }
  }
}

/// Whatever arrives was asked for, so there are no samples any more, and those of before are from a
/// time in which so much got lost: if they were long ones, they are forgotten (RFC 6298, section
/// 5). Otherwise all of it would be recovered at the pace of queues that are empty now. A lossy
/// link's fragments do not wait for time-outs.
void Engine::doubt_rtt(const Fragment& recovered, Nanos now) {
  if (config_.lossy_link || recovered.timeouts < kPatientAfter ||
      now - rtt_.sampled_at() <= timeout_after(0))
    return;
  rtt_.forget();
  next_deadline_ = std::min(next_deadline_, now + timeout_after(0));
}

// ---- receiving

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

/// With straggler help half of all results come from workers: what is decided here is taken at
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

/// Only what this worker has taken may be kept from it: nobody would tell it again.
void Engine::flag_kept(TxPacket& packet) {
  if (packet.message.type != Type::kResult || !keeps_results()) return;
  const Seq seq = extend(packet.message.seq, low_);
  const bool taken = seq < low_ || (seq < next_ && fragment(seq).state == State::kDone);
  if (taken || !rule(Rule::kKeptResult)) packet.message.flags |= wire::kFlagKept;
}

/// It frees a place in what may be in the switch, nothing else: the result is waited for as before.
void Engine::on_parked(const Message& message, Nanos now) {
  const Seq seq = extend(message.seq, low_);
  if (seq < low_ || seq >= next_ || message.epoch != config_.epoch) return;
  if (Fragment& parked = fragment(seq); parked.state != State::kDone)
    leaves_window(seq, parked, now);
}

void Engine::leaves_window(Seq seq, Fragment& fragment, Nanos now) {
  if (fragment.parked || fragment.mark) return;
  fragment.parked = true;
  fragment.deadline = std::max(fragment.deadline, now + timeout_of(seq, fragment));
  // Together with others: a look at all that has been sent is not worth it for one.
  const Nanos together = std::max<Nanos>(1, timeout_after(0));
  fragment.deadline += together - fragment.deadline % together;
  --in_flight_;
  ++parked_;
  ++counters_.parked;
}

/// A worker sends in order: the result of `end` says that all have sent what is below it.
void Engine::expect_parked(Seq begin, Seq end, Nanos now) {
  for (Seq seq = std::max(begin, low_); seq < end; ++seq) {
    Fragment& late = fragment(seq);
    if (!late.parked || late.state != State::kSent) continue;
    late.deadline = std::min(late.deadline, now + timeout_after(late.timeouts));
    next_deadline_ = std::min(next_deadline_, late.deadline);
  }
}

// ---- parking for the switch

/// A partial sum to keep, or a contribution that came after it. What cannot be taken is as lost as
/// on the way: the fallback has it sent again.
size_t Engine::on_park(const RxPacket& packet, Nanos now, CopyJob* jobs) {
  const Message& message = packet.message;
  const Seq seq = extend(message.seq, low_);
  const auto lose = [this] {
    ++counters_.parks_lost;
    return size_t{0};
  };
  if (!parker_ || seq < low_ || seq >= next_ || message.epoch != config_.epoch) return lose();
  Fragment& fragment = this->fragment(seq);
  if (fragment.state == State::kDone) return lose();
  Parker::Held* held = parker_->find(seq);
  if (held && held->epoch != message.epoch) {
    // The fallback sorts out what belongs to which epoch.
    fragment.all_to_fallback = true;
    queue_parked(*held);
  }
  // A second place where the sum could be completed must never come to be.
  if (fragment.bound != 0 || fragment.all_to_fallback) return lose();
  if (!held) held = parker_->hold(seq, message);
  if (!held || !parker_->merge(*held, message, packet.payload)) return lose();
  ++counters_.parks;
  leaves_window(seq, fragment, now);
  if (!held->complete) return 0;
  ++counters_.park_results;
  queue_parked(*held);
  TxPacket result;
  describe_parked(*held, result);
  return accept_result({result.message, result.payload, result.payload_bytes}, now, jobs);
}

void Engine::queue_parked(Parker::Held& held) {
  if (held.queued || parked_out_.full()) return;
  held.queued = true;
  parked_out_.push(held.seq);
}

void Engine::describe_parked(const Parker::Held& held, TxPacket& packet) {
  packet = TxPacket{};
  Message& message = packet.message;
  message.set_signature(held.signature);
  message.type = held.complete ? Type::kResult : Type::kPart;
  message.origin = wire::Origin::kParker;
  message.bitmap = held.bits;
  message.elements = held.elements;
  message.flags = held.flags;
  message.epoch = held.epoch;
  message.seq = held.seq.low();
  message.rank = config_.rank;
  message.lane = static_cast<uint8_t>(held.seq.value % config_.lanes);
  packet.payload_bytes = wire::payload_bytes(message);
  packet.payload = packet.payload_bytes == 0 ? nullptr : parker_->row(held);
}

void Engine::parked_sent(size_t count) {
  for (; count != 0; --count) {
    Parker::Held* const held = parker_->find(parked_out_[0]);
    parked_out_.pop();
    if (!held) continue;
    held->queued = false;
    // A result may be asked for again, where the transport is to keep it.
    if (!held->complete || !config_.results_stay) parker_->release(*held);
  }
}

/// What to say to a POLL, if anything.
bool Engine::answer(const Question& question, TxPacket& packet) {
  const Seq seq = question.seq;
  if (seq + config_.window < low_) return false;  // nobody can need it any more
  packet = TxPacket{};
  Message& message = packet.message;
  message.bitmap = bit_of(config_.rank);
  message.epoch = config_.epoch;
  message.seq = seq.low();
  message.instance = question.instance;
  message.rank = config_.rank;
  message.lane = static_cast<uint8_t>(seq.value % config_.lanes);
  if (seq >= next_ || fragment(seq).state == State::kUnsent) {
    message.type = Type::kNotYet;
    return true;
  }
  Fragment& fragment = this->fragment(seq);
  const bool over = fragment.operation == nullptr;
  if (fragment.state == State::kDone && (!fragment.bare || !rule(Rule::kNonReceiverSent))) {
    if (seq + config_.window < results_end_ || !rule(Rule::kRetainResults)) return false;
    message.type = Type::kHave;
    message.set_signature(
        {fragment.operation_elements, fragment.operation_number, fragment.dtype, fragment.op,
         fragment.collective, fragment.target,
         fragment.to_one ? static_cast<uint8_t>(1 + value(config_.rank)) : uint8_t{0}});
    message.elements = fragment.elements;
    message.flags = static_cast<uint16_t>(fragment.flags);
    packet.payload_bytes = wire::payload_bytes(message);
    packet.payload = fragment.result;
    return true;
  }
  if (question.phase == wire::Phase::kStatus) {
    message.type = Type::kSent;
    return true;
  }
  // Its bytes are for others, who have them by the time that this worker's buffer is its user's
  // again: nobody needs an answer then.
  if (over) return false;
  if (fragment.state == State::kDone && !rule(Rule::kBindAgain)) return false;
  if (fragment.bound > question.instance + 1 && rule(Rule::kInstance)) return false;
  // Asked for what it sent: that was lost on the way to the switch.
  if (config_.lossy_link && fragment.bound == 0 && (question.ask & bit_of(config_.rank)) != 0)
    windows_.lost(seq, next_, rtt_);
  fragment.bound = question.instance + 1;
  if (parker_)
    if (Parker::Held* const held = parker_->find(seq)) queue_parked(*held);
  if ((question.ask & bit_of(config_.rank)) != 0) {
    describe(seq, *fragment.operation, packet);
    message.flags |= wire::kFlagRaw;
    message.instance = question.instance;
    ++counters_.raws_sent;
  }
  message.type = Type::kDefer;
  return true;
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
  if (seq < low_ || seq >= next_) return ignore();
  Fragment& fragment = this->fragment(seq);
  if (fragment.state == State::kDone) {
    // What was completed here has come back, into the transport's memory.
    if (config_.results_stay && parker_ && message.origin == wire::Origin::kParker)
      if (Parker::Held* const held = parker_->find(seq)) {
        fragment.result = packet.payload;
        parker_->release(*held);
      }
    return ignore();
  }
  if (fragment.state == State::kUnsent) return ignore();
  // Whoever is bound waits for the fallback's decision: others may have been given another sum.
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
  fragment.result = config_.results_stay ? packet.payload : kept_row(seq);
  const bool closes = operation.is_closing(seq);
  if (!closes && --operation.to_receive == 0 && operation.closes) received_.push_back(&operation);
  fragment.operation = nullptr;
  counters_.bytes_received += packet.payload_bytes;
  if (packet.payload_bytes != 0) ++counters_.payloads_received;
  if (message.origin != wire::Origin::kSwitch) counters_.bytes_by_fallback += packet.payload_bytes;
  if (message.flags & wire::kFlagOverflow) ++counters_.overflows;
  if (closes) accept_missing_bare_results(operation, message, now);
  if (packet.payload_bytes == 0 || message.target != 0) return 0;
  counters_.bytes_copied += packet.payload_bytes;
  const bool stream = operation.spec.elements * wire_bytes(operation.spec.dtype) >= kStreamBytes;
  jobs[0] = {ours.to, packet.payload, packet.payload_bytes, stream};
  if (config_.results_stay) return 1;
  jobs[1] = {kept_row(seq), packet.payload, packet.payload_bytes};
  return 2;
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

/// No other operation ever has a fragment of this number, so whoever was given another result
/// called something else. Marks may have met where nobody could compare them.
void Engine::note_mismatch(const wire::Signature& ours, const Message& message) {
  if (mismatch_ || same_operation(ours, message.signature())) return;
  const Bitmap self = bit_of(config_.rank);
  mismatch_ = aggregator::FallbackMismatch{self, full_bitmap(config_.workers) & ~self, ours,
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
  // source, and what a closing fragment stands for waits for that.
  const bool stood_for = fragment.bare && !message.bare();
  if (fragment.timeouts == 0 && fragment.state == State::kSent && fragment.epoch == config_.epoch &&
      !fragment.parked && !fragment.mark && !stood_for)
    rtt_.sample(now - fragment.sent_at, now);
  else
    doubt_rtt(fragment, now);
  // More are overdue: half of those before are recovered.
  if (recoveries_until_look_ != 0 && fragment.bound != 0 && --recoveries_until_look_ == 0)
    next_deadline_ = now;
  adjust_windows(message, seq, fragment.parked);
  if (config_.lossy_link && !fragment.mark) look_after_overtaken(fragment, seq);
  if (fragment.parked)
    --parked_;
  else if (!fragment.mark)
    --in_flight_;
  windows_.delivered(now, in_flight_ == 0, rtt_);

  fragment.state = State::kDone;
  fragment.operation_elements = message.operation_elements;
  fragment.operation_number = message.operation;
  fragment.dtype = message.dtype;
  fragment.op = message.op;
  fragment.collective = message.collective;
  if (seq >= results_end_) {
    const Seq before = results_end_;
    results_end_ = seq + 1;
    if (before < seq) expect_parked(before, seq, now);
    if (fallback_ && seq.value >= config_.window) fallback_->raise_floor(seq - config_.window);
  }
  ++counters_.results;
  if (message.origin == wire::Origin::kFallback) ++counters_.results_from_fallback;
  Operation& operation = *fragment.operation;
  if (++operation.complete == operation.fragments) finished_.push_back(&operation);
}

/// Its buffers are the user's again.
void Engine::forget_bare_results(const Operation& operation) {
  const uint64_t kept = ring_.size();
  const Seq end = operation.end();
  const uint64_t count = std::min(operation.fragments, kept);
  for (Seq seq = end - count; seq < end; ++seq)
    if (fragment(seq).operation == &operation) fragment(seq).operation = nullptr;
}

std::byte* Engine::kept_row(Seq seq) {
  if (!kept_) {
    const size_t bytes = (ring_.size() * config_.slot_bytes + 63) / 64 * 64;
    kept_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
    if (!kept_) throw std::bad_alloc();
  }
  return kept_.get() + seq.value % ring_.size() * config_.slot_bytes;
}

/// A result has come for what was sent well after fragments that have none: these, or their
/// results, are lost, unless they went round by the fallback.
void Engine::look_after_overtaken(const Fragment& by, Seq seq) {
  if (by.timeouts != 0) return;
  const Nanos before = by.sent_at - std::max(rtt_.smoothed() / 4, kReorderNs);
  overtaken_end_ = std::max(overtaken_end_, low_);
  for (; overtaken_end_ < seq && overdue_.size() < kMaxOverdue; ++overtaken_end_) {
    Fragment& overtaken = fragment(overtaken_end_);
    if (overtaken.sent_at > before) return;
    // The switch may keep its result; what is kept comes in the order of its lane.
    const bool same_lane = (seq - overtaken_end_) % config_.lanes == 0;
    if (overtaken.state != State::kDone && !overtaken.mark && overtaken.operation->spec.blocks &&
        !(by.bare && same_lane) && !needs_prompt_results() &&
        overtaken.operation->is_for_others(overtaken_end_, config_.rank))
      return;
    if (overtaken.state != State::kSent || overtaken.timeouts != 0 || overtaken.parked ||
        overtaken.mark)
      continue;
    overtaken.state = State::kOverdue;
    overtaken.overtaken = true;
    losses_end_ = seq + kLossyWindows * uint64_t{config_.window};
    overdue_.push_back(overtaken_end_);
    // With slots of its own nothing of it goes round.
    if (config_.fixed_slots) windows_.lost(overtaken_end_, next_, rtt_);
  }
}

/// Whether a result's mark is for this worker, of which the fragment was parked or not.
bool Engine::is_slowed_by(const Message& message, bool parked) const {
  // What is parked in the switch takes no link but with its result, which comes as fast as its last
  // contribution: only who sends that can slow it down.
  if (config_.home == Home::kSpill) return !parked || message.origin != wire::Origin::kFallback;
  // What workers keep takes links when it leaves the array, too. Those furthest ahead can wait; if
  // the others did, too, all would wait for them in the end.
  if (config_.park_room == 0 || (!parked && message.origin != wire::Origin::kParker &&
                                 (message.flags & wire::kFlagParked) == 0))
    return true;
  return next_ - low_ > config_.window / kFarAhead;
}

void Engine::adjust_windows(const Message& message, Seq seq, bool parked) {
  if (message.flags & wire::kFlagEcn) {
    ++counters_.ecn_marks;
    if (is_slowed_by(message, parked)) windows_.marked(seq, next_);
  } else {
    // The array is full: what finds no slot must find room elsewhere.
    if (message.origin == wire::Origin::kFallback && !config_.lossy_link) windows_.go_slower();
    windows_.unmarked();
  }
  // Of what was parked, parts must meet outside the switch.
  if ((message.flags & wire::kFlagSplit) != 0 && !parked)
    windows_.split(seq, next_);
  else
    windows_.whole(seq);
}

void Engine::finish_operations(Nanos now) {
  const Seq low = low_;
  while (low_ < next_ && fragment(low_).state == State::kDone) ++low_;
  if (config_.lossy_link && low_ != low && low_ < next_) probe_oldest(now);
  if (low_ == next_) next_deadline_ = kNever;
  for (Operation* operation : received_)
    if (operation->spec.listener) operation->spec.listener->received(*operation);
  received_.clear();
  // A listener may complete further operations.
  for (size_t i = 0; i < finished_.size(); ++i) {
    Operation* operation = finished_[i];
    std::erase(running_, operation);
    if (operation->closes) forget_bare_results(*operation);
    priority_.finished(now, running_.size());
    ++counters_.operations;
    if (operation->spec.listener) operation->spec.listener->completed(*operation);
    operation->done.store(true, std::memory_order_release);
  }
  finished_.clear();
}

// ---- epochs

void Engine::set_epoch(uint32_t epoch, Nanos now) {
  if (epoch <= config_.epoch) return;
  config_.epoch = epoch;
  if (fallback_) fallback_->set_epoch(epoch);
  // The switch has forgotten what was sent before: ask soon, and with new patience.
  for (Seq seq = low_; seq < next_; ++seq) {
    Fragment& fragment = this->fragment(seq);
    fragment.timeouts = 0;
    if (fragment.state != State::kSent) continue;
    fragment.deadline = std::min(fragment.deadline, now + timeout_after(0));
    next_deadline_ = std::min(next_deadline_, fragment.deadline);
  }
}

template <class Where>
void Engine::keep_results_where(Where&& where) {
  const Seq first = low_.value > config_.window ? low_ - config_.window : Seq{0};
  for (Seq seq = first; seq < next_; ++seq) {
    Fragment& fragment = this->fragment(seq);
    if (fragment.state != State::kDone || fragment.result == nullptr || !where(fragment.result))
      continue;
    std::byte* row = kept_row(seq);
    if (fragment.result == row) continue;
    std::memcpy(row, fragment.result, fragment.elements * wire_bytes(fragment.dtype));
    fragment.result = row;
  }
}

void Engine::keep_results(std::span<const std::byte> memory) {
  // As numbers: pointers into different memory have no order.
  keep_results_where([&](const std::byte* result) {
    return reinterpret_cast<uintptr_t>(result) - reinterpret_cast<uintptr_t>(memory.data()) <
           memory.size();
  });
}

void Engine::rejoin(const EngineConfig& told, Nanos now) {
  if (rule(Rule::kRulesAgain)) play_by(told);
  rejoin(told.epoch, now);
}

void Engine::play_by(const EngineConfig& told) {
  config_.fixed_slots = told.fixed_slots;
  config_.priority_max = told.priority_max;
  config_.congestion_window = told.congestion_window;
  config_.aggregator_window = told.aggregator_window;
  config_.rto_min_ns = told.rto_min_ns;
  config_.rto_max_ns = told.rto_max_ns;
  windows_.use(config_.congestion_window, config_.aggregator_window && !config_.fixed_slots,
               is_capped(config_));
  if (fallback_) fallback_->set_bind_at_once(config_.fixed_slots);
}

void Engine::rejoin(uint32_t epoch, Nanos now) {
  if (config_.results_stay) keep_results_where([](const std::byte*) { return true; });
  if (fallback_) fallback_->forget_targets();
  for (Operation* operation : running_) operation->spec.target = 0;
  for (Fragment& fragment : ring_) fragment.target = 0;
  set_epoch(epoch, now);
}

}  // namespace ina::client
