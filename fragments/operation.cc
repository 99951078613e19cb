#include "fragments/operation.h"

#include <algorithm>

namespace ina::client {

using wire::Message;

namespace {

uint64_t fragments_of(uint64_t elements, uint32_t elements_per_fragment) {
  return (elements + elements_per_fragment - 1) / elements_per_fragment;
}

uint64_t fragments_for(const scheduler::BlockTable& blocks, Rank receiver) {
  uint64_t sum = 0;
  for (const scheduler::Block& block : blocks.blocks())
    if (has_role(block.receiver, receiver))
      sum += fragments_of(block.elements, blocks.elements_per_fragment());
  return sum;
}

/// Where the switch is to write a fragment that all receive at the same place of the result
/// buffers. 0: there is none, or it does not begin at a unit.
uint32_t target_of(const OperationSpec& spec, const scheduler::BlockTable::Place& place) {
  if (spec.target == 0 || place.block->receiver != 0) return 0;
  const uint64_t first_byte = (place.block->receive_offset + place.first) * wire_bytes(spec.dtype);
  if (first_byte % wire::kTargetUnitBytes != 0) return 0;
  return static_cast<uint32_t>(spec.target + first_byte / wire::kTargetUnitBytes);
}

}  // namespace

void Operation::cut(uint32_t slot_bytes, Rank rank) {
  closes = false;
  if (!spec.blocks) {
    elements_per_fragment = ina::elements_per_fragment(spec.dtype, slot_bytes);
    to_receive = fragments =
        std::max<uint64_t>(1, fragments_of(spec.elements, elements_per_fragment));
    return;
  }
  elements_per_fragment = spec.blocks->elements_per_fragment();
  closes = has_closing(spec.collective) && spec.blocks->fragments() != 0;
  fragments = std::max<uint64_t>(1, spec.blocks->fragments() + (closes ? 1 : 0));
  to_receive = fragments_for(*spec.blocks, rank);
}

wire::Signature Operation::signature() const {
  const uint64_t cut_as =
      spec.blocks ? wire::blocks_bits(spec.elements, spec.blocks->fingerprint()) : spec.fused;
  return {spec.elements | cut_as, number, spec.dtype, spec.op, spec.collective, 0, 0};
}

void Operation::describe(Seq seq, Rank rank, TxPacket& packet) const {
  Message& message = packet.message;
  message.set_signature(signature());
  message.priority = priority;
  if (spec.blocks) [[unlikely]]
    return describe_block(index_of(seq), rank, packet);
  const uint32_t width = wire_bytes(spec.dtype);
  const uint64_t first = index_of(seq) * elements_per_fragment;
  message.elements =
      static_cast<uint16_t>(std::min<uint64_t>(elements_per_fragment, spec.elements - first));
  if (spec.target != 0)
    message.target = static_cast<uint32_t>(spec.target + first * width / wire::kTargetUnitBytes);
  packet.payload_bytes = message.elements * width;
  packet.payload = packet.payload_bytes == 0 ? nullptr : spec.send + first * width;
}

void Operation::describe_block(uint64_t index, Rank rank, TxPacket& packet) const {
  Message& message = packet.message;
  packet.payload = nullptr;
  packet.payload_bytes = 0;
  if (index >= spec.blocks->fragments()) return;
  const auto place = spec.blocks->place_of(index);
  if (!has_role(place.block->source, rank)) {
    message.flags |= wire::kFlagBare;
    message.elements = 1;
    return;
  }
  const uint32_t width = wire_bytes(spec.dtype);
  message.receiver = place.block->receiver;
  message.target = target_of(spec, place);
  message.elements = place.elements;
  packet.payload_bytes = place.elements * width;
  packet.payload = spec.send + (place.block->send_offset + place.first) * width;
}

ExpectedResult Operation::expected(Seq seq, Rank rank) const {
  const uint64_t index = index_of(seq);
  const uint32_t width = wire_bytes(spec.dtype);
  ExpectedResult result;
  if (!spec.blocks) [[likely]] {
    TxPacket packet;
    describe(seq, rank, packet);
    result.signature = packet.message.signature();
    result.elements = packet.message.elements;
    result.to = spec.recv + index * elements_per_fragment * width;
    return result;
  }
  result.signature = signature();
  if (index >= spec.blocks->fragments()) return result;
  const auto place = spec.blocks->place_of(index);
  result.signature.receiver = place.block->receiver;
  result.signature.target = target_of(spec, place);
  result.bytes = has_role(place.block->receiver, rank);
  result.elements = place.elements;
  if (!result.bytes) return result;
  result.to = spec.recv + (place.block->receive_offset + place.first) * width;
  result.is_there = is_moved(spec.collective) && has_role(place.block->source, rank) &&
                    result.to == spec.send + (place.block->send_offset + place.first) * width;
  return result;
}

uint64_t Operation::contribution_bytes(Seq seq) const {
  const uint64_t index = index_of(seq);
  const uint32_t width = wire_bytes(spec.dtype);
  if (spec.blocks)
    return index < spec.blocks->fragments()
               ? uint64_t{spec.blocks->place_of(index).elements} * width
               : 0;
  const uint64_t first = index * elements_per_fragment;
  return std::min<uint64_t>(elements_per_fragment, spec.elements - first) * width;
}

}  // namespace ina::client
