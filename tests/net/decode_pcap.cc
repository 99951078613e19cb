// Shows the INA frames of a pcap file as the codec reads them, one a line, by Wireshark's names and
// in its form:
//   decode_pcap FILE
// Frames that are not INA are left out; an INA frame that cannot be read ends it with 1.
#include <cinttypes>
#include <cstdio>
#include <string>

#include "tests/ethdev/capture.h"
#include "wire/frame.h"

namespace {

using ina::wire::Frame;

constexpr const char* kFields =
    "ina.type\tina.job\tina.job_key\tina.epoch\tina.seq\tina.bitmap\tina.bitmap.workers\t"
    "ina.operation_elements\tina.operation\tina.elements\tina.dtype\tina.op\tina.rank\t"
    "ina.priority\tina.origin\tina.phase\tina.flags\tina.flags.overflow\tina.flags.ecn\t"
    "ina.flags.raw\tina.flags.split\tina.flags.full\tina.lane\tina.collective\tina.instance\tina."
    "tag\t"
    "ina.payload";

void print(const Frame& frame) {
  const ina::wire::Message& m = frame.message;
  const auto flag = [&](uint16_t bit) { return (m.flags & bit) != 0 ? 1 : 0; };
  std::printf("%d\t%" PRIu32 "\t0x%016" PRIx64 "\t%" PRIu32 "\t%" PRIu32 "\t0x%016" PRIx64
              "\t%d\t%" PRIu64 "\t%" PRIu32 "\t%d\t%d\t%d\t%d\t%d\t%d\t%d",
              static_cast<int>(m.type), value(frame.envelope.job), frame.envelope.job_key, m.epoch,
              m.seq, m.bitmap.bits(), m.bitmap.size(), m.operation_elements, m.operation,
              m.elements, static_cast<int>(m.dtype), static_cast<int>(m.op),
              static_cast<int>(value(m.rank)), m.priority, static_cast<int>(m.origin),
              static_cast<int>(m.phase));
  std::printf("\t0x%04x\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%" PRIu32 "\t0x%016" PRIx64 "\t", m.flags,
              flag(ina::wire::kFlagOverflow), flag(ina::wire::kFlagEcn), flag(ina::wire::kFlagRaw),
              flag(ina::wire::kFlagSplit), flag(ina::wire::kFlagFull), m.lane,
              static_cast<int>(m.collective), m.instance, frame.envelope.tag);
  for (uint32_t i = 0; i < frame.payload_bytes; ++i)
    std::printf("%02x", std::to_integer<unsigned>(frame.payload[i]));
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::printf("%s\n", kFields);
  int number = 0;
  for (const ina::io::Bytes& bytes : ina::io::Capture::read(argv[1])) {
    ++number;
    const auto frame = ina::wire::parse_frame(bytes, 0, 0);
    if (frame) {
      print(*frame);
    } else if (frame.error() != ina::DropReason::kNotIna) {
      std::fprintf(stderr, "frame %d: %s\n", number, std::string(name(frame.error())).c_str());
      return 1;
    }
  }
  return 0;
}
