// Frames in host form whose bytes are fixed elsewhere: in frame_test.cc, in docs/protocol.md and in
// Wireshark's expected output (wireshark_test.py).
#pragma once

#include "tests/support/packet_builder.h"

namespace ina::testing {

/// The worked example of docs/protocol.md: the last 4 elements of an operation of 772 float32.
inline PacketBuilder golden_grad() {
  wire::Envelope envelope;
  envelope.source = {{2, 0, 0, 0, 0, 3}, 0x0a000003, 40003};
  envelope.destination = {{2, 0, 0, 0, 0, 0x0a}, 0x0a00000a, 7585};
  envelope.job = JobId{7};
  envelope.job_key = 0x1122334455667788;
  wire::Message message;
  message.type = wire::Type::kGrad;
  message.epoch = 3;
  message.seq = 4097;
  message.bitmap = WorkerSet::of(Rank{2});
  message.operation_elements = 772;
  message.operation = 12;
  message.elements = 4;
  message.dtype = DType::kFloat32;
  message.op = Op::kSum;
  message.rank = Rank{2};
  message.priority = 5;
  message.lane = 1;
  message.collective = Collective::kAllReduce;
  const float values[] = {1.0f, -2.5f, 0.5f, 1024.0f};
  return PacketBuilder().envelope(envelope).message(message).payload(
      bytes_of(std::span<const float>(values)));
}

/// No byte of the INA header like another's, as far as its fields allow. Valid all the same.
inline PacketBuilder golden_every_field() {
  wire::Envelope envelope;
  envelope.source = {{0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6}, 0xc0a80102, 0x9c43};
  envelope.destination = {{0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6}, 0xc0a80304, 7599};
  envelope.job = JobId{0x01020304};
  envelope.job_key = 0x1112131415161718;
  envelope.tag = 0x8182838485868788;
  wire::Message message;
  message.type = wire::Type::kDefer;
  message.epoch = 0x21222324;
  message.seq = 0x31323334;
  message.bitmap = WorkerSet::from_bits(0x4142434445464748);
  message.operation_elements = 0x5152535455565758;
  message.operation = 0x61626364;
  message.elements = 3;
  message.dtype = DType::kFloat16;
  message.op = Op::kAvg;
  message.rank = Rank{0x2a};
  message.priority = 0xfe;
  message.origin = wire::Origin::kFallback;
  message.phase = wire::Phase::kStatus;
  message.flags = wire::kFlagEcn | wire::kFlagRaw;
  message.receiver = 0x3c;
  message.lane = 15;
  message.collective = Collective::kAllReduce;
  message.instance = 0x71727374;
  return PacketBuilder().envelope(envelope).message(message).payload(from_hex("003c 0040 0044"));
}

}  // namespace ina::testing
