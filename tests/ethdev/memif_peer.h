// The conventions of the two processes of the memif tests. The server is a switch for one worker:
// it answers the GRAD of fragment s with a RESULT whose elements are twice as large.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "io/port.h"
#include "wire/frame.h"

namespace ina::io {

inline constexpr JobId kMemifJob{7};
inline constexpr uint64_t kMemifJobKey = 0x1122334455667788;
inline constexpr Rank kMemifRank{3};
/// Rows of the server's result ring; the client has fewer fragments in flight.
inline constexpr uint32_t kMemifRows = 256;

inline constexpr wire::TagKeys kMemifTagKeys = {{1, 2}, {3, 4}};

/// The server's input: a worker to bind.
struct MemifWorker {
  wire::Address address;
  bool tags = false;  ///< its frames carry tags, by kMemifTagKeys
};

/// The server's output at its end.
struct MemifReport {
  uint64_t results = 0;
  PortCounters counters;
};

inline std::vector<int32_t> memif_gradient(uint32_t seq, uint32_t slot_bytes) {
  std::vector<int32_t> values(slot_bytes / sizeof(int32_t));
  std::iota(values.begin(), values.end(), static_cast<int32_t>(seq * 77));
  return values;
}

inline wire::Message memif_message(wire::Type type, uint32_t seq, uint32_t slot_bytes) {
  wire::Message m;
  m.type = type;
  m.dtype = DType::kInt32;
  m.op = Op::kSum;
  m.collective = Collective::kAllReduce;
  m.seq = seq;
  m.elements = static_cast<uint16_t>(slot_bytes / sizeof(int32_t));
  m.operation_elements = UINT32_MAX;
  m.bitmap = WorkerSet::of(kMemifRank);
  m.rank = kMemifRank;
  return m;
}

}  // namespace ina::io
