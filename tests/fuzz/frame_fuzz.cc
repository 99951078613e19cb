// The frame codec against arbitrary bytes: nothing outside them is read (AddressSanitizer), and an
// accepted frame is the same after it is encoded and parsed again.
//
// Input: one byte of options, then the frame. Option 1 makes the CRC right, 2 the IPv4 checksum, 4
// insists on the port and its lanes.
#include <cstring>
#include <memory>

#include "tests/fuzz/check.h"
#include "tests/support/packet_builder.h"
#include "wire/frame.h"

namespace {

using namespace ina;

void check_valid(const wire::Frame& frame, uint32_t slot_bytes) {
  const wire::Message& message = frame.message;
  INA_FUZZ_CHECK(!wire::name(message.type).empty() && wire::name(message.type) != "?");
  INA_FUZZ_CHECK(wire::payload_bytes(message) == frame.payload_bytes);
  if (frame.payload_bytes == 0) return;
  INA_FUZZ_CHECK(is_valid(message.dtype, message.op) && is_valid(message.collective));
  INA_FUZZ_CHECK(message.elements <= elements_per_fragment(message.dtype, slot_bytes));
}

void check_round_trip(const wire::Frame& frame) {
  testing::Bytes again(wire::kFrameHeaderBytes + frame.payload_bytes);
  const std::span payload(frame.payload, frame.payload_bytes);
  INA_FUZZ_CHECK(wire::encode_headers(frame.envelope, frame.message, payload, again) ==
                 wire::kFrameHeaderBytes);
  if (!payload.empty())
    std::memcpy(again.data() + wire::kFrameHeaderBytes, payload.data(), payload.size());
  const auto parsed = wire::parse_frame(again, 0, 0);
  INA_FUZZ_CHECK(parsed);
  INA_FUZZ_CHECK(parsed->envelope.source == frame.envelope.source);
  INA_FUZZ_CHECK(parsed->envelope.destination == frame.envelope.destination);
  INA_FUZZ_CHECK(parsed->envelope.job == frame.envelope.job);
  INA_FUZZ_CHECK(parsed->envelope.job_key == frame.envelope.job_key);
  INA_FUZZ_CHECK(parsed->envelope.tag == frame.envelope.tag);
  INA_FUZZ_CHECK(std::memcmp(&parsed->message, &frame.message, sizeof frame.message) == 0);
  INA_FUZZ_CHECK(parsed->payload_bytes == frame.payload_bytes);
  INA_FUZZ_CHECK(payload.empty() ||
                 std::memcmp(parsed->payload, payload.data(), payload.size()) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t options = data[0];
  const auto* bytes = reinterpret_cast<const std::byte*>(data + 1);
  testing::Bytes frame(bytes, bytes + size - 1);
  if (options & 1) testing::fix_crc(frame);
  if (options & 2) testing::fix_ip_checksum(frame);
  // A copy of the exact size shows a read beyond its end.
  const auto exact = std::make_unique<std::byte[]>(frame.size());
  std::copy(frame.begin(), frame.end(), exact.get());
  const auto parsed = wire::parse_frame({exact.get(), frame.size()}, wire::kDefaultUdpPort,
                                        options & 4 ? uint16_t{4} : uint16_t{0});
  if (!parsed) {
    INA_FUZZ_CHECK(!name(parsed.error()).empty());
    return 0;
  }
  INA_FUZZ_CHECK(parsed->payload >= exact.get() &&
                 parsed->payload + parsed->payload_bytes <= exact.get() + frame.size());
  for (const uint32_t slot_bytes : {64u, 1024u, 8192u})
    if (!wire::validate(parsed->message, parsed->payload_bytes, slot_bytes))
      check_valid(*parsed, slot_bytes);
  check_round_trip(*parsed);
  return 0;
}
