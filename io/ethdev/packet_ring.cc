#include "io/ethdev/packet_ring.h"

#include <cstdio>
#include <fstream>
#include <string>

namespace ina::io {

std::optional<PacketRing> PacketRing::of(const DriverSocket& socket, uint32_t frame_bytes) {
  const std::string name = "socket:[" + std::to_string(socket.inode) + "]";
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (!line.ends_with(name) || std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2) continue;
    // Frames to be received, and behind them as many to be sent.
    const auto frames = static_cast<uint32_t>((end - begin) / 2 / frame_bytes);
    if (frames == 0) return std::nullopt;
    return PacketRing(reinterpret_cast<std::byte*>(begin), frames, frame_bytes);
  }
  return std::nullopt;
}

}  // namespace ina::io
