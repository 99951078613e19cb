// One turn of a port: take a burst, decide it, carry the verdicts out. Shared by the daemon's lanes
// and the simulated switch, so that both are the same switch.
#pragma once

#include "aggregator/aggregator.h"
#include "io/port.h"

namespace ina::aggregator {

/// `packets` and `verdicts` are scratch space of one burst. `send(job, rank, verdict)` queues the
/// verdict's message to one worker; `mismatch(packet, verdict)` hears of workers that disagree.
/// Returns the number of packets handled.
template <io::SwitchPort Port, class Send, class Mismatch>
size_t serve(Port& port, Aggregator& aggregator, std::span<io::RxPacket> packets,
             std::span<Verdict> verdicts, Nanos now, Send&& send, Mismatch&& mismatch) {
  const size_t count = port.rx_burst(packets);
  if (count != 0) {
    aggregator.on_burst(packets.first(count), now, verdicts);
    for (size_t i = 0; i < count; ++i) {
      const io::RxPacket& packet = packets[i];
      const Verdict& verdict = verdicts[i];
      if (verdict.emit == Verdict::Emit::kToSender) {
        send(packet.job, packet.rank, verdict);
      } else if (verdict.emit == Verdict::Emit::kToAll) {
        const uint32_t workers = aggregator.workers(packet.job);
        for (uint32_t rank = 0; rank < workers; ++rank)
          send(packet.job, Rank{static_cast<uint8_t>(rank)}, verdict);
      }
      if (verdict.fate == Verdict::Fate::kDropped && verdict.reason == DropReason::kMismatch)
        mismatch(packet, verdict);
    }
  }
  // Also after an empty burst: descriptors that were dropped must be given back too.
  port.rx_release();
  return count;
}

}  // namespace ina::aggregator
