// One lane of the datapath: a shard of the aggregator array and the thread that polls its share of
// the ports. The conductor (switchd/conductor.h) sends commands and gets events through rings. Only
// the lane's own thread touches the lane's state.
#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <new>
#include <vector>

#include "aggregator/serve.h"
#include "common/clock.h"
#include "common/event_fd.h"
#include "common/fd.h"
#include "common/idle.h"
#include "common/spsc_ring.h"
#include "io/ethdev/drop_witness.h"
#include "io/ethdev/ethdev_counters.h"
#include "io/shm/shm_port.h"
#include "switchd/forwarding.h"
#include "switchd/lane_config.h"
#include "switchd/packet_trace.h"
#include "wire/frame.h"

namespace ina::switchd {

struct LaneCounters {
  /// Bursts by size: 1, 2, 3..4, 5..8, ... packets; the last for the largest burst, 512.
  static constexpr size_t kBurstBuckets = 10;

  uint64_t polls = 0;
  uint64_t busy_polls = 0;
  uint64_t packets = 0;
  uint64_t sleeps = 0;
  uint64_t unsent = 0;  ///< results that a port did not take; the worker asks again
  Nanos busy_ns = 0;    ///< spent in rounds that found a packet
  Nanos idle_ns = 0;    ///< all other time since the first round, sleep included
  std::array<uint64_t, kBurstBuckets> bursts{};
  uint64_t burst_packets = 0;  ///< in all of `bursts`

  static size_t bucket_of(size_t packets) {
    return static_cast<size_t>(std::bit_width(packets - 1));
  }
};

/// What an Ethernet port counts beyond io::PortCounters.
struct FramePortSnapshot {
  io::EthdevCounters counters;
  bool link_up = false;  ///< lane 0 alone knows
};

struct BridgeSnapshot {
  bridge::MacTableCounters counters;
  uint32_t mac_entries = 0;
  uint32_t mac_capacity = 0;
};

/// What a lane's counters were at one moment.
struct LaneSnapshot {
  LaneCounters lane;
  aggregator::Counters aggregator;
  std::vector<aggregator::JobCounters> jobs;  ///< by JobIndex
  std::vector<io::PortCounters> ports;  ///< shm first, then the Ethernet ports in config order
  std::vector<FramePortSnapshot> frame_ports;  ///< the Ethernet ports, in config order
  std::optional<BridgeSnapshot> bridge;
};

/// Frames of a job that an Ethernet port dropped.
struct PortDrops {
  uint32_t port = 0;  ///< in config order
  io::DroppedFrames frames;
};

/// A slot as it was at one moment.
struct SlotView {
  Nanos first_arrival = 0;
  aggregator::JobIndex job = 0;
  aggregator::SlotState state{};
  uint8_t contributions = 0;

  static SlotView of(const aggregator::Slot& slot) {
    return {slot.first_arrival, slot.job, slot.state, static_cast<uint8_t>(slot.contributions())};
  }
};

/// A request of the conductor. Lives on the conductor's side until `done`.
struct LaneCommand {
  enum class Kind : uint8_t {
    kAddJob,
    kRemoveJob,
    kAttachShm,
    kAttachFrame,
    kDetach,
    kSetRegistered,
    kAddResultBuffer,
    kRemoveResultBuffer,
    kNewEpoch,
    kProgress,
    kOldestWaiting,
    kFindStation,
    kArrivals,
    kSnapshot,
    kLookAtSlots,
    kTrace,
    kAnswer,  ///< nothing else: says that the lane lives
    kStop,
  };
  Kind kind{};
  aggregator::JobIndex job = 0;
  Rank rank{};
  // in
  aggregator::JobSpec spec;                   // kAddJob; kNewEpoch: epoch, instance
  io::shm::WorkerSession* session = nullptr;  // kAttachShm
  uint32_t frame_port = 0;                    // kAttachFrame: which Ethernet port
  wire::Address address;                      // kAttachFrame, kFindStation
  bridge::VlanId vlan = 0;                    // kFindStation
  bool multicast = false;                     // kAttachFrame: results come to its group
  bool parks = false;                         // kAttachShm, kAttachFrame: keeps parked sums
  uint64_t job_key = 0;                       // kAttachFrame
  JobId root{};                               // kAttachFrame: of a group; otherwise 0
  std::optional<wire::TagKeys> tag_keys;      // kAttachFrame
  uint32_t number = 0;                        // kSetRegistered
  std::span<const std::byte> memory;          // kSetRegistered
  aggregator::ResultBuffer result_buffer;     // kAddResultBuffer, kRemoveResultBuffer
  uint32_t first_slot = 0;                    // kLookAtSlots
  uint32_t slot_step = 1;                     // kLookAtSlots: every slot_step-th from first_slot on
  PacketTrace* trace = nullptr;               // kTrace: to be filled from now on; nullptr: none
  // out
  std::string error;
  Seq results_end;  // kProgress
  std::optional<aggregator::Waiting> waiting;
  std::optional<bridge::PortIndex> station_port;
  Bitmap heard = 0;                // kArrivals: ranks at Ethernet ports of whom a frame came in
  std::vector<PortDrops> dropped;  // kArrivals
  LaneSnapshot snapshot;
  std::vector<SlotView> slots;  // kLookAtSlots: as many as the conductor made room for

  std::atomic<bool> done{false};
};

/// Something the conductor must know about: a job whose workers disagree.
struct LaneEvent {
  aggregator::JobIndex job = 0;
  JobId job_id{};
  Bitmap first_ranks = 0;
  Bitmap other_ranks = 0;
  wire::Signature first;
  wire::Signature other;
};

/// The conductor's side of a lane. Conductor and lane are one producer and one consumer each.
class LaneLink {
 public:
  LaneLink() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  // Conductor.
  void post(LaneCommand& command) {
    while (!commands_.push(&command)) ::usleep(100);
    ring_event(wake_.get());
  }
  std::optional<LaneEvent> next_event() { return events_.pop(); }

  // Lane.
  std::optional<LaneCommand*> next_command() { return commands_.pop(); }
  bool has_command() const { return !commands_.empty(); }
  /// A job has at most one event, and the ring holds one for each job that fits.
  void report(const LaneEvent& event) {
    if (events_.push(event)) ring_event(conductor_event_);
  }
  /// Has the conductor look which workers are to be called (io::shm::WorkerSession::call_wanted).
  void report_calls() { ring_event(conductor_event_); }
  int wake_fd() const { return wake_.get(); }
  void set_conductor_event(int fd) { conductor_event_ = fd; }

 private:
  SpscRing<LaneCommand*> commands_{64};
  SpscRing<LaneEvent> events_{8192};
  Fd wake_;
  int conductor_event_ = -1;
};

/// Stands for Ethernet ports in a build without DPDK; never made.
struct NoFramePort {
  size_t rx_burst(std::span<io::RxPacket>) { return 0; }
  void rx_release() {}
  bool tx(io::EndpointIndex, const wire::Message&, std::span<const std::byte>) { return false; }
  bool tx_to_group(io::EndpointIndex, const wire::Message&, std::span<const std::byte>) {
    return false;
  }
  void tx_flush() {}
  const io::PortCounters& counters() const { return counters_; }
  Result<io::EndpointIndex> bind(const wire::Address&, JobId, uint64_t, io::JobIndex, Rank,
                                 const std::optional<wire::TagKeys>&, JobId) {
    return fail(INA_ERR_UNSUPPORTED, "this build has no Ethernet ports");
  }
  void unbind(io::EndpointIndex) {}
  void expect(JobId, uint64_t) {}
  void forget(JobId) {}
  std::span<const io::DroppedFrames> dropped(JobId) const { return {}; }
  bool heard(io::EndpointIndex) const { return false; }
  const io::EthdevCounters& ethdev_counters() const { return ethdev_counters_; }
  wire::Address address() const { return {}; }
  bool link_up() { return false; }
  bool take_moved() { return false; }
  struct Transit {
    bridge::Addresses addresses;
    void* buffer = nullptr;
  };
  std::span<const Transit> transit() const { return {}; }
  void drop_transit(const Transit&, DropReason) {}
  void hand_over(const Transit&) {}
  void hand_over_to_all(const Transit&, uint16_t) {}
  void send_transit(const Transit&) {}
  io::PortCounters counters_;
  io::EthdevCounters ethdev_counters_;
};
static_assert(io::SwitchPort<NoFramePort> && BridgedPort<NoFramePort>);

/// `FramePort`: the type of the ports besides shm, io::ethdev::EthdevPort in the daemon.
template <io::SwitchPort FramePort = NoFramePort>
class Lane {
 public:
  Lane(const LaneConfig& config, std::span<std::byte> rows, LaneLink& link,
       std::vector<FramePort*> frame_ports = {})
      : config_(config),
        link_(link),
        aggregator_(config.shape, rows),
        shm_(config.shape.lane, config.max_endpoints, config.ecn),
        frame_ports_(std::move(frame_ports)),
        turns_(frame_ports_.size(), config.shape.burst),
        jobs_(config.shape.max_jobs),
        packets_(config.shape.burst),
        verdicts_(config.shape.burst) {
    if (config.bridge) forwarding_.emplace(*config.bridge, frame_ports_);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.u32 = io::shm::ShmPort::kNobody;
    ::epoll_ctl(shm_.epoll_fd(), EPOLL_CTL_ADD, link_.wake_fd(), &event);
  }

  /// Polls until told to stop.
  void run() {
    IdleStrategy idle(config_.idle);
    for (;;) {
      while (const auto command = link_.next_command()) execute(**command);
      if (stopped_) return;
      if (poll_once()) {
        idle.reset();
        continue;
      }
      if (idle.idle(now_ns()) == IdleStrategy::Step::kSleep) sleep(idle.sleep_ns());
    }
  }

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

  /// Where a worker is to be found.
  struct Member {
    bool bound = false;
    FramePort* port = nullptr;  ///< nullptr: on the shm port
    io::EndpointIndex endpoint = 0;
    bool multicast = false;  ///< results for all come to its group
    bool covered = false;    ///< and are sent there for another worker of the job at this port
  };
  struct JobMembers {
    JobId id{};
    std::array<Member, kMaxWorkers + 1> member{};  ///< by rank; kFallbackRank is the last
    bool reported = false;                         ///< that its workers disagree
  };

  /// The time since the last round began is that round's.
  void charge_time(Nanos now) {
    if (round_began_ != 0) (busy_ ? counters_.busy_ns : counters_.idle_ns) += now - round_began_;
    round_began_ = now;
  }

  template <class P>
  size_t poll_port(P& port, Nanos now, size_t most) {
    const auto send_to = [this](aggregator::JobIndex job, Rank rank,
                                const aggregator::Emission& emission) {
      send(jobs_[job].member[value(rank)], emission);
    };
    const auto mismatch = [this](const io::RxPacket& packet, const aggregator::Verdict& verdict) {
      report(packet.job, bit_of(verdict.first_rank), verdict.first_signature, bit_of(packet.rank),
             packet.message.signature());
    };
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
    const size_t parked = aggregator::park_overdue(
        aggregator_, verdicts_.front(), config_.shape.burst, now,
        [this](aggregator::JobIndex job, Rank rank, const aggregator::Emission& emission) {
          send(jobs_[job].member[value(rank)], emission);
        });
    if (parked != 0) {
      next_parking_ = now;
      flush();
    }
    return parked;
  }

  /// Those that waited for others to join them, when no packet does.
  void send_bare_results(Nanos now) {
    aggregator::send_bare_results(
        aggregator_, now,
        [this](aggregator::JobIndex job, Rank rank, const aggregator::Emission& emission) {
          send(jobs_[job].member[value(rank)], emission);
        });
    flush();
  }

  void report(aggregator::JobIndex job, Bitmap first_ranks, const wire::Signature& first,
              Bitmap other_ranks, const wire::Signature& other) {
    JobMembers& members = jobs_[job];
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

  void send(const Member& member, const aggregator::Emission& emission) {
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

  /// One worker at each port has its job's results sent to the group of all.
  static void cover(JobMembers& members) {
    for (size_t i = 0; i < members.member.size(); ++i) {
      Member& member = members.member[i];
      if (!member.multicast) continue;
      const auto before = std::span(members.member).first(i);
      member.covered = std::ranges::any_of(before, [&](const Member& other) {
        return other.multicast && other.port == member.port;
      });
    }
  }

  /// Commands bring the memory that they need; should one find none after all, it alone fails.
  void execute(LaneCommand& command) {
    try {
      carry_out(command);
    } catch (const std::bad_alloc&) {
      command.error.assign("no memory");  // short enough to need none
    }
    command.done.store(true, std::memory_order_release);
  }

  void carry_out(LaneCommand& command) {
    using Kind = LaneCommand::Kind;
    switch (command.kind) {
      case Kind::kAddJob:
        aggregator_.add_job(command.job, command.spec);
        jobs_[command.job] = JobMembers{.id = command.spec.id};
        break;
      case Kind::kRemoveJob:
        for (uint32_t rank = 0; rank <= kMaxWorkers; ++rank) detach(command.job, rank);
        for (FramePort* port : frame_ports_) port->forget(jobs_[command.job].id);
        if (trace_ && trace_->job() == command.job) trace_ = nullptr;
        aggregator_.remove_job(command.job);
        jobs_[command.job] = JobMembers{};
        break;
      case Kind::kAttachShm:
        attach(command, nullptr, shm_.attach(*command.session, command.job, command.rank));
        break;
      case Kind::kAttachFrame: {
        FramePort* port = frame_ports_[command.frame_port];
        for (FramePort* any : frame_ports_) any->expect(command.spec.id, command.job_key);
        attach(command, port,
               port->bind(command.address, command.spec.id, command.job_key, command.job,
                          command.rank, command.tag_keys, command.root));
        Member& member = jobs_[command.job].member[value(command.rank)];
        member.multicast = member.bound && command.multicast;
        cover(jobs_[command.job]);
        break;
      }
      case Kind::kDetach:
        detach(command.job, value(command.rank));
        break;
      case Kind::kSetRegistered: {
        const Member& member = jobs_[command.job].member[value(command.rank)];
        if (member.bound && !member.port)
          shm_.set_registered(member.endpoint, command.number, command.memory);
        break;
      }
      case Kind::kAddResultBuffer:
        aggregator_.add_result_buffer(command.job, command.result_buffer);
        break;
      case Kind::kRemoveResultBuffer:
        aggregator_.remove_result_buffer(command.job, command.result_buffer.first_unit);
        break;
      case Kind::kNewEpoch:
        aggregator_.new_epoch(command.job, command.spec.epoch, command.spec.instance, nullptr);
        break;
      case Kind::kProgress:
        command.results_end = aggregator_.results_end(command.job);
        break;
      case Kind::kOldestWaiting:
        command.waiting = aggregator_.oldest_waiting(command.job);
        break;
      case Kind::kFindStation:
        if (forwarding_)
          command.station_port =
              forwarding_->bridge().table().find(command.address.mac, command.vlan, now_ns());
        break;
      case Kind::kArrivals:
        say_arrivals(command);
        break;
      case Kind::kSnapshot:
        command.snapshot.lane = counters_;
        command.snapshot.aggregator = aggregator_.counters();
        for (size_t job = 0; job < jobs_.size(); ++job)
          command.snapshot.jobs.push_back(
              aggregator_.job_counters(static_cast<aggregator::JobIndex>(job)));
        command.snapshot.ports.assign(1, shm_.counters());
        for (FramePort* port : frame_ports_) {
          command.snapshot.ports.push_back(port->counters());
          // Lane 0 looks after the links.
          const bool up = config_.shape.lane == 0 && port->link_up();
          command.snapshot.frame_ports.push_back({port->ethdev_counters(), up});
        }
        if (forwarding_) {
          const bridge::MacTable& table = forwarding_->bridge().table();
          command.snapshot.bridge = {table.counters(), table.size(), table.capacity()};
        }
        break;
      case Kind::kLookAtSlots:
        look_at_slots(command);
        break;
      case Kind::kTrace:
        trace_ = command.trace;
        break;
      case Kind::kAnswer:
        break;
      case Kind::kStop:
        stopped_ = true;
        break;
    }
  }

  void look_at_slots(LaneCommand& command) const {
    const std::span<const aggregator::Slot> slots = aggregator_.slots();
    size_t next = command.first_slot;
    for (SlotView& view : command.slots) {
      if (next >= slots.size()) break;
      view = SlotView::of(slots[next]);
      next += command.slot_step;
    }
  }

  /// Which frames of a job came in and which did not, for those who miss them.
  void say_arrivals(LaneCommand& command) const {
    const JobMembers& members = jobs_[command.job];
    for (uint32_t rank = 0; rank < kMaxWorkers; ++rank) {
      const Member& member = members.member[rank];
      if (member.bound && member.port && member.port->heard(member.endpoint))
        command.heard |= Bitmap{1} << rank;
    }
    for (uint32_t port = 0; port < frame_ports_.size(); ++port)
      for (const io::DroppedFrames& frames : frame_ports_[port]->dropped(members.id))
        if (frames.count != 0) command.dropped.push_back({port, frames});
  }

  void attach(LaneCommand& command, FramePort* port, const Result<io::EndpointIndex>& endpoint) {
    if (!endpoint) {
      command.error = endpoint.error().text;
      return;
    }
    jobs_[command.job].member[value(command.rank)] = {true, port, *endpoint};
    if (command.rank != kFallbackRank)
      aggregator_.set_parker(command.job, command.rank, command.parks);
  }

  void detach(aggregator::JobIndex job, uint32_t rank) {
    Member& member = jobs_[job].member[rank];
    if (!member.bound) return;
    if (member.port)
      member.port->unbind(member.endpoint);
    else
      shm_.detach(member.endpoint);
    member = Member{};
    cover(jobs_[job]);
  }

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
  std::vector<JobMembers> jobs_;
  std::vector<io::RxPacket> packets_;
  std::vector<aggregator::Verdict> verdicts_;
  LaneCounters counters_;
  PacketTrace* trace_ = nullptr;  ///< the conductor's
  Nanos round_began_ = 0;
  bool busy_ = false;  ///< the last round found something
  Nanos next_parking_ = 0;
  bool stopped_ = false;
};

}  // namespace ina::switchd
