#include "client/src/engine.h"

#include <algorithm>

namespace ina::client {

Engine::Engine(const EngineConfig& config) : config_(config), ring_(config.window) {
  overdue_.reserve(config.window);
  finished_.reserve(config.window);
}

Operation* Engine::submit(const OperationSpec& spec, Nanos now) {
  if (spare_.empty()) {
    storage_.push_back(std::make_unique<Operation>());
    spare_.push_back(storage_.back().get());
  }
  Operation* operation = spare_.back();
  spare_.pop_back();
  operation->spec = spec;
  operation->number = operations_submitted_++;
  operation->elements_per_fragment = elements_per_fragment(spec.dtype, config_.slot_bytes);
  operation->first_seq = planned_;
  operation->fragments = std::max<uint64_t>(
      1, (spec.elements + operation->elements_per_fragment - 1) / operation->elements_per_fragment);
  operation->sent = 0;
  operation->complete = 0;
  operation->started = now;
  operation->done.store(false, std::memory_order_relaxed);
  planned_ = planned_ + operation->fragments;
  running_.push_back(operation);
  to_send_.push_back(operation);
  return operation;
}

void Engine::release(Operation* operation) {
  spare_.push_back(operation);
}

void Engine::describe(Seq seq, Operation& operation, TxPacket& packet) const {
  const uint64_t first = (seq - operation.first_seq) * operation.elements_per_fragment;
  const auto elements = static_cast<uint16_t>(
      std::min<uint64_t>(operation.elements_per_fragment, operation.spec.elements - first));
  wire::Message& message = packet.message;
  message = wire::Message{};
  message.bitmap = bit_of(config_.rank);
  message.operation_elements = operation.spec.elements;
  message.operation = operation.number;
  message.epoch = config_.epoch;
  message.seq = seq.low();
  message.elements = elements;
  message.type = wire::Type::kGrad;
  message.dtype = operation.spec.dtype;
  message.op = operation.spec.op;
  message.collective = operation.spec.collective;
  message.rank = config_.rank;
  message.lane = static_cast<uint8_t>(seq.value % config_.lanes);
  packet.payload_bytes = elements * wire_bytes(operation.spec.dtype);
  packet.payload = packet.payload_bytes == 0
                       ? nullptr
                       : operation.spec.send + first * wire_bytes(operation.spec.dtype);
}

size_t Engine::prepare(std::span<TxPacket> packets, Nanos now) {
  if (now >= next_deadline_) find_overdue(now);
  size_t count = 0;
  for (; count < packets.size() && count < overdue_.size(); ++count)
    describe(overdue_[count], *fragment(overdue_[count]).operation, packets[count]);
  prepared_overdue_ = count;
  Seq seq = next_;
  for (auto operation = to_send_.begin(); operation != to_send_.end(); ++operation) {
    const Seq end = (*operation)->first_seq + (*operation)->fragments;
    for (; seq < end; ++seq) {
      if (count == packets.size() || seq >= low_ + config_.window) return count;
      describe(seq, **operation, packets[count++]);
    }
  }
  return count;
}

void Engine::sent(size_t count, Nanos now) {
  const auto mark = [&](Seq seq, Operation* operation) {
    Fragment& fragment = this->fragment(seq);
    fragment.operation = operation;
    fragment.state = State::kSent;
    fragment.sent_at = now;
    if (fragment.times_sent < 255) ++fragment.times_sent;
    fragment.deadline = now + timeout_after(fragment.times_sent);
    next_deadline_ = std::min(next_deadline_, fragment.deadline);
    ++counters_.fragments_sent;
    const uint64_t first = (seq - operation->first_seq) * operation->elements_per_fragment;
    counters_.bytes_sent +=
        std::min<uint64_t>(operation->elements_per_fragment, operation->spec.elements - first) *
        wire_bytes(operation->spec.dtype);
  };
  const size_t again = std::min(count, prepared_overdue_);
  for (size_t i = 0; i < again; ++i) mark(overdue_[i], fragment(overdue_[i]).operation);
  counters_.fragments_resent += again;
  overdue_.erase(overdue_.begin(), overdue_.begin() + static_cast<ptrdiff_t>(again));
  for (size_t i = again; i < count; ++i) {
    Operation* operation = to_send_.front();
    fragment(next_).times_sent = 0;
    mark(next_, operation);
    ++next_;
    if (++operation->sent == operation->fragments) to_send_.pop_front();
  }
}

Engine::Standing Engine::standing() {
  Seq end = next_;
  while (end > low_ && fragment(end - 1).state != State::kDone) end = end - 1;
  return {low_, next_, end};
}

void Engine::rejoin(uint32_t epoch, Nanos now) {
  config_.epoch = epoch;
  for (Seq seq = low_; seq < next_; ++seq)
    if (fragment(seq).state == State::kSent) fragment(seq).deadline = now;
  next_deadline_ = low_ == next_ ? kNever : now;
}

Nanos Engine::timeout_after(uint8_t times_sent) const {
  const Nanos base = std::max(config_.rto_min_ns, srtt_ + 4 * rttvar_);
  const int doublings = std::min<int>(times_sent - 1, 10);
  return std::min(base << doublings, std::max(base, config_.rto_max_ns));
}

void Engine::find_overdue(Nanos now) {
  next_deadline_ = kNever;
  for (Seq seq = low_; seq < next_; ++seq) {
    Fragment& fragment = this->fragment(seq);
    if (fragment.state != State::kSent) continue;
    if (fragment.deadline <= now) {
      fragment.state = State::kOverdue;
      overdue_.push_back(seq);
    } else {
      next_deadline_ = std::min(next_deadline_, fragment.deadline);
    }
  }
}

bool Engine::accept(const RxPacket& packet, Nanos now, CopyJob& job) {
  const wire::Message& message = packet.message;
  const Seq seq = extend(message.seq, low_);
  if (message.type != wire::Type::kResult || seq < low_ || seq >= next_) {
    ++counters_.results_ignored;
    return false;
  }
  Fragment& fragment = this->fragment(seq);
  Operation& operation = *fragment.operation;
  TxPacket ours;
  describe(seq, operation, ours);
  if (fragment.state == State::kDone || message.signature() != ours.message.signature() ||
      message.elements != ours.message.elements || packet.payload_bytes != ours.payload_bytes) {
    ++counters_.results_ignored;
    return false;
  }
  if (fragment.state == State::kOverdue) {
    std::erase(overdue_, seq);
  } else if (fragment.times_sent == 1) {
    sample_rtt(now - fragment.sent_at);  // Karn: never from a fragment that was sent again
  }
  fragment.state = State::kDone;
  job.to = operation.spec.recv + (seq - operation.first_seq) * operation.elements_per_fragment *
                                     wire_bytes(operation.spec.dtype);
  job.from = packet.payload;
  job.bytes = packet.payload_bytes;
  ++counters_.results;
  counters_.bytes_received += packet.payload_bytes;
  if (message.flags & wire::kFlagOverflow) ++counters_.overflows;
  if (++operation.complete == operation.fragments) finished_.push_back(&operation);
  return true;
}

void Engine::finish_operations() {
  while (low_ < next_ && fragment(low_).state == State::kDone) {
    fragment(low_).state = State::kUnsent;
    ++low_;
  }
  if (low_ == next_) next_deadline_ = kNever;
  for (Operation* operation : finished_) {
    std::erase(running_, operation);
    ++counters_.operations;
    operation->done.store(true, std::memory_order_release);
  }
  finished_.clear();
}

void Engine::sample_rtt(Nanos rtt) {
  if (srtt_ == 0) {
    srtt_ = rtt;
    rttvar_ = rtt / 2;
    return;
  }
  const Nanos error = rtt > srtt_ ? rtt - srtt_ : srtt_ - rtt;
  rttvar_ += (error - rttvar_) / 4;
  srtt_ += (rtt - srtt_) / 8;
}

}  // namespace ina::client
