// A packet as ports hand it to the aggregator: a message and a read-only view of its payload. The
// payload need not lie in a packet buffer: on the shm port it lies in the worker's memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/message.h"

namespace ina::aggregator {

/// Index of a job in a shard's job table; the conductor gives it out.
using JobIndex = uint16_t;

/// A packet received. Job and rank come from the binding made at admission, never from the packet.
struct alignas(64) RxPacket {
  wire::Message message;
  const std::byte* payload = nullptr;
  uint32_t payload_bytes = 0;
  JobIndex job = 0;
  Rank rank{};
};

}  // namespace ina::aggregator
