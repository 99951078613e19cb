#include "fragments/parker.h"

#include <cstring>
#include <new>

#include "aggregator/kernels.h"

namespace ina::client {

using aggregator::kernels;

Parker::Parker(uint32_t workers, uint32_t window, uint32_t slot_bytes, uint32_t room)
    : workers_(workers), slot_bytes_(slot_bytes), places_(2 * size_t{window}), held_(room) {
  for (uint32_t i = room; i != 0; --i) free_.push_back(i - 1);
  const size_t bytes = (size_t{room} * slot_bytes + 63) / 64 * 64;
  rows_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
  if (!rows_) throw std::bad_alloc();
}

Parker::Held* Parker::hold(Seq seq, const wire::Message& first) {
  forget_before(seq);
  if (free_.empty()) return nullptr;
  const uint32_t index = free_.back();
  free_.pop_back();
  places_[seq.value % places_.size()] = index + 1;
  Held& held = held_[index];
  held = Held{};
  held.seq = seq;
  held.epoch = first.epoch;
  held.used = true;
  return &held;
}

bool Parker::merge(Held& held, const wire::Message& message, const std::byte* payload) {
  const bool raw = (message.flags & wire::kFlagRaw) != 0;
  const aggregator::Kernels& kernel = kernels(message.dtype, message.op);
  std::byte* sum = row(held);
  if (held.bits.empty()) {
    held.signature = message.signature();
    held.elements = message.elements;
    if (raw)
      kernel.load(sum, payload, message.elements);
    else if (const uint32_t bytes = wire::payload_bytes(message); bytes != 0)
      std::memcpy(sum, payload, bytes);
  } else {
    if (held.bits.intersects(message.bitmap) || held.signature != message.signature() ||
        held.elements != message.elements)
      return false;
    (raw ? kernel.add : kernel.merge)(sum, payload, message.elements);
  }
  held.bits |= message.bitmap;
  if (held.bits == WorkerSet::first(workers_)) {
    // In place: a result's elements are no wider than accumulators.
    const bool overflow =
        kernel.finish(sum, sum, held.elements, held.signature.op == Op::kAvg ? workers_ : 1);
    held.flags = static_cast<uint16_t>((overflow ? wire::kFlagOverflow : 0));
    held.complete = true;
  }
  return true;
}

void Parker::release(Held& held) {
  places_[held.seq.value % places_.size()] = 0;
  held.used = false;
  free_.push_back(static_cast<uint32_t>(&held - held_.data()));
}

void Parker::forget_before(Seq seq) {
  const uint32_t place = places_[seq.value % places_.size()];
  if (place != 0 && held_[place - 1].seq != seq) release(held_[place - 1]);
}

}  // namespace ina::client
