#include "engine/engine.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "wire/rules.h"

namespace ina::client {

using wire::Message;
using wire::Type;

namespace {

// With static slots, every this many time-outs the fallback is asked instead of sending again.
constexpr uint8_t kQueryEvery = 4;
// Time-outs of a fragment before they begin to double.
constexpr int kPatientAfter = 2;
// Results of operations from here on have left the caches before anybody reads them.
constexpr uint64_t kStreamBytes = 8 << 20;
// How much later a fragment must have been sent than one that it overtook, beside a quarter of the
// round trip (RACK, RFC 8985), for that to be taken for lost.
constexpr Nanos kReorderNs = 100'000;
// Between questions for a fragment that was overtaken.
constexpr Nanos kLeastBetweenQuestionsNs = 1'000'000;
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
    parked_out_.resize(config.park_room);
  }
  overdue_.reserve(kMaxOverdue);
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
  operation->elements_per_fragment = elements_per_fragment(spec.dtype, config_.slot_bytes);
  operation->fragments = std::max<uint64_t>(
      1, (spec.elements + operation->elements_per_fragment - 1) / operation->elements_per_fragment);
  operation->sent = 0;
  operation->complete = 0;
  operation->started = now;
  operation->priority = std::min(priority_.priority(now), config_.priority_max);
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
  operation->fragments = std::max<uint64_t>(
      1, (elements + operation->elements_per_fragment - 1) / operation->elements_per_fragment);
  if (!skip) return;
  operation->fragments = 0;
  std::erase(to_send_, operation);
  finished_.push_back(operation);
}

void Engine::release(Operation* operation) {
  spare_.push_back(operation);
}

// ---- sending

void Engine::describe(Seq seq, const Operation& operation, TxPacket& packet) const {
  const uint64_t first = (seq - operation.first_seq) * operation.elements_per_fragment;
  const auto elements = static_cast<uint16_t>(
      std::min<uint64_t>(operation.elements_per_fragment, operation.spec.elements - first));
  Message& message = packet.message;
  message = Message{};
  message.bitmap = bit_of(config_.rank);
  message.operation_elements = operation.spec.elements | operation.spec.fused;
  message.operation = operation.number;
  message.epoch = config_.epoch;
  message.seq = seq.low();
  message.elements = elements;
  message.type = Type::kGrad;
  message.dtype = operation.spec.dtype;
  message.op = operation.spec.op;
  message.collective = operation.spec.collective;
  message.rank = config_.rank;
  message.priority = operation.priority;
  message.lane = static_cast<uint8_t>(seq.value % config_.lanes);
  if (operation.spec.target != 0)
    message.target = static_cast<uint32_t>(
        operation.spec.target + first * wire_bytes(operation.spec.dtype) / wire::kTargetUnitBytes);
  packet.payload_bytes = elements * wire_bytes(operation.spec.dtype);
  packet.payload = packet.payload_bytes == 0
                       ? nullptr
                       : operation.spec.send + first * wire_bytes(operation.spec.dtype);
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
  size_t count = 0;
  while (count < packets.size() && count < questions_used_) {
    const Question& question = questions_[(questions_head_ + count) % questions_.size()];
    if (answer(question, packets[count])) {
      ++count;
    } else if (count == 0) {
      questions_head_ = (questions_head_ + 1) % questions_.size();
      --questions_used_;
    } else {
      break;
    }
  }
  prepared_answers_ = count;
  prepared_fallback_ = fallback_ ? fallback_->prepare(packets.subspan(count)) : 0;
  for (TxPacket& packet : packets.subspan(count, prepared_fallback_)) flag_kept(packet);
  count += prepared_fallback_;

  prepared_parked_ = 0;
  while (count < packets.size() && prepared_parked_ < parked_used_) {
    const Seq parked = parked_out_[(parked_head_ + prepared_parked_) % parked_out_.size()];
    if (const Parker::Held* const held = parker_->find(parked); held && held->queued) {
      describe_parked(*held, packets[count]);
      flag_kept(packets[count++]);
      ++prepared_parked_;
    } else if (prepared_parked_ == 0) {
      parked_head_ = (parked_head_ + 1) % parked_out_.size();
      --parked_used_;
    } else {
      break;
    }
  }

  std::erase_if(overdue_, [this](Seq seq) { return fragment(seq).state != State::kOverdue; });
  prepared_overdue_ = 0;
  for (; count < packets.size() && prepared_overdue_ < overdue_.size(); ++prepared_overdue_) {
    const Seq seq = overdue_[prepared_overdue_];
    const Fragment& overdue = fragment(seq);
    if (what_to_do(overdue) == Overdue::kQuery)
      query(seq, packets[count++]);
    else
      describe(seq, *overdue.operation, packets[count++]);
  }

  Seq seq = next_;
  const Seq end = low_ + config_.window;  // C1
  const uint32_t window = window_now();
  uint32_t in_flight = in_flight_;
  const bool early = now < windows_.paced_until();
  const uint32_t window_so_far =
      early ? in_flight : std::min(window, in_flight + windows_.quantum());
  const size_t first_new = count;
  const auto may_send = [&](uint32_t limit) {
    return count < packets.size() && seq < end && in_flight < limit;
  };
  bool more = false;
  for (Operation* operation : to_send_) {
    if (operation->spec.held) break;
    if (!operation->placed) {
      operation->first_seq = seq;
      operation->placed = true;
    }
    const Seq operation_end = operation->first_seq + operation->fragments;
    for (; seq < operation_end && may_send(window_so_far); ++seq) {
      ++in_flight;
      describe(seq, *operation, packets[count++]);
    }
    more = seq < operation_end;
    if (more) break;
  }
  paced_ = early && more && may_send(window);
  // On all of them, since they may go to different lanes.
  if (more && in_flight >= window && config_.in_switch != 0)
    for (TxPacket& packet : packets.subspan(first_new, count - first_new))
      packet.message.flags |= wire::kFlagFull;
  return count;
}

void Engine::mark_sent(Seq seq, Operation& operation, bool again, Nanos now) {
  Fragment& fragment = this->fragment(seq);
  if (!again) {
    fragment = Fragment{};
    if (parker_) parker_->forget_before(seq);
  }
  fragment.operation = &operation;
  fragment.epoch = config_.epoch;
  fragment.state = State::kSent;
  fragment.sent_at = now;
  fragment.deadline = now + timeout_after(fragment.timeouts);
  next_deadline_ = std::min(next_deadline_, fragment.deadline);
  ++counters_.fragments_sent;
  const uint64_t first = (seq - operation.first_seq) * operation.elements_per_fragment;
  counters_.bytes_sent +=
      std::min<uint64_t>(operation.elements_per_fragment, operation.spec.elements - first) *
      wire_bytes(operation.spec.dtype);
}

void Engine::sent(size_t count, Nanos now) {
  const size_t answers = std::min(count, prepared_answers_);
  questions_head_ = (questions_head_ + answers) % std::max<size_t>(1, questions_.size());
  questions_used_ -= answers;
  count -= answers;
  prepared_answers_ = 0;

  const size_t of_fallback = std::min(count, prepared_fallback_);
  if (of_fallback != 0) fallback_->sent(of_fallback);
  count -= of_fallback;
  prepared_fallback_ = 0;

  const size_t parked = std::min(count, prepared_parked_);
  parked_sent(parked);
  count -= parked;
  prepared_parked_ = 0;

  const size_t overdue = std::min(count, prepared_overdue_);
  for (size_t i = 0; i < overdue; ++i) {
    Fragment& fragment = this->fragment(overdue_[i]);
    const Overdue what = what_to_do(fragment);
    if (fragment.timeouts < 255) ++fragment.timeouts;
    if (what == Overdue::kAgain) {
      mark_sent(overdue_[i], *fragment.operation, true, now);
      ++counters_.fragments_resent;
    } else {
      fragment.state = State::kSent;
      fragment.queried = true;
      fragment.deadline = now + timeout_of(overdue_[i], fragment);
      next_deadline_ = std::min(next_deadline_, fragment.deadline);
      ++counters_.queries;
    }
  }
  overdue_.erase(overdue_.begin(), overdue_.begin() + static_cast<ptrdiff_t>(overdue));
  count -= overdue;
  prepared_overdue_ = 0;

  if (count != 0) windows_.left(count, now, rtt_);
  for (; count != 0; --count) {
    Operation* operation = to_send_.front();
    mark_sent(next_, *operation, false, now);
    ++in_flight_;
    ++next_;
    if (++operation->sent == operation->fragments) to_send_.erase(to_send_.begin());
  }
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
  if (!fragment.overtaken || fragment.timeouts > kPatientAfter)
    return timeout_after(fragment.timeouts);
  return std::min(timeout_after(0), std::max(kLeastBetweenQuestionsNs, rtt_.late()));
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
      if (questions_used_ == questions_.size()) {
        ++counters_.answers_lost;  // it will be asked again
        return 0;
      }
      questions_[(questions_head_ + questions_used_++) % questions_.size()] = {
          extend(message.seq, low_), message.bitmap, message.instance, message.phase};
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
  if (fragment.parked) return;
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
    fragment.home = true;
    queue_parked(*held);
  }
  // A second place where the sum could be completed must never come to be.
  if (fragment.bound != 0 || fragment.home) return lose();
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
  if (held.queued || parked_used_ == parked_out_.size()) return;
  held.queued = true;
  parked_out_[(parked_head_ + parked_used_++) % parked_out_.size()] = held.seq;
}

void Engine::describe_parked(const Parker::Held& held, TxPacket& packet) {
  packet = TxPacket{};
  Message& message = packet.message;
  message.type = held.complete ? Type::kResult : Type::kPart;
  message.origin = wire::Origin::kParker;
  message.bitmap = held.bits;
  message.operation_elements = held.signature.elements;
  message.operation = held.signature.operation;
  message.dtype = held.signature.dtype;
  message.op = held.signature.op;
  message.collective = held.signature.collective;
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
    Parker::Held* const held = parker_->find(parked_out_[parked_head_]);
    parked_head_ = (parked_head_ + 1) % parked_out_.size();
    --parked_used_;
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
  if (seq >= next_) {
    message.type = Type::kNotYet;
    return true;
  }
  Fragment& fragment = this->fragment(seq);
  if (fragment.state == State::kDone) {
    if (seq + config_.window < results_end_ || !rule(Rule::kRetainResults)) return false;
    message.type = Type::kHave;
    message.operation_elements = fragment.operation_elements;
    message.operation = fragment.operation_number;
    message.dtype = fragment.dtype;
    message.op = fragment.op;
    message.collective = fragment.collective;
    message.elements = fragment.elements;
    message.flags = static_cast<uint16_t>(fragment.flags);
    message.target = fragment.target;
    packet.payload_bytes = wire::payload_bytes(message);
    packet.payload = fragment.result;
    return true;
  }
  if (question.phase == wire::Phase::kStatus) {
    message.type = Type::kSent;
    return true;
  }
  if (fragment.bound > question.instance + 1 && rule(Rule::kInstance)) return false;
  // Asked for what it sent: that was lost on the way to the switch.
  if (config_.lossy_link && fragment.bound == 0 && (question.ask & bit_of(config_.rank)) != 0)
    windows_.lost(seq, next_, rtt_);
  fragment.bound = question.instance + 1;
  if (parker_)
    if (Parker::Held* const held = parker_->find(seq)) queue_parked(*held);
  if ((question.ask & bit_of(config_.rank)) != 0) {
    describe(seq, *fragment.operation, packet);
    message.flags = wire::kFlagRaw;
    message.instance = question.instance;
    ++counters_.raws_sent;
  }
  message.type = Type::kDefer;
  return true;
}

size_t Engine::accept_result(const RxPacket& packet, Nanos now, CopyJob* jobs) {
  const Message& message = packet.message;
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
  // Whoever is bound waits for the fallback's decision: others may have been given another sum.
  if (fragment.bound != 0) {
    if (message.origin != wire::Origin::kFallback && rule(Rule::kResultOrigin)) return ignore();
    if (message.instance + 1 < fragment.bound && rule(Rule::kInstance)) return ignore();
  }
  Operation& operation = *fragment.operation;
  TxPacket ours;
  describe(seq, operation, ours);
  if (message.signature() != ours.message.signature() ||
      message.elements != ours.message.elements || packet.payload_bytes != ours.payload_bytes)
    return ignore();
  std::byte* to = operation.spec.recv + (seq - operation.first_seq) *
                                            operation.elements_per_fragment *
                                            wire_bytes(operation.spec.dtype);
  // Only the switch can write there.
  if (message.target != 0 && packet.payload != to) return ignore();
  // Karn: never from a fragment that was sent or asked for again.
  if (fragment.timeouts == 0 && fragment.state == State::kSent && fragment.epoch == config_.epoch &&
      !fragment.parked)
    rtt_.sample(now - fragment.sent_at, now);
  else
    doubt_rtt(fragment, now);
  // More are overdue: half of those before are recovered.
  if (recoveries_until_look_ != 0 && fragment.bound != 0 && --recoveries_until_look_ == 0)
    next_deadline_ = now;
  adjust_windows(message, seq, fragment.parked);
  if (config_.lossy_link) look_after_overtaken(fragment, seq);
  --(fragment.parked ? parked_ : in_flight_);
  windows_.delivered(now, in_flight_ == 0, rtt_);

  fragment.state = State::kDone;
  fragment.operation = nullptr;
  fragment.operation_elements = message.operation_elements;
  fragment.operation_number = message.operation;
  fragment.elements = message.elements;
  fragment.flags = message.flags & (wire::kFlagOverflow | wire::kFlagSplit);
  fragment.target = message.target;
  fragment.dtype = message.dtype;
  fragment.op = message.op;
  fragment.collective = message.collective;
  fragment.result = config_.results_stay ? packet.payload : kept_row(seq);
  if (seq >= results_end_) {
    const Seq before = results_end_;
    results_end_ = seq + 1;
    if (before < seq) expect_parked(before, seq, now);
    if (fallback_ && seq.value >= config_.window) fallback_->raise_floor(seq - config_.window);
  }
  ++counters_.results;
  if (message.origin == wire::Origin::kFallback) ++counters_.results_from_fallback;
  counters_.bytes_received += packet.payload_bytes;
  if (message.flags & wire::kFlagOverflow) ++counters_.overflows;
  if (++operation.complete == operation.fragments) finished_.push_back(&operation);
  if (packet.payload_bytes == 0 || message.target != 0) return 0;
  counters_.bytes_copied += packet.payload_bytes;
  const bool stream = operation.spec.elements * wire_bytes(operation.spec.dtype) >= kStreamBytes;
  jobs[0] = {to, packet.payload, packet.payload_bytes, stream};
  if (config_.results_stay) return 1;
  jobs[1] = {kept_row(seq), packet.payload, packet.payload_bytes};
  return 2;
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
    if (overtaken.state != State::kSent || overtaken.timeouts != 0 || overtaken.parked) continue;
    overtaken.state = State::kOverdue;
    overtaken.overtaken = true;
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
  while (low_ < next_ && fragment(low_).state == State::kDone) ++low_;
  if (low_ == next_) next_deadline_ = kNever;
  // A listener may complete further operations.
  for (size_t i = 0; i < finished_.size(); ++i) {
    Operation* operation = finished_[i];
    std::erase(running_, operation);
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

void Engine::rejoin(uint32_t epoch, Nanos now) {
  if (config_.results_stay) keep_results_where([](const std::byte*) { return true; });
  if (fallback_) fallback_->forget_targets();
  for (Operation* operation : running_) operation->spec.target = 0;
  for (Fragment& fragment : ring_) fragment.target = 0;
  set_epoch(epoch, now);
}

}  // namespace ina::client
