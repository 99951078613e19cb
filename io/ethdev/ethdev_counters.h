// The counters of an Ethernet port. Without DPDK's headers, for code that only shows them.
#pragma once

#include <cstdint>

#include "wire/drop_reason.h"

namespace ina::io {

/// The counters of an ethdev port beyond PortCounters. Every frame received has one fate. Over all
/// lanes of a port, when nothing lies in the rings between them,
///   rx_packets = delivered + answered + forwarded + flooded + dropped on receipt,
/// where the last is the sum of those drops that are not on_output(). Frames that ports hand each
/// other are sent or lost; when nothing is queued, over all ports
///   sum of (forwarded + flood_copies) = sum of (bridged_sent + bridged_lost).
struct EthdevCounters {
  uint64_t delivered = 0;           ///< handed to the datapath
  uint64_t answered = 0;            ///< ARP and ICMP echo requests for the switch's own addresses
  uint64_t forwarded = 0;           ///< handed to one other port
  uint64_t flooded = 0;             ///< handed to all other ports that have a link
  uint64_t forwarded_bytes = 0;     ///< of whole frames, forwarded or flooded, each counted once
  uint64_t flood_copies = 0;        ///< to how many ports, summed up
  uint64_t bridged_sent = 0;        ///< frames of other ports that left by this one
  uint64_t bridged_sent_bytes = 0;  ///< of whole frames
  uint64_t bridged_lost = 0;        ///< frames of other ports dropped on the way out
  uint64_t handed_over = 0;         ///< received for another lane, which got them; no fate
  uint64_t tx_handed_over = 0;      ///< to a lane that has a queue pair, which sends them
};

inline void add(EthdevCounters& sum, const EthdevCounters& more) {
  sum.delivered += more.delivered;
  sum.answered += more.answered;
  sum.forwarded += more.forwarded;
  sum.flooded += more.flooded;
  sum.forwarded_bytes += more.forwarded_bytes;
  sum.flood_copies += more.flood_copies;
  sum.bridged_sent += more.bridged_sent;
  sum.bridged_sent_bytes += more.bridged_sent_bytes;
  sum.bridged_lost += more.bridged_lost;
  sum.handed_over += more.handed_over;
  sum.tx_handed_over += more.tx_handed_over;
}

/// Counted where a frame leaves, not where it comes in.
constexpr bool on_output(DropReason reason) {
  return reason == DropReason::kTooLong || reason == DropReason::kTxFull ||
         reason == DropReason::kNoBuffer;
}

/// Frames received that ended there.
constexpr uint64_t dropped_on_receipt(const DropCounters& drops) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kDropReasons; ++i)
    if (!on_output(static_cast<DropReason>(i))) sum += drops.count[i];
  return sum;
}

}  // namespace ina::io
