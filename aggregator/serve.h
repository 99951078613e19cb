// One turn of a port: take a burst, decide it, carry the verdicts out. The daemon's lanes and the
// simulated switch share this code, so that both are the same switch.
#pragma once

#include <bit>
#include <concepts>
#include <span>

#include "aggregator/aggregator.h"

namespace ina::aggregator {

/// Sends what a verdict says. `send(job, rank, emission)` queues a message to one worker, or to a
/// dedicated fallback (kFallbackRank). A fallback within the lane is served at once, and so is what
/// it says in turn.
template <class Send>
void carry_out(Aggregator& aggregator, const Verdict& verdict, Rank sender, Send&& send) {
  for (const Emission& emission : verdict.to_send()) {
    const JobSpec& job = aggregator.spec(emission.job);
    switch (emission.to) {
      case Emission::To::kSender:
        send(emission.job, sender, emission);
        break;
      case Emission::To::kAll:
        for (uint32_t rank = 0; rank < job.workers; ++rank)
          send(emission.job, Rank{static_cast<uint8_t>(rank)}, emission);
        break;
      case Emission::To::kHolders:
        for (Bitmap left = emission.message.bitmap; left != 0; left &= left - 1)
          send(emission.job, Rank{static_cast<uint8_t>(std::countr_zero(left))}, emission);
        break;
      case Emission::To::kWorker:
        send(emission.job, emission.worker, emission);
        break;
      case Emission::To::kFallback:
        if (job.home == Home::kSpill) {
          job.spill->on_message(emission.message, emission.payload);
        } else if (job.home == Home::kDedicated) {
          send(emission.job, kFallbackRank, emission);
        } else {
          const Seq seq = aggregator.seq_of(emission.job, emission.message.seq);
          send(emission.job, home_of(seq, job.workers), emission);
        }
    }
  }
}

/// Carries out what the fallback within the lane has to say, until it is silent.
template <class Send>
void serve_spill(Aggregator& aggregator, JobIndex job, Verdict& scratch, Send&& send) {
  Fallback& spill = *aggregator.spec(job).spill;
  wire::Outgoing packet;
  while (spill.prepare(std::span(&packet, 1)) != 0) {
    aggregator.on_spill(job, packet, scratch);
    spill.sent(1);
    carry_out(aggregator, scratch, kFallbackRank, send);
  }
}

/// Carries out what the fallback that `verdict` gave something to has to say in turn.
template <class Send>
void serve_spills(Aggregator& aggregator, const Verdict& verdict, Send&& send) {
  for (const Emission& emission : verdict.to_send()) {
    if (emission.to != Emission::To::kFallback) continue;
    const Fallback* const spill = aggregator.spec(emission.job).spill;
    if (spill && spill->has_output())
      serve_spill(aggregator, emission.job, aggregator.scratch(), send);
  }
}

/// Parks what is left behind, `most` fragments of each job. Now and then: packets do the same.
/// Returns how many there were.
template <class Send>
size_t park_overdue(Aggregator& aggregator, Verdict& verdict, size_t most, Nanos now, Send&& send) {
  size_t parked = 0;
  for (uint32_t i = 0; i < aggregator.shape().max_jobs; ++i) {
    const auto job = static_cast<JobIndex>(i);
    for (size_t n = 0; n < most && aggregator.park_overdue(job, now, verdict); ++n, ++parked) {
      carry_out(aggregator, verdict, Rank{}, send);
      serve_spills(aggregator, verdict, send);
    }
  }
  return parked;
}

/// What serve() needs of a port; io/port.h has all that a lane needs.
template <class P>
concept PacketSource = requires(P port, std::span<RxPacket> burst) {
  { port.rx_burst(burst) } -> std::same_as<size_t>;
  {port.rx_release()};
};

/// `packets` and `verdicts` are scratch space of one burst. `mismatch(packet, verdict)` hears of
/// workers that disagree. Returns the number of packets handled.
template <PacketSource Port, class Send, class Mismatch>
size_t serve(Port& port, Aggregator& aggregator, std::span<RxPacket> packets,
             std::span<Verdict> verdicts, Nanos now, Send&& send, Mismatch&& mismatch) {
  const size_t count = port.rx_burst(packets);
  if (count != 0) {
    aggregator.on_burst(packets.first(count), now, verdicts);
    bool to_fallback = false;
    for (size_t i = 0; i < count; ++i) {
      carry_out(aggregator, verdicts[i], packets[i].rank, send);
      to_fallback |= verdicts[i].emissions != 0;
      if (verdicts[i].fate == Verdict::Fate::kDropped &&
          verdicts[i].reason == DropReason::kMismatch)
        mismatch(packets[i], verdicts[i]);
    }
    // After all verdicts of the burst: what the fallback says may free and fill slots, and with
    // them rows that an earlier verdict still had to send.
    for (size_t i = 0; to_fallback && i < count; ++i) serve_spills(aggregator, verdicts[i], send);
  }
  // Also after an empty burst: descriptors that were dropped must be given back too.
  port.rx_release();
  return count;
}

}  // namespace ina::aggregator
