// One turn of a port: take a burst, decide it, carry the verdicts out. The daemon's lanes and the
// simulated switch share this code, so that both are the same switch.
#pragma once

#include <algorithm>
#include <concepts>
#include <span>

#include "aggregator/aggregator.h"

namespace ina::aggregator {

/// For BareResults: as `send` of carry_out().
template <class Send>
auto bare_sender(Send&& send) {
  return [&send](JobIndex job, Rank rank, const wire::Message& message) {
    Emission emission;
    emission.to = Emission::To::kHolders;
    emission.job = job;
    emission.message = message;
    send(job, rank, emission);
  };
}

/// A `send` of carry_out() that can do the same for all workers of a job at once.
template <class Send>
concept SendsToAll = requires(Send send, JobIndex job, uint32_t workers, const Emission& emission) {
  {send.to_all(job, workers, emission)};
};

/// For BareResults: a RESULT that is not bare goes out.
inline void note_passed(Aggregator& aggregator, const Emission& result) {
  BareResults& bare = aggregator.bare_results();
  if (result.message.receiver == 0) [[likely]]
    return bare.passed_to_all(result.job, result.message);
  bare.passed(result.job, result.message, aggregator.members_with(result.job, result.message),
              aggregator.spec(result.job).tree.rows == nullptr);
}

/// Sends what a verdict says, but for bare results: send_bare_results(). `send(job, rank,
/// emission)` queues a message to one worker, or to a dedicated fallback (kFallbackRank). A
/// fallback within the lane is served at once, and so are its messages in turn.
template <class Send>
void carry_out(Aggregator& aggregator, const Verdict& verdict, Rank sender, Send&& send) {
  for (const Emission& emission : verdict.to_send()) {
    const JobSpec& job = aggregator.spec(emission.job);
    if (emission.message.type == wire::Type::kResult && !emission.message.bare() &&
        emission.to != Emission::To::kSender)
      note_passed(aggregator, emission);
    switch (emission.to) {
      case Emission::To::kSender:
        send(emission.job, sender, emission);
        break;
      case Emission::To::kAll:
        if constexpr (SendsToAll<Send>)
          send.to_all(emission.job, job.workers, emission);
        else
          for (uint32_t rank = 0; rank < job.workers; ++rank)
            send(emission.job, Rank{static_cast<uint8_t>(rank)}, emission);
        break;
      case Emission::To::kHolders:
        if (emission.message.type == wire::Type::kResult && emission.message.bare()) {
          aggregator.bare_results().add(emission.job, emission.message, bare_sender(send));
          break;
        }
        for (const Rank rank : emission.message.bitmap) send(emission.job, rank, emission);
        break;
      case Emission::To::kWorker:
        send(emission.job, emission.worker, emission);
        break;
      case Emission::To::kFallback:
        if (job.rules.home == Home::kSpill) {
          job.spill->on_message(emission.message, emission.payload);
        } else if (job.rules.home == Home::kDedicated || job.rules.home == Home::kTree) {
          send(emission.job, kFallbackRank, emission);
        } else {
          const Seq seq = aggregator.seq_of(emission.job, emission.message.seq);
          send(emission.job, home_of(seq, job.workers), emission);
        }
    }
  }
}

/// To be called when all verdicts of a burst have been carried out, and when no packet has come
/// until bare_results().due().
template <class Send>
void send_bare_results(Aggregator& aggregator, Nanos now, Send&& send) {
  aggregator.bare_results().flush(now, bare_sender(send));
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
  send_bare_results(aggregator, now, send);
  return parked;
}

/// The part of a port that serve() needs; io/port.h has all that a lane needs.
template <class P>
concept PacketSource = requires(P port, std::span<RxPacket> burst) {
  { port.rx_burst(burst) } -> std::same_as<size_t>;
  {port.rx_release()};
};

/// Decides a burst without runs of marks, and carries the verdicts out.
template <class Send, class Mismatch>
void serve_burst(Aggregator& aggregator, std::span<const RxPacket> packets,
                 std::span<Verdict> verdicts, Nanos now, Send&& send, Mismatch&& mismatch) {
  aggregator.on_burst(packets, now, verdicts);
  bool to_fallback = false;
  aggregator.for_each_noted([&](size_t i) {
    carry_out(aggregator, verdicts[i], packets[i].rank, send);
    for (const Emission& emission : verdicts[i].to_send())
      to_fallback |= emission.to == Emission::To::kFallback;
    if (verdicts[i].fate == Verdict::Fate::kDropped && verdicts[i].reason == DropReason::kMismatch)
      mismatch(packets[i], verdicts[i]);
  });
  // After all verdicts of the burst: the fallback's messages may free and fill slots, and with them
  // rows that an earlier verdict still had to send.
  if (to_fallback)
    aggregator.for_each_noted([&](size_t i) { serve_spills(aggregator, verdicts[i], send); });
  send_bare_results(aggregator, now, send);
}

/// A message that stands for as many marks as its elements say, or for as many bare results of the
/// switch above.
inline bool is_run(const RxPacket& packet) {
  const wire::Message& message = packet.message;
  return message.bare() && message.elements > 1 &&
         (message.type == wire::Type::kGrad ||
          (message.type == wire::Type::kResult && packet.rank == kFallbackRank));
}

/// Decides a burst with runs, each mark of which is a packet of its own to the aggregator.
template <class Send, class Mismatch>
void serve_runs(Aggregator& aggregator, std::span<const RxPacket> packets,
                std::span<Verdict> verdicts, Nanos now, Send&& send, Mismatch&& mismatch) {
  const std::span<RxPacket> room = aggregator.expanded();
  size_t used = 0;
  const auto flush = [&] {
    if (used != 0) serve_burst(aggregator, room.first(used), verdicts, now, send, mismatch);
    used = 0;
  };
  for (const RxPacket& packet : packets) {
    size_t done = 0;
    do {
      if (used == room.size()) flush();
      if (!is_run(packet)) {
        room[used++] = packet;
        break;
      }
      const size_t more = aggregator.expand(packet, done, room.subspan(used));
      if (more == 0) break;
      used += more;
      done += more;
    } while (done < packet.message.elements);
  }
  flush();
}

/// `packets` and `verdicts` are scratch space of one burst. `mismatch(packet, verdict)` hears of
/// workers that disagree. Returns the number of packets that came.
template <PacketSource Port, class Send, class Mismatch>
size_t serve(Port& port, Aggregator& aggregator, std::span<RxPacket> packets,
             std::span<Verdict> verdicts, Nanos now, Send&& send, Mismatch&& mismatch) {
  const size_t count = port.rx_burst(packets);
  const std::span<const RxPacket> burst = packets.first(count);
  uint16_t flags = 0;
  for (const RxPacket& packet : burst) flags |= packet.message.flags;
  if ((flags & wire::kFlagBare) != 0 && std::ranges::any_of(burst, is_run)) [[unlikely]]
    serve_runs(aggregator, burst, verdicts, now, send, mismatch);
  else if (count != 0)
    serve_burst(aggregator, burst, verdicts, now, send, mismatch);
  // Also after an empty burst: descriptors that were dropped must be given back too.
  port.rx_release();
  return count;
}

/// Hears of each packet before it is decided, and when its verdict has been carried out.
template <class W>
concept PacketWatcher = requires(W watcher, const RxPacket& packet, const Verdict& verdict) {
  {watcher.before(packet)};
  {watcher.after(packet, verdict)};
};

/// As serve(), with a watcher. Each packet is a burst of its own, so the watcher sees the array
/// before and after this packet; verdicts and counters are the same. Slower.
template <PacketSource Port, class Send, class Mismatch, PacketWatcher Watcher>
[[gnu::noinline]] size_t serve_watched(Port& port, Aggregator& aggregator,
                                       std::span<RxPacket> packets, std::span<Verdict> verdicts,
                                       Nanos now, Send&& send, Mismatch&& mismatch,
                                       Watcher&& watcher) {
  const size_t count = port.rx_burst(packets);
  for (const RxPacket& packet : packets.first(count)) {
    watcher.before(packet);
    if (is_run(packet))
      serve_runs(aggregator, std::span(&packet, 1), verdicts, now, send, mismatch);
    else
      serve_burst(aggregator, std::span(&packet, 1), verdicts, now, send, mismatch);
    watcher.after(packet, verdicts.front());
  }
  port.rx_release();
  return count;
}

}  // namespace ina::aggregator
