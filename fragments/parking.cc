// Straggler help, at the worker: fragments of its own that left the array, and sums that it keeps
// for the switch (docs/protocol.md, "Parking").
#include <algorithm>

#include "fragments/engine.h"

namespace ina::client {

using wire::Message;
using wire::Type;

/// It frees a place in the switch, nothing else: the result is waited for as before.
void Engine::on_parked(const Message& message, Nanos now) {
  const Seq seq = extend(message.seq, low_);
  if (seq < low_ || seq >= next_ || message.epoch != config_.epoch) return;
  if (Fragment& parked = fragment(seq); parked.state != State::kDone)
    leaves_window(seq, parked, now);
}

void Engine::leaves_window(Seq seq, Fragment& fragment, Nanos now) {
  if (fragment.parked || fragment.mark) return;
  fragment.parked = true;
  const bool all_sent = seq < results_end_;
  const Nanos patience = all_sent ? timeout_of_late(fragment) : timeout_of(seq, fragment);
  fragment.deadline = std::max(all_sent ? 0 : fragment.deadline, now + patience);
  // Together with others: a look at all that has been sent is not worth it for one.
  const Nanos together = std::max<Nanos>(1, all_sent ? patience : timeouts_.after(0));
  fragment.deadline += together - fragment.deadline % together;
  next_deadline_ = std::min(next_deadline_, fragment.deadline);
  --in_flight_;
  ++parked_;
  ++counters_.parked;
}

/// A partial sum to keep, or a contribution that came after it. A message that cannot be taken
/// counts as lost on the way: the fallback has it sent again.
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

}  // namespace ina::client
