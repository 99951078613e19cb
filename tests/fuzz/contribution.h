// Contributions whose content follows from whose they are, so that any sum of them can be checked.
#pragma once

#include <cstring>
#include <vector>

#include "wire/message.h"

namespace ina::fuzz {

inline constexpr uint32_t kElements = 16;
inline constexpr uint32_t kSlotBytes = kElements * sizeof(int32_t);
inline constexpr uint32_t kPayloadBytes = kSlotBytes;

/// Element `i` of the sum of these workers' contributions to a fragment of a job; int32 wraps.
inline uint32_t sum_element(uint32_t job, uint32_t seq, WorkerSet workers, uint32_t i) {
  uint32_t sum = 0;
  for (const Rank worker : workers) {
    const uint32_t rank = value(worker);
    sum += ((seq * 64 + rank) * 8 + job + 1) * 2654435761u + i * (rank + 1);
  }
  return sum;
}

inline std::vector<std::byte> sum_of(uint32_t job, uint32_t seq, WorkerSet workers) {
  std::vector<std::byte> payload(kPayloadBytes);
  for (uint32_t i = 0; i < kElements; ++i) {
    const uint32_t element = sum_element(job, seq, workers, i);
    std::memcpy(payload.data() + i * sizeof element, &element, sizeof element);
  }
  return payload;
}

/// True if `payload` is the sum of these workers' contributions.
inline bool is_sum(const std::byte* payload, uint32_t bytes, uint32_t job, uint32_t seq,
                   WorkerSet workers) {
  return bytes == kPayloadBytes &&
         std::memcmp(payload, sum_of(job, seq, workers).data(), kPayloadBytes) == 0;
}

/// A message about a fragment of an operation that all workers agree on.
inline wire::Message message_of(wire::Type type, uint32_t seq, uint32_t workers) {
  wire::Message message;
  message.type = type;
  message.seq = seq;
  message.bitmap = WorkerSet::first(workers);
  message.operation_elements = uint64_t{1} << 40;
  message.operation = 7;
  message.elements = kElements;
  message.dtype = DType::kInt32;
  message.op = Op::kSum;
  message.collective = Collective::kAllReduce;
  return message;
}

}  // namespace ina::fuzz
