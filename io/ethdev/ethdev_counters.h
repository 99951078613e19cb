// The counters of an Ethernet port. Without DPDK's headers, for code that only shows them.
#pragma once

#include <cstdint>

#include "wire/counter_field.h"
#include "wire/drop_reason.h"

namespace ina::io {

/// The counters of an ethdev port beyond PortCounters. Every frame received has one fate. Over all
/// lanes of a port, when nothing lies in the rings between them,
///   rx_packets = delivered + answered + forwarded + flooded + dropped on receipt,
/// where the last is the sum of those drops that are not on_output(). Frames that ports hand each
/// other are sent or lost; when nothing is queued, over all ports
///   sum of (forwarded + flood_copies) = sum of (bridged_sent + bridged_lost).
struct EthdevCounters {
  uint64_t delivered = 0;
  uint64_t answered = 0;
  uint64_t forwarded = 0;  ///< handed to one other port
  uint64_t flooded = 0;    ///< handed to all other ports that have a link
  uint64_t forwarded_bytes = 0;
  uint64_t flood_copies = 0;
  uint64_t bridged_sent = 0;
  uint64_t bridged_sent_bytes = 0;
  uint64_t bridged_lost = 0;
  uint64_t handed_over = 0;  ///< no fate
  uint64_t tx_handed_over = 0;
};

inline constexpr CounterField<EthdevCounters> kEthdevCounterFields[] = {
    {&EthdevCounters::delivered, {"delivered", "frames", "Frames handed to the aggregator."}},
    {&EthdevCounters::answered,
     {"answered", "frames", "ARP and ICMP echo requests for the switch's own addresses."}},
    {&EthdevCounters::forwarded,
     {"forwarded",
      "frames",
      "Frames for others that came in by the port and were passed on.",
      {"ina_port_forwarded_frames_total"}}},
    {&EthdevCounters::flooded,
     {"flooded",
      "frames",
      "Frames for others that went to all ports.",
      {"ina_port_flooded_frames_total"}}},
    {&EthdevCounters::forwarded_bytes,
     {"forwarded_bytes",
      "whole bytes",
      "Bytes of the frames for others that came in by the port and were passed on.",
      {"ina_port_forwarded_bytes_total"}}},
    {&EthdevCounters::flood_copies,
     {"flood_copies", "frames", "Copies of flooded frames, one for each port that they went to."}},
    {&EthdevCounters::bridged_sent,
     {"bridged_sent", "frames", "Frames of other ports that left by the port."}},
    {&EthdevCounters::bridged_sent_bytes,
     {"bridged_sent_bytes",
      "whole bytes",
      "Bytes of the frames of other ports that left by the port.",
      {"ina_port_bridged_bytes_total"}}},
    {&EthdevCounters::bridged_lost,
     {"bridged_lost",
      "frames",
      "Frames of other ports that the port could not send.",
      {"ina_port_bridged_lost_frames_total"}}},
    {&EthdevCounters::handed_over,
     {"handed_over", "frames", "Frames received for another packet loop, which got them."}},
    {&EthdevCounters::tx_handed_over,
     {"tx_handed_over", "frames", "Frames given to a packet loop with a queue, which sends them."}},
};
static_assert(sizeof(EthdevCounters) == bytes_of(kEthdevCounterFields),
              "a counter needs a row in kEthdevCounterFields");

inline void add(EthdevCounters& sum, const EthdevCounters& more) {
  add(sum, more, kEthdevCounterFields);
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
