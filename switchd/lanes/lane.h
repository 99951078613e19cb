// One lane of the datapath: a shard of the aggregator array and the thread that polls its share of
// the ports. The conductor (switchd/conductor.h) sends commands and gets events through rings. Only
// the lane's own thread touches the lane's state.
#pragma once

#include <sys/epoll.h>
#include <time.h>

#include <algorithm>
#include <concepts>
#include <optional>
#include <span>
#include <vector>

#include "aggregator/domains.h"
#include "aggregator/serve.h"
#include "common/clock.h"
#include "common/huge_page_memory.h"
#include "common/idle.h"
#include "io/shm/shm_port.h"
#include "switchd/lanes/forwarding.h"
#include "switchd/lanes/lane_config.h"
#include "switchd/lanes/lane_executor.h"
#include "switchd/lanes/lane_link.h"
#include "switchd/lanes/lane_members.h"
#include "switchd/lanes/lane_snapshot.h"
#include "switchd/lanes/no_frame_port.h"
#include "switchd/lanes/packet_trace.h"

namespace ina::switchd {

/// `FramePort`: the type of the ports besides shm, io::ethdev::EthdevPort in the daemon.
template <io::SwitchPort FramePort = NoFramePort>
class Lane {
 public:
  Lane(const LaneConfig& config, std::span<std::byte> rows, LaneLink& link,
       std::vector<FramePort*> frame_ports = {})
      : config_(config),
        link_(link),
        aggregator_(config.shape, rows, huge_page_memory()),
        shm_(config.shape.lane, config.max_endpoints, config.ecn),
        frame_ports_(std::move(frame_ports)),
        turns_(frame_ports_.size(), config.shape.burst),
        members_(shm_, frame_ports_, config.shape.max_jobs),
        domains_(aggregator_, config.shape.lanes),
        packets_(config.shape.burst),
        verdicts_(config.shape.burst),
        executor_({.number = config.shape.lane,
                   .counters = counters_,
                   .aggregator = aggregator_,
                   .shm = shm_,
                   .frame_ports = frame_ports_,
                   .members = members_,
                   .domains = domains_,
                   .forwarding = forwarding_,
                   .trace = trace_,
                   .ascend = [this](aggregator::JobIndex job) { ascend(job); }}) {
    if (config.bridge) forwarding_.emplace(*config.bridge, frame_ports_);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.u32 = io::shm::ShmPort::kNobody;
    ::epoll_ctl(shm_.epoll_fd(), EPOLL_CTL_ADD, link_.wake_fd(), &event);
  }
  // Its parts refer to each other.
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Polls until told to stop.
  void run() {
    IdleStrategy idle(config_.idle, frame_ports_.empty() ? 0 : IdleStrategy::kUnwakeableSpinNs);
    for (;;) {
      while (const auto command = link_.next_command()) {
        executor_.execute(*command);
        link_.report_answer();
      }
      if (executor_.is_stopped()) return;
      if (poll_once()) {
        idle.reset();
        continue;
      }
      if (idle.idle(now_ns()) == IdleStrategy::Step::kSleep) sleep(idle.sleep_ns());
    }
  }

  /// For tests.
  const aggregator::Aggregator& aggregator() const { return aggregator_; }

  /// One round over the ports. True if there was a packet. Allocates, locks and throws never; the
  /// only system calls are those that wake a sleeping worker or drive a port.
  bool poll_once() {
    const Nanos now = now_ns();
    charge_time(now);
    ++counters_.polls;
    size_t handled = poll_port(shm_, now, config_.shape.burst);
    bool moved = false;
    if (!frame_ports_.empty()) handled += poll_frame_ports(now, moved);
    if (aggregator_.parking() && now >= next_parking_) handled += park_overdue(now);
    if (now >= aggregator_.bare_results().due()) send_bare_results(now);
    counters_.packets += handled;
    busy_ = handled != 0 || moved;
    counters_.busy_polls += busy_;
    return busy_;
  }

 private:
  /// A burst of last contributions of a few workers is no longer than others; one of 64 would be.
  static constexpr uint64_t kMostSendsPerPacket = 4;
  /// How often to look for fragments left behind when no packet does.
  static constexpr Nanos kParkingPauseNs = 5'000'000;

  /// The time since the last round began is that round's.
  void charge_time(Nanos now) {
    if (round_began_ != 0) (busy_ ? counters_.busy_ns : counters_.idle_ns) += now - round_began_;
    round_began_ = now;
  }

  template <class P>
  size_t poll_port(P& port, Nanos now, size_t most) {
    if (!domains_.any()) [[likely]]
      return poll_port(port, now, most, to_ports_);
    const size_t count = poll_port(port, now, most, through());
    serve_roots(now);
    return count;
  }

  template <class P, class Send>
  size_t poll_port(P& port, Nanos now, size_t most, const Send& send_to) {
    const auto mismatch = mismatch_reporter();
    const std::span<io::RxPacket> room = std::span(packets_).first(most);
    size_t count = 0;
    if (trace_) [[unlikely]] {
      count = aggregator::serve_watched(port, aggregator_, room, verdicts_, now, send_to, mismatch,
                                        TraceWriter(*trace_, aggregator_, number_of(port), now));
      if (trace_->is_full()) trace_ = nullptr;
    } else {
      count = aggregator::serve(port, aggregator_, room, verdicts_, now, send_to, mismatch);
    }
    if (count != 0) {
      ++counters_.bursts[LaneCounters::bucket_of(count)];
      counters_.burst_packets += count;
      report_mismatches_of_spill();
      flush();
    }
    return count;
  }

  auto mismatch_reporter() {
    return [this](const io::RxPacket& packet, const aggregator::Verdict& verdict) {
      report(packet.job, WorkerSet::of(verdict.first_rank), verdict.first_signature,
             WorkerSet::of(packet.rank), packet.message.signature());
    };
  }

  /// What domains had for their roots.
  void serve_roots(Nanos now) {
    domains_.serve_roots(verdicts_, now, to_ports_, mismatch_reporter());
    flush();
  }

  /// TraceRecord::port
  template <class P>
  uint16_t number_of(const P& port) const {
    if constexpr (std::same_as<P, io::shm::ShmPort>)
      return 0;
    else
      return static_cast<uint16_t>(1 +
                                   (std::ranges::find(frame_ports_, &port) - frame_ports_.begin()));
  }

  /// Takes a burst from each port in turn. One message may have many sent, to all workers of a job:
  /// where that makes turns much longer than others, fewer messages are taken in the next.
  /// `moved`: set if frames of other lanes were passed on.
  size_t poll_frame_ports(Nanos now, bool& moved) {
    size_t handled = 0;
    if (forwarding_) forwarding_->tick(now);
    for (size_t i = 0; i < frame_ports_.size(); ++i) {
      const uint64_t before = sends_;
      const size_t count = poll_port(*frame_ports_[i], now, turns_[i]);
      const uint64_t sent = sends_ - before;
      const uint64_t most = kMostSendsPerPacket * config_.shape.burst;
      turns_[i] = static_cast<uint32_t>(
          sent > most ? std::max<uint64_t>(1, count * most / sent)
                      : std::min<uint64_t>(config_.shape.burst, uint64_t{turns_[i]} * 2));
      handled += count;
      if (forwarding_) handled += forwarding_->forward(static_cast<bridge::PortIndex>(i), now);
    }
    // Also what no message caused: answers, and frames in transit.
    for (FramePort* port : frame_ports_) {
      port->tx_flush();
      moved |= port->take_moved();
    }
    return handled;
  }

  /// Straggler help where nobody sends, because all wait for one.
  size_t park_overdue(Nanos now) {
    next_parking_ = now + kParkingPauseNs;
    const size_t parked = aggregator::park_overdue(aggregator_, verdicts_.front(),
                                                   config_.shape.burst, now, through());
    if (parked != 0) {
      next_parking_ = now;
      flush();
    }
    return parked;
  }

  /// Those that waited for others to join them, when no packet does.
  void send_bare_results(Nanos now) {
    aggregator::send_bare_results(aggregator_, now, through());
    if (domains_.any()) return serve_roots(now);
    flush();
  }

  /// What waits for the switch above goes there again.
  void ascend(aggregator::JobIndex job) {
    for (Seq from; aggregator_.ascend_again(job, from, verdicts_.front());)
      aggregator::carry_out(aggregator_, verdicts_.front(), Rank{}, through());
    flush();
  }

  /// Where nothing hurries.
  auto through() { return domains_.through(to_ports_); }

  void report(aggregator::JobIndex job, WorkerSet first_ranks, const wire::Signature& first,
              WorkerSet other_ranks, const wire::Signature& other) {
    JobMembers<FramePort>& members = members_.of(job);
    if (members.reported) return;
    members.reported = true;
    link_.report({job, members.id, first_ranks, other_ranks, first, other});
  }

  /// Fallbacks within this lane that took in something of the last burst.
  void report_mismatches_of_spill() {
    aggregator_.for_each_noted([&](size_t i) {
      for (const aggregator::Emission& emission : verdicts_[i].to_send()) {
        if (emission.to != aggregator::Emission::To::kFallback) continue;
        const aggregator::Fallback* spill = aggregator_.spec(emission.job).spill;
        if (!spill || !spill->mismatch()) continue;
        const aggregator::FallbackMismatch& mismatch = *spill->mismatch();
        report(emission.job, mismatch.first, mismatch.first_signature, mismatch.other,
               mismatch.other_signature);
      }
    });
  }

  void flush() {
    shm_.tx_flush();
    if (shm_.take_calls()) link_.report_calls();
    for (FramePort* port : frame_ports_) port->tx_flush();
  }

  void send(const Member<FramePort>& member, const aggregator::Emission& emission) {
    ++sends_;
    const std::span<const std::byte> payload(emission.payload, emission.payload_bytes);
    const wire::Message& message = emission.message;
    const bool to_group = member.multicast && emission.to == aggregator::Emission::To::kAll &&
                          message.type == wire::Type::kResult;
    if (to_group && member.covered) return;
    bool sent = false;
    if (to_group)
      sent = member.port->tx_to_group(member.endpoint, message, payload);
    else if (member.bound)
      sent = member.port ? member.port->tx(member.endpoint, message, payload)
                         : shm_.tx(member.endpoint, message, payload);
    if (!sent) ++counters_.unsent;
  }

  /// Writes the same to all that are at the shm port, in one go.
  void send_to_all(aggregator::JobIndex job, uint32_t workers,
                   const aggregator::Emission& emission) {
    const JobMembers<FramePort>& members = members_.of(job);
    const std::span<const io::EndpointIndex> at_shm = members.at_shm();
    sends_ += at_shm.size();
    counters_.unsent += at_shm.size() - shm_.tx_to_all(at_shm, emission.message,
                                                       {emission.payload, emission.payload_bytes});
    if (at_shm.size() == workers) [[likely]]
      return;
    for (const Member<FramePort>& member : std::span(members.member).first(workers))
      if (!member.is_at_shm()) send(member, emission);
  }
  /// For aggregator::carry_out().
  struct Sender {
    Lane& lane;
    void operator()(aggregator::JobIndex job, Rank rank,
                    const aggregator::Emission& emission) const {
      lane.send(lane.members_.at(job, rank), emission);
    }
    void to_all(aggregator::JobIndex job, uint32_t workers,
                const aggregator::Emission& emission) const {
      lane.send_to_all(job, workers, emission);
    }
  };

  void sleep(Nanos timeout_ns) {
    // An Ethernet port is polled: nothing wakes a sleeper when a frame arrives.
    const bool polled = !frame_ports_.empty();
    if (polled) timeout_ns = std::min<Nanos>(timeout_ns, 50'000);
    if (aggregator_.counters().slots_used != 0 && aggregator_.parking())
      timeout_ns = std::min(timeout_ns, kParkingPauseNs);
    if (const Nanos due = aggregator_.bare_results().due(); due != aggregator::BareResults::kNever)
      timeout_ns = std::clamp<Nanos>(due - now_ns(), 0, timeout_ns);
    if (shm_.prepare_sleep() && !link_.has_command()) {
      ++counters_.sleeps;
      if (polled) {
        const timespec pause{0, timeout_ns};
        ::nanosleep(&pause, nullptr);
      } else {
        timeout_ns = std::min(timeout_ns, shm_.listen(now_ns()));
        epoll_event events[8];
        const int count =
            ::epoll_wait(shm_.epoll_fd(), events, 8,
                         static_cast<int>(std::max<Nanos>(1, timeout_ns / 1'000'000)));
        shm_.rung(std::span(events).first(static_cast<size_t>(std::max(0, count))), now_ns());
      }
    }
    shm_.end_sleep();
  }

  LaneConfig config_;
  LaneLink& link_;
  aggregator::Aggregator aggregator_;
  io::shm::ShmPort shm_;
  std::vector<FramePort*> frame_ports_;
  std::vector<uint32_t> turns_;  ///< by frame port: most packets to take the next time
  uint64_t sends_ = 0;
  std::optional<Forwarding<FramePort>> forwarding_;
  LaneMembers<FramePort> members_;
  aggregator::Domains domains_;
  std::vector<io::RxPacket> packets_;
  std::vector<aggregator::Verdict> verdicts_;
  const Sender to_ports_{*this};
  LaneCounters counters_;
  PacketTrace* trace_ = nullptr;  ///< the conductor's
  Nanos round_began_ = 0;
  bool busy_ = false;  ///< the last round found something
  Nanos next_parking_ = 0;
  LaneExecutor<FramePort> executor_;
};

}  // namespace ina::switchd
