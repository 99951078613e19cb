// The engine's answers to the fallback, and the results that it keeps for them.
#include <cstring>

#include "fragments/engine.h"
#include "wire/rules.h"

namespace ina::client {

using wire::Message;
using wire::Type;

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

/// Makes the answer to a POLL; false if there is none to give.
bool Engine::answer(const Question& question, TxPacket& packet) {
  const Seq seq = question.seq;
  if (seq + config_.window < low_) return false;  // nobody can need it any more
  packet = TxPacket{};
  Message& message = packet.message;
  message.bitmap = WorkerSet::of(config_.rank);
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
    // The result waits for its turn on the link, which HAVE with the same payload would take.
    const Parker::Held* const held = parker_ ? parker_->find(seq) : nullptr;
    if (held && held->complete && held->queued) return false;
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
  // Its bytes are for other workers. They have them by the time that this worker's buffer is its
  // user's again, and then nobody needs an answer.
  if (over) return false;
  if (fragment.state == State::kDone && !rule(Rule::kBindAgain)) return false;
  if (fragment.bound > question.instance + 1 && rule(Rule::kInstance)) return false;
  // Asked for a contribution that it sent: that was lost on the way to the switch.
  if (config_.lossy_link && fragment.bound == 0 && question.ask.contains(config_.rank))
    windows_.lost(seq, next_, timeouts_.round_trip);
  fragment.bound = question.instance + 1;
  if (parker_)
    if (Parker::Held* const held = parker_->find(seq)) queue_parked(*held);
  if (question.ask.contains(config_.rank)) {
    describe(seq, *fragment.operation, in_flight_, packet);
    message.flags |= wire::kFlagRaw;
    message.instance = question.instance;
    ++counters_.raws_sent;
  }
  message.type = Type::kDefer;
  return true;
}

/// Only a result that this worker has taken may be kept from it: it would not be told again.
void Engine::flag_kept(TxPacket& packet) {
  if (packet.message.type != Type::kResult || !keeps_results()) return;
  const Seq seq = extend(packet.message.seq, low_);
  const bool taken = seq < low_ || (seq < next_ && fragment(seq).state == State::kDone);
  if (taken || !rule(Rule::kKeptResult)) packet.message.flags |= wire::kFlagKept;
}

template <class Where>
void Engine::keep_results_where(Where&& where) {
  const Seq first = low_.value > config_.window ? low_ - config_.window : Seq{0};
  for (Seq seq = first; seq < next_; ++seq) {
    Fragment& fragment = this->fragment(seq);
    if (fragment.state != State::kDone || fragment.result == nullptr || !where(fragment.result))
      continue;
    std::byte* row = kept_.row(seq);
    if (fragment.result == row) continue;
    std::memcpy(row, fragment.result, fragment.elements * wire_bytes(fragment.dtype));
    fragment.result = row;
  }
}

void Engine::keep_all_results() {
  keep_results_where([](const std::byte*) { return true; });
}

void Engine::keep_results(std::span<const std::byte> memory) {
  // As numbers: pointers into different memory have no order.
  keep_results_where([&](const std::byte* result) {
    return reinterpret_cast<uintptr_t>(result) - reinterpret_cast<uintptr_t>(memory.data()) <
           memory.size();
  });
}

}  // namespace ina::client
