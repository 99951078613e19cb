// Capture files in pcap format, Ethernet, as the pcap driver reads and writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace ina::io {

using Bytes = std::vector<std::byte>;

class Capture {
 public:
  static void write(const std::string& path, const std::vector<Bytes>& frames) {
    std::ofstream file(path, std::ios::binary);
    put(file, FileHeader{});
    for (const Bytes& frame : frames) {
      const auto bytes = static_cast<uint32_t>(frame.size());
      put(file, RecordHeader{.captured_bytes = bytes, .frame_bytes = bytes});
      file.write(reinterpret_cast<const char*>(frame.data()), bytes);
    }
  }

  static std::vector<Bytes> read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    FileHeader header{};
    std::vector<Bytes> frames;
    if (!get(file, header)) return frames;
    for (RecordHeader record; get(file, record);) {
      frames.emplace_back(record.captured_bytes);
      file.read(reinterpret_cast<char*>(frames.back().data()), record.captured_bytes);
    }
    return frames;
  }

 private:
  struct FileHeader {
    uint32_t magic = 0xa1b2c3d4;
    uint16_t major = 2;
    uint16_t minor = 4;
    uint32_t zone = 0;
    uint32_t accuracy = 0;
    uint32_t snap_bytes = 65535;
    uint32_t link_type = 1;
  };
  struct RecordHeader {
    uint32_t seconds = 0;
    uint32_t fraction = 0;
    uint32_t captured_bytes = 0;
    uint32_t frame_bytes = 0;
  };

  template <class T>
  static void put(std::ofstream& file, const T& header) {
    file.write(reinterpret_cast<const char*>(&header), sizeof(header));
  }
  template <class T>
  static bool get(std::ifstream& file, T& header) {
    return static_cast<bool>(file.read(reinterpret_cast<char*>(&header), sizeof(header)));
  }
};

}  // namespace ina::io
