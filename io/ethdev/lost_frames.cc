#include "io/ethdev/lost_frames.h"

#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <rte_ethdev.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <utility>

namespace ina::io {
namespace {

/// Since the last call: the kernel sets its counter back.
uint64_t take_packet_drops(int socket) {
  tpacket_stats statistics{};
  socklen_t bytes = sizeof statistics;
  return ::getsockopt(socket, SOL_PACKET, PACKET_STATISTICS, &statistics, &bytes) == 0
             ? statistics.tp_drops
             : 0;
}

uint64_t xdp_drops(int socket) {
  xdp_statistics statistics{};
  socklen_t bytes = sizeof statistics;
  if (::getsockopt(socket, SOL_XDP, XDP_STATISTICS, &statistics, &bytes) != 0) return 0;
  // A frame that finds the fill ring empty is in both of these, if the kernel copies frames.
  const uint64_t without_buffer =
      std::max<uint64_t>(statistics.rx_dropped, statistics.rx_fill_ring_empty_descs);
  return without_buffer + statistics.rx_ring_full;
}

}  // namespace

LostFrames::LostFrames(uint16_t port_id, std::string driver, std::string interface,
                       std::vector<DriverSocket> sockets)
    : port_id_(port_id),
      driver_(std::move(driver)),
      interface_(std::move(interface)),
      sockets_(std::move(sockets)) {
  if (driver_ == "net_tap") before_ = of_tap();
}

std::optional<uint64_t> LostFrames::count() {
  if (driver_ == "net_af_packet" || driver_ == "net_af_xdp") {
    if (sockets_.empty()) return std::nullopt;
    if (driver_ == "net_af_packet") {
      for (const DriverSocket& socket : sockets_) counted_ += take_packet_drops(socket.fd);
      return counted_;
    }
    uint64_t sum = 0;
    for (const DriverSocket& socket : sockets_) sum += xdp_drops(socket.fd);
    return counted_ = std::max(counted_, sum);
  }
  if (driver_ == "net_tap") return of_tap() - before_;
  // A full ring of memif keeps its sender from sending: the sender knows what it drops.
  if (driver_ == "net_memif") return std::nullopt;
  rte_eth_stats statistics{};
  if (rte_eth_stats_get(port_id_, &statistics) != 0) return std::nullopt;
  return statistics.imissed + statistics.rx_nombuf;
}

/// What the kernel could not put into the queue from which the driver reads.
uint64_t LostFrames::of_tap() const {
  uint64_t dropped = 0;
  std::ifstream("/sys/class/net/" + interface_ + "/statistics/tx_dropped") >> dropped;
  return dropped;
}

}  // namespace ina::io
