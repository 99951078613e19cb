// The counters of a port. Without the port's own headers, for code that only shows them.
#pragma once

#include <cstdint>

#include "wire/counter_field.h"
#include "wire/drop_reason.h"

namespace ina::io {

/// The counters of every port. Its lane alone reads and writes it; the conductor gets a copy in the
/// lane's snapshot (switchd/lanes/lane_snapshot.h).
struct PortCounters {
  uint64_t rx_packets = 0;
  uint64_t rx_bytes = 0;
  uint64_t tx_packets = 0;
  uint64_t tx_bytes = 0;
  /// Packets that ended in the port: never handed to the datapath, or not sent.
  DropCounters drops;
};

inline constexpr CounterField<PortCounters> kPortCounterFields[] = {
    {&PortCounters::rx_packets,
     {"rx_packets",
      "messages",
      "Messages received; of an Ethernet port all frames, those for others included.",
      {"ina_port_receive_packets_total"}}},
    {&PortCounters::rx_bytes,
     {"rx_bytes",
      "bytes",
      "Payload of the messages received for aggregation.",
      {"ina_port_receive_bytes_total"}}},
    {&PortCounters::tx_packets,
     {"tx_packets",
      "messages",
      "Messages sent to workers and fallbacks.",
      {"ina_port_transmit_packets_total"}}},
    {&PortCounters::tx_bytes,
     {"tx_bytes",
      "bytes",
      "Payload sent to workers and fallbacks.",
      {"ina_port_transmit_bytes_total"}}},
};
static_assert(sizeof(PortCounters) == bytes_of(kPortCounterFields) + sizeof(DropCounters),
              "a counter needs a row in kPortCounterFields");

inline void add(PortCounters& sum, const PortCounters& more) {
  add(sum, more, kPortCounterFields);
  sum.drops.add(more.drops);
}

}  // namespace ina::io
