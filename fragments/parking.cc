#include "fragments/parking.h"

#include <algorithm>

namespace ina::client {

using wire::Message;
using wire::Type;

Parking::Parking(Flow& flow, Deadlines& deadlines) : flow_(flow), deadlines_(deadlines) {
  const EngineConfig& config = flow.config;
  if (config.park_room == 0) return;
  parker_.emplace(config.workers, config.window, config.slot_bytes, config.park_room);
  to_send_ = aggregator::FixedQueue<Seq>(config.park_room);
}

void Parking::on_parked(const Message& message, Nanos now) {
  const Seq seq = flow_.ring.extended(message.seq);
  if (!flow_.ring.is_started(seq) || message.epoch != flow_.config.epoch) return;
  if (Fragment& parked = flow_.ring[seq]; !parked.is_done()) leaves_window(seq, parked, now);
}

void Parking::leaves_window(Seq seq, Fragment& fragment, Nanos now) {
  if (fragment.parked || fragment.mark) return;
  fragment.parked = true;
  const bool all_sent = seq < flow_.ring.results_end();
  const Nanos patience =
      all_sent ? deadlines_.timeout_of_late(fragment) : deadlines_.timeout_of(seq, fragment);
  const Nanos deadline = std::max(all_sent ? 0 : fragment.deadline, now + patience);
  // Together with others: a look at all that has been sent is not worth it for one.
  const Nanos together = std::max<Nanos>(1, all_sent ? patience : flow_.timeouts.after(0));
  deadlines_.set(fragment, deadline + together - deadline % together);
  --flow_.in_flight;
  ++flow_.parked;
  ++flow_.counters.parked;
}

bool Parking::on_park(const RxPacket& packet, Nanos now, RxPacket& result) {
  const Message& message = packet.message;
  const Seq seq = flow_.ring.extended(message.seq);
  const auto lose = [this] {
    ++flow_.counters.parks_lost;
    return false;
  };
  if (!parker_ || !flow_.ring.is_started(seq) || message.epoch != flow_.config.epoch) return lose();
  Fragment& fragment = flow_.ring[seq];
  if (fragment.is_done()) return lose();
  Parker::Held* held = parker_->find(seq);
  if (held && held->epoch != message.epoch) {
    // The fallback sorts out what belongs to which epoch.
    fragment.all_to_fallback = true;
    queue(*held);
  }
  // A second place where the sum could be completed must never come to be.
  if (fragment.bound != 0 || fragment.all_to_fallback) return lose();
  if (!held) held = parker_->hold(seq, message);
  if (!held || !parker_->merge(*held, message, packet.payload)) return lose();
  ++flow_.counters.parks;
  leaves_window(seq, fragment, now);
  if (!held->complete) return false;
  ++flow_.counters.park_results;
  queue(*held);
  TxPacket sum;
  describe(*held, sum);
  result = {sum.message, sum.payload, sum.payload_bytes};
  return true;
}

bool Parking::release(Seq seq) {
  Parker::Held* const held = find(seq);
  if (held) parker_->release(*held);
  return held != nullptr;
}

void Parking::pass_on(Seq seq) {
  if (Parker::Held* const held = find(seq)) queue(*held);
}

bool Parking::gives_out(Seq seq) {
  const Parker::Held* const held = find(seq);
  return held && held->complete && held->queued;
}

void Parking::make_room(Seq begin, Seq end) {
  if (!parker_) return;
  for (Seq seq = begin; seq < end; ++seq) parker_->forget_before(seq);
}

void Parking::queue(Parker::Held& held) {
  if (held.queued || to_send_.full()) return;
  held.queued = true;
  to_send_.push(held.seq);
}

void Parking::describe(const Parker::Held& held, TxPacket& packet) {
  packet = TxPacket{};
  Message& message = packet.message;
  flow_.begin(message, held.complete ? Type::kResult : Type::kPart, held.seq);
  message.set_signature(held.signature);
  message.origin = wire::Origin::kParker;
  message.bitmap = held.bits;
  message.elements = held.elements;
  message.flags = held.flags;
  message.epoch = held.epoch;
  packet.payload_bytes = wire::payload_bytes(message);
  packet.payload = packet.payload_bytes == 0 ? nullptr : parker_->row(held);
}

size_t Parking::prepare(std::span<TxPacket> packets) {
  size_t count = 0;
  while (count < packets.size() && count < to_send_.size()) {
    if (const Parker::Held* const held = parker_->find(to_send_[count]); held && held->queued) {
      describe(*held, packets[count]);
      flow_.flag_kept(packets[count++]);
    } else if (count == 0) {
      to_send_.pop();
    } else {
      break;
    }
  }
  return count;
}

void Parking::sent(size_t count) {
  for (; count != 0; --count) {
    Parker::Held* const held = parker_->find(to_send_[0]);
    to_send_.pop();
    if (!held) continue;
    held->queued = false;
    // A result may be asked for again, where the transport is to keep it.
    if (!held->complete || !flow_.config.results_stay) parker_->release(*held);
  }
}

}  // namespace ina::client
