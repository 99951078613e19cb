#include "fragments/answers.h"

#include "wire/rules.h"

namespace ina::client {

using wire::Message;
using wire::Type;

Answers::Answers(Flow& flow, Parking& parking)
    : flow_(flow), parking_(parking), questions_(2 * size_t{flow.config.window}) {}

void Answers::on_poll(const Message& poll) {
  if (questions_.full()) {
    ++flow_.counters.answers_lost;  // it will be asked again
    return;
  }
  questions_.push({flow_.ring.extended(poll.seq), poll.bitmap, poll.instance, poll.phase});
}

size_t Answers::prepare(std::span<TxPacket> packets) {
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
bool Answers::answer(const Question& question, TxPacket& packet) {
  const FragmentRing& ring = flow_.ring;
  const Seq seq = question.seq;
  if (seq + flow_.config.window < ring.low()) return false;  // nobody can need it any more
  packet = TxPacket{};
  flow_.begin(packet.message, Type::kNotYet, seq);
  packet.message.instance = question.instance;
  if (seq >= ring.next() || ring[seq].state == Fragment::State::kUnsent)
    return question.phase != wire::Phase::kAgain;
  Fragment& fragment = flow_.ring[seq];
  const bool over = fragment.operation == nullptr;
  if (fragment.is_done() && (!fragment.bare || !rule(Rule::kNonReceiverSent)))
    return answer_have(seq, fragment, packet);
  if (question.phase == wire::Phase::kStatus) {
    packet.message.type = Type::kSent;
    return true;
  }
  if (question.phase == wire::Phase::kAgain) return contribute_again(seq, fragment, packet);
  // Its bytes are for other workers. They have them by the time that this worker's buffer is its
  // user's again, and then nobody needs an answer.
  if (over) return false;
  if (fragment.is_done() && !rule(Rule::kBindAgain)) return false;
  if (fragment.bound > question.instance + 1 && rule(Rule::kInstance)) return false;
  defer(question, fragment, packet);
  return true;
}

/// In a tree: the bytes are for others, who may still need this worker's contribution.
bool Answers::contribute_again(Seq seq, const Fragment& fragment, TxPacket& packet) const {
  if (fragment.operation == nullptr || !rule(Rule::kBareAgain)) return false;
  flow_.describe(seq, *fragment.operation, flow_.in_flight, packet);
  packet.message.flags |= wire::kFlagAgain;
  return true;
}

/// The result of a fragment that is done.
bool Answers::answer_have(Seq seq, const Fragment& fragment, TxPacket& packet) {
  if (seq + flow_.config.window < flow_.ring.results_end() || !rule(Rule::kRetainResults))
    return false;
  // The result waits for its turn on the link, which HAVE with the same payload would take.
  if (parking_.gives_out(seq)) return false;
  Message& message = packet.message;
  message.type = Type::kHave;
  message.set_signature(
      {fragment.operation_elements, fragment.operation_number, fragment.dtype, fragment.op,
       fragment.collective, fragment.target,
       fragment.to_one ? static_cast<uint16_t>(1 + value(flow_.config.rank)) : uint16_t{0}});
  message.elements = fragment.elements;
  message.flags = static_cast<uint16_t>(fragment.flags);
  packet.payload_bytes = wire::payload_bytes(message);
  packet.payload = fragment.result;
  return true;
}

/// Binds the fragment to the fallback's decision, and gives the contribution that it asks for.
void Answers::defer(const Question& question, Fragment& fragment, TxPacket& packet) {
  const Seq seq = question.seq;
  const bool asked = question.ask.contains(flow_.config.at_switch());
  // Asked for a contribution that it sent: that was lost on the way to the switch.
  if (flow_.config.lossy_link && fragment.bound == 0 && asked)
    flow_.windows.lost(seq, flow_.ring.next(), flow_.timeouts.round_trip);
  fragment.bound = question.instance + 1;
  parking_.pass_on(seq);
  if (asked) {
    flow_.describe(seq, *fragment.operation, flow_.in_flight, packet);
    packet.message.flags |= wire::kFlagRaw;
    packet.message.instance = question.instance;
    ++flow_.counters.raws_sent;
  }
  packet.message.type = Type::kDefer;
}

}  // namespace ina::client
