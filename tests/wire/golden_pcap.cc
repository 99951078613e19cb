// Writes the golden frames, by the codec, as a pcap file: golden_pcap FILE. wireshark_test.py has
// Wireshark's expected output.
#include <cstdio>
#include <cstdlib>

#include "tests/wire/golden_frames.h"

namespace {

using ina::testing::Bytes;

struct FileHeader {
  uint32_t magic = 0xa1b2c3d4;  // in the writer's byte order: readers swap if they must
  uint16_t version_major = 2;
  uint16_t version_minor = 4;
  uint32_t time_zone = 0;
  uint32_t accuracy = 0;
  uint32_t snap_bytes = 65535;
  uint32_t link_type = 1;  // Ethernet
};

struct RecordHeader {
  uint32_t seconds = 0;
  uint32_t microseconds = 0;
  uint32_t captured_bytes = 0;
  uint32_t bytes = 0;
};

bool write(std::FILE* file, const void* data, size_t bytes) {
  return std::fwrite(data, 1, bytes, file) == bytes;
}

std::vector<Bytes> frames() {
  using namespace ina;
  using testing::PacketBuilder;
  return {
      testing::golden_grad().build(),
      testing::golden_every_field().build(),
      PacketBuilder()
          .type(wire::Type::kResult)
          .origin(wire::Origin::kSwitch)
          .flags(wire::kFlagOverflow)
          .dtype(DType::kInt8)
          .elements(3)
          .ip_options(1)
          .padding(6)
          .build(),
      // From a switch's lane to a worker's own port.
      PacketBuilder()
          .type(wire::Type::kStale)
          .from({{2, 0, 0, 0, 0, 0x0a}, 0x0a00000a, 7584})
          .to({{2, 0, 0, 0, 0, 1}, 0x0a000001, 40001})
          .build(),
      testing::golden_grad().set_byte(testing::kPayloadAt, 0xff).build(),         // wrong CRC
      testing::golden_grad().set_byte(testing::kInaAt, 'X').fix_crc().build(),    // not INA
      testing::golden_grad().set_byte(testing::kInaAt + 2, 3).fix_crc().build(),  // version 3
      PacketBuilder()
          .values(std::vector<int32_t>{-2, 500})
          .dtype(DType::kInt8)
          .type(wire::Type::kPart)
          .build(),
      PacketBuilder()
          .values(std::vector<uint16_t>{0x3f80, 0xc020})
          .dtype(DType::kBFloat16)
          .type(wire::Type::kHave)
          .build(),
      PacketBuilder().values(std::vector<int64_t>{INT64_MIN, 7}).dtype(DType::kInt64).build(),
      PacketBuilder().values(std::vector<double>{0.1}).dtype(DType::kFloat64).build(),
      PacketBuilder()
          .values(std::vector<uint8_t>{0xff, 7})
          .dtype(DType::kUInt8)
          .op(Op::kBxor)
          .build(),
      PacketBuilder()
          .values(std::vector<int32_t>{300, 1})
          .dtype(DType::kUInt8)
          .type(wire::Type::kPart)
          .build(),
      PacketBuilder()
          .values(std::vector<uint8_t>{1, 0})
          .dtype(DType::kBool)
          .op(Op::kProduct)
          .build(),
  };
}

}  // namespace

int main(int argc, char** argv) {
  std::FILE* file = argc == 2 ? std::fopen(argv[1], "wb") : nullptr;
  if (file == nullptr) {
    std::fprintf(stderr, "usage: golden_pcap FILE\n");
    return EXIT_FAILURE;
  }
  const FileHeader header;
  bool written = write(file, &header, sizeof header);
  for (const Bytes& frame : frames()) {
    RecordHeader record;
    record.captured_bytes = record.bytes = static_cast<uint32_t>(frame.size());
    written =
        written && write(file, &record, sizeof record) && write(file, frame.data(), frame.size());
  }
  return std::fclose(file) == 0 && written ? EXIT_SUCCESS : EXIT_FAILURE;
}
