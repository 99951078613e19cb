#include "io/shm/shm_port.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/futex.h"
#include "common/system_text.h"

namespace ina::io::shm {

static_assert(SwitchPort<ShmPort>);

namespace {
constexpr uint32_t kDescriptorsAhead = 8;
// A worker that is ahead of others of its job waits for so many of their turns at most. A job that
// waits for a worker gets its turn after so many bursts with others' fragments at most.
constexpr uint32_t kMostTurnsOfOthers = 16;
constexpr uint32_t kMostBurstsOfOthers = 4;
// A worker may ring so often at once without need, as happens where it and the lane cross each
// other, and so often in the long run.
constexpr Nanos kEmptyRingNs = 1'000'000;
constexpr Nanos kMostEmptyRingsNs = 64 * kEmptyRingNs;
constexpr Nanos kMutedPollNs = 1'000'000;

/// True if `a` is before `b`: two fragments of a window, by the low halves of their numbers.
bool is_before(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a - b) < 0;
}
}  // namespace

Result<std::unique_ptr<WorkerSession>> WorkerSession::create(const Geometry& geometry,
                                                             const std::byte* results) {
  auto session = std::make_unique<WorkerSession>();
  session->geometry = geometry;
  session->results = results;
  auto region = make_region("ina-switch", SwitchLayout(geometry).bytes);
  if (!region) return tl::unexpected(region.error());
  session->switch_region = std::move(*region);
  session->side_used_at.assign(geometry.lanes, std::vector<uint64_t>(geometry.side_rows));
  for (uint32_t lane = 0; lane < geometry.lanes; ++lane) {
    Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event)
      return fail(INA_ERR_NO_MEMORY,
                  std::string("cannot create an eventfd: ") + system_text(errno));
    session->wake_events.push_back(std::move(event));
  }
  return session;
}

ShmPort::ShmPort(uint32_t lane, uint32_t max_endpoints, bool ecn)
    : lane_(lane),
      ecn_(ecn),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      max_endpoints_(max_endpoints) {
  // Pages that no worker needs are not touched: that would be most of the time of a start.
  endpoints_.reserve(max_endpoints);
  active_.reserve(max_endpoints);
  crews_.reserve(max_endpoints);
  written_.reserve(max_endpoints);
}

Result<EndpointIndex> ShmPort::attach(WorkerSession& session, JobIndex job, Rank rank) {
  auto free = std::find_if(endpoints_.begin(), endpoints_.end(),
                           [](const Endpoint& endpoint) { return !endpoint.active; });
  if (free == endpoints_.end()) {
    if (endpoints_.size() == max_endpoints_)
      return fail(INA_ERR_REFUSED, "the shm port has no room for another worker (" +
                                       std::to_string(max_endpoints_) +
                                       " are attached): wait for others to leave, or raise "
                                       "switch.max_jobs or switch.max_groups");
    free = endpoints_.emplace(free);
  }
  const Geometry& g = session.geometry;
  const WorkerLayout worker(g);
  const SwitchLayout ours(g);
  std::byte* base = session.switch_region.map.data();
  const std::byte* peer = session.worker_region.data();
  Endpoint& endpoint = *free;
  endpoint = Endpoint{};
  endpoint.job = job;
  endpoint.rank = rank;
  endpoint.tx_depth = g.tx_depth;
  endpoint.rx_depth = g.rx_depth;
  endpoint.slot_bytes = g.slot_bytes;
  endpoint.lanes = g.lanes;
  endpoint.tx_ring = at<Descriptor>(peer, worker.tx_ring) + size_t{lane_} * g.tx_depth;
  endpoint.memory[0] = {peer, worker.bytes};
  for (uint32_t number = 1; number < kMaxRegions; ++number)
    endpoint.memory[number] = {session.registered[number].data(),
                               session.registered[number].size()};
  endpoint.tx_read = at<Position>(base, ours.tx_read) + lane_;
  endpoint.rx_ring = at<Descriptor>(base, ours.rx_ring) + size_t{lane_} * g.rx_depth;
  endpoint.rx_read = at<Position>(peer, worker.rx_read) + lane_;
  endpoint.results = session.results;
  endpoint.results_bytes = size_t{g.result_rows} * g.slot_bytes;
  endpoint.switch_base = base;
  endpoint.side = base + ours.side + size_t{lane_} * g.side_rows * g.slot_bytes;
  endpoint.side_used_at = session.side_used_at[lane_];
  std::ranges::fill(endpoint.side_used_at, 0);
  endpoint.lane_sleeping = at<SleepFlag>(base, ours.sleeping) + lane_;
  endpoint.worker_sleeping = at<SleepFlag>(peer, worker.sleeping);
  endpoint.doorbell = at<SleepFlag>(base, ours.doorbell);
  endpoint.call_wanted = &session.call_wanted;
  endpoint.wake_event = session.wake_events[lane_].get();
  const auto index = static_cast<EndpointIndex>(free - endpoints_.begin());
  if (!watch(index))
    return fail(INA_ERR_NO_MEMORY,
                std::string("cannot watch a worker's eventfd: ") + std::strerror(errno));
  endpoint.active = true;
  const auto behind_its_job = std::ranges::upper_bound(
      active_, job, {}, [&](EndpointIndex other) { return endpoints_[other].job; });
  active_.insert(behind_its_job, index);
  count_crews();
  return index;
}

void ShmPort::count_crews() {
  crews_.clear();
  for (size_t i = 0; i < active_.size(); ++i) {
    if (i == 0 || endpoints_[active_[i]].job != endpoints_[active_[i - 1]].job)
      crews_.push_back({.first = i});
    ++crews_.back().size;
  }
  next_ = 0;
}

void ShmPort::detach(EndpointIndex index) {
  Endpoint& endpoint = endpoints_[index];
  if (!endpoint.active) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, endpoint.wake_event, nullptr);
  muted_ -= endpoint.muted ? 1 : 0;
  // The worker may sleep in wait for a packet that will not come now.
  endpoint.doorbell->value.fetch_add(1, std::memory_order_release);
  futex_wake(&endpoint.doorbell->value);
  endpoint = Endpoint{};
  std::erase(active_, index);
  std::erase(written_, index);
  count_crews();
}

void ShmPort::set_registered(EndpointIndex index, uint32_t number,
                             std::span<const std::byte> memory) {
  endpoints_[index].memory[number] = memory;
}

bool ShmPort::is_filled(const Endpoint& endpoint, uint64_t index) {
  return is_filled(endpoint.tx_ring[index & (endpoint.tx_depth - 1)], index, endpoint.tx_depth);
}

bool ShmPort::has_packet(const Endpoint& endpoint) const {
  return is_filled(endpoint, endpoint.tx_index);
}

/// Contributions outside `band` stay, and so do the packets behind them.
size_t ShmPort::take(Endpoint& endpoint, std::span<RxPacket> burst, Band band) {
  const Descriptor* const ring = endpoint.tx_ring;
  const uint32_t depth = endpoint.tx_depth;
  const uint64_t first = endpoint.tx_index;
  uint64_t index = first;
  RxPacket* next = burst.data();
  uint64_t bytes_taken = 0;
  // The bound on descriptors looked at keeps a flood of bad packets from holding the lane.
  for (; index - first < burst.size(); ++index) {
    const Descriptor& shared = ring[index & (depth - 1)];
    if (!is_filled(shared, index, depth)) break;
    __builtin_prefetch(&ring[(index + kDescriptorsAhead) & (depth - 1)]);
    // Copied before it is checked: the worker may change it at any time.
    RxPacket& packet = *next;
    packet.message = shared.message;
    const uint64_t number = shared.payload_offset >> kRegionShift;
    const uint64_t offset = shared.payload_offset & ((uint64_t{1} << kRegionShift) - 1);
    const uint32_t bytes = shared.payload_bytes;
    if (packet.message.type == wire::Type::kGrad) {
      if (!band.holds(packet.message.seq)) break;
      endpoint.next_seq = packet.message.seq + 1;
    }
    const std::span memory =
        number < kMaxRegions ? endpoint.memory[number] : std::span<const std::byte>();
    if (bytes > memory.size() || offset > memory.size() - bytes) {
      counters_.drops.add(DropReason::kBadOffset);
      continue;
    }
    if (!endpoint.header.repeats(packet.message, bytes)) [[unlikely]] {
      const auto reason = endpoint.header.validate(packet.message, bytes, endpoint.slot_bytes);
      if (reason) {
        counters_.drops.add(*reason);
        continue;
      }
    }
    bytes_taken += bytes;
    packet.payload = memory.data() + offset;
    packet.payload_bytes = bytes;
    packet.job = endpoint.job;
    packet.rank = endpoint.rank;
    ++next;
  }
  endpoint.tx_index = index;
  endpoint.tx_taken |= index != first;
  counters_.rx_packets += index - first;
  counters_.rx_bytes += bytes_taken;
  return static_cast<size_t>(next - burst.data());
}

ShmPort::View ShmPort::look(const Crew& crew) const {
  View view;
  bool somebody_missing = false;
  uint32_t furthest_behind = 0;  // of those that have nothing to take
  for (const EndpointIndex index : std::span(active_).subspan(crew.first, crew.size)) {
    const Endpoint& endpoint = endpoints_[index];
    if (!has_packet(endpoint)) {
      if (endpoint.rank == kFallbackRank) continue;
      if (!somebody_missing || is_before(endpoint.next_seq, furthest_behind))
        furthest_behind = endpoint.next_seq;
      somebody_missing = true;
      continue;
    }
    ++view.senders;
    const wire::Message& next = next_of(endpoint);
    if (next.type != wire::Type::kGrad) continue;
    if (!view.has_oldest || is_before(next.seq, view.oldest)) view.oldest = next.seq;
    view.has_oldest = true;
  }
  view.complete = !view.has_oldest || !somebody_missing || is_before(view.oldest, furthest_behind);
  return view;
}

ShmPort::Turn ShmPort::turn_for(const Crew& crew) {
  if (crew.view.senders == 0) return Turn::kNone;
  return crew.view.complete || crew.passed_over >= kMostBurstsOfOthers ? Turn::kNow : Turn::kLast;
}

/// Up to `fragments` packets of each worker, of as many fragments. Workers further ahead wait.
size_t ShmPort::take_from(Crew& crew, std::span<RxPacket> burst, size_t fragments) {
  size_t filled = 0;
  for (size_t i = 0; i < crew.size && filled < burst.size(); ++i) {
    Endpoint& endpoint = endpoints_[active_[crew.first + crew.next]];
    crew.next = crew.next + 1 == crew.size ? 0 : crew.next + 1;
    Band band;
    if (crew.view.has_oldest && endpoint.passed_over < kMostTurnsOfOthers)
      band = {crew.view.oldest, static_cast<uint32_t>(fragments) * endpoint.lanes - 1};
    const uint64_t before = endpoint.tx_index;
    filled +=
        take(endpoint, burst.subspan(filled, std::min(fragments, burst.size() - filled)), band);
    const bool passed_over = endpoint.tx_index == before && has_packet(endpoint);
    endpoint.passed_over = passed_over ? endpoint.passed_over + 1 : 0;
  }
  return filled;
}

/// Calls `serve(crew)` for one crew after another, until it returns false or all had a turn.
template <class Serve>
void ShmPort::go_round(Serve&& serve) {
  bool more = true;
  for (size_t i = 0; i < crews_.size() && more; ++i) {
    Crew& crew = crews_[next_];
    next_ = next_ + 1 == crews_.size() ? 0 : next_ + 1;
    more = serve(crew);
  }
}

size_t ShmPort::rx_burst(std::span<RxPacket> burst) {
  if (active_.empty()) return 0;
  const size_t share = std::max<size_t>(1, burst.size() / active_.size());
  size_t filled = 0;
  const auto take_most = [&](Crew& crew, size_t fragments) {
    filled += take_from(crew, burst.subspan(filled), fragments);
    return filled < burst.size();
  };
  // No more fragments than there is room for with all that have come to them.
  const auto take_rest = [&](Crew& crew) {
    const size_t room = (burst.size() - filled) / crew.view.senders;
    return take_most(crew, std::clamp<size_t>(room, 1, 2 * share));
  };
  // Equal shares first.
  bool any = false;
  go_round([&](Crew& crew) {
    crew.view = look(crew);
    crew.turn = turn_for(crew);
    any |= crew.turn != Turn::kNone;
    crew.passed_over = crew.turn == Turn::kLast ? crew.passed_over + 1 : 0;
    return crew.turn != Turn::kNow || take_most(crew, share);
  });
  if (!any || filled == burst.size()) return filled;
  // Then the room left goes to crews that have more, and then to those that wait for others.
  go_round([&](Crew& crew) {
    if (crew.turn != Turn::kNow) return true;
    crew.view = look(crew);
    crew.turn = turn_for(crew);
    return crew.turn != Turn::kNow || take_rest(crew);
  });
  if (filled == burst.size()) return filled;
  go_round([&](Crew& crew) {
    if (crew.turn != Turn::kLast) return true;
    crew.passed_over = 0;
    return take_rest(crew);
  });
  return filled;
}

void ShmPort::rx_release() {
  for (const EndpointIndex index : active_) {
    Endpoint& endpoint = endpoints_[index];
    if (!endpoint.tx_taken) continue;
    endpoint.tx_read->value.store(endpoint.tx_index, std::memory_order_release);
    endpoint.tx_taken = false;
  }
}

/// Learns how far the worker has read its receive ring.
void ShmPort::look_at_reader(Endpoint& endpoint) {
  endpoint.rx_read_seen = endpoint.rx_read->value.load(std::memory_order_acquire);
  // A position that the worker cannot have reached counts as a full ring: it harms itself only.
  if (endpoint.rx_index - endpoint.rx_read_seen > endpoint.rx_depth)
    endpoint.rx_read_seen = endpoint.rx_index - endpoint.rx_depth;
}

/// The row for the next payload that is no result; nullptr: the worker has not read it yet. Rows
/// are used in the order of the ring's entries, so the oldest is the first to come free.
std::byte* ShmPort::next_side_row(Endpoint& endpoint) {
  const uint64_t rows = endpoint.side_used_at.size();
  const uint64_t row = endpoint.side_index & (rows - 1);
  if (endpoint.side_index >= rows && endpoint.side_used_at[row] >= endpoint.rx_read_seen) {
    look_at_reader(endpoint);
    if (endpoint.side_used_at[row] >= endpoint.rx_read_seen) return nullptr;
  }
  endpoint.side_used_at[row] = endpoint.rx_index;
  ++endpoint.side_index;
  return endpoint.side + row * endpoint.slot_bytes;
}

/// True if what was put into the side rows so many payloads ago still waits there.
bool ShmPort::side_rows_wait(Endpoint& endpoint, uint64_t payloads) {
  if (endpoint.side_index < payloads) return false;
  const uint64_t used_at =
      endpoint.side_used_at[(endpoint.side_index - payloads) & (endpoint.side_used_at.size() - 1)];
  if (used_at >= endpoint.rx_read_seen) look_at_reader(endpoint);
  return used_at >= endpoint.rx_read_seen;
}

/// Where a worker finds a payload that need not be copied for it; kNotShared: it must be.
inline uint64_t ShmPort::shared_offset(const Endpoint& endpoint, const wire::Message& message,
                                       const std::byte* payload) {
  // Compared as numbers: pointers into different memory have no order.
  const auto in_results =
      reinterpret_cast<uintptr_t>(payload) - reinterpret_cast<uintptr_t>(endpoint.results);
  if (in_results < endpoint.results_bytes) return in_results;
  if (message.type == wire::Type::kResult && message.target != 0)
    return (uint64_t{message.target} - 1) * wire::kTargetUnitBytes | kResultBufferPayload;
  return kNotShared;
}

/// There is room for it.
inline void ShmPort::write(Endpoint& endpoint, EndpointIndex index, const wire::Message& message,
                           uint64_t offset, uint32_t payload_bytes, bool ecn) {
  Descriptor& slot = endpoint.rx_ring[endpoint.rx_index & (endpoint.rx_depth - 1)];
  slot.message = message;
  if (ecn) slot.message.flags |= wire::kFlagEcn;
  slot.payload_offset = offset;
  slot.payload_bytes = payload_bytes;
  slot.turn.store(turn_of(endpoint.rx_index, endpoint.rx_depth), std::memory_order_release);
  ++endpoint.rx_index;
  if (!endpoint.rx_written) {
    endpoint.rx_written = true;
    written_.push_back(index);
  }
}

size_t ShmPort::tx_to_all(std::span<const EndpointIndex> to, const wire::Message& message,
                          std::span<const std::byte> payload) {
  const wire::Message copy = message;  // which no descriptor that is written could change
  const auto bytes = static_cast<uint32_t>(payload.size());
  size_t written = 0;
  size_t sent = 0;
  for (const EndpointIndex index : to) {
    Endpoint& endpoint = endpoints_[index];
    const uint64_t offset = shared_offset(endpoint, copy, payload.data());
    const uint64_t waiting = endpoint.rx_index - endpoint.rx_read_seen;
    if (bytes == 0 || offset == kNotShared || waiting >= nearly_full(endpoint)) [[unlikely]] {
      sent += tx(index, message, payload);
      continue;
    }
    write(endpoint, index, copy, offset, bytes, false);
    ++written;
  }
  counters_.tx_packets += written;
  counters_.tx_bytes += written * bytes;
  return sent + written;
}

bool ShmPort::tx(EndpointIndex index, const wire::Message& message,
                 std::span<const std::byte> payload) {
  Endpoint& endpoint = endpoints_[index];
  if (endpoint.rx_index - endpoint.rx_read_seen >= nearly_full(endpoint)) look_at_reader(endpoint);
  const uint64_t waiting = endpoint.rx_index - endpoint.rx_read_seen;
  if (waiting >= endpoint.rx_depth) {
    counters_.drops.add(DropReason::kTxFull);
    return false;
  }
  bool crowded = waiting >= nearly_full(endpoint);
  uint64_t offset = 0;
  if (!payload.empty()) {
    offset = shared_offset(endpoint, message, payload.data());
    if (offset == kNotShared) {
      std::byte* row = payload.size() <= endpoint.slot_bytes ? next_side_row(endpoint) : nullptr;
      if (!row) {
        counters_.drops.add(DropReason::kTxFull);
        return false;
      }
      const uint64_t rows = endpoint.side_used_at.size();
      crowded = crowded || side_rows_wait(endpoint, rows - rows / 4);
      std::memcpy(row, payload.data(), payload.size());
      offset = static_cast<uint64_t>(row - endpoint.switch_base) | kSidePayload;
    }
  }
  write(endpoint, index, message, offset, static_cast<uint32_t>(payload.size()), ecn_ && crowded);
  ++counters_.tx_packets;
  counters_.tx_bytes += payload.size();
  return true;
}

void ShmPort::tx_flush() {
  if (written_.empty()) return;
  // Pairs with the fence in the worker's wait: either we see its flag, or it sees our descriptors.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const EndpointIndex index : written_) {
    Endpoint& endpoint = endpoints_[index];
    endpoint.rx_written = false;
    const uint32_t sleeping = endpoint.worker_sleeping->value.load(std::memory_order_relaxed);
    if (sleeping == kAsleep) {
      endpoint.doorbell->value.fetch_add(1, std::memory_order_release);
      futex_wake(&endpoint.doorbell->value);
    } else if (sleeping >= kFirstIdlePeriod && sleeping != endpoint.called_in) {
      endpoint.called_in = sleeping;
      if (!endpoint.call_wanted->exchange(true, std::memory_order_acq_rel)) calls_wanted_ = true;
    }
  }
  written_.clear();
}

bool ShmPort::watch(EndpointIndex index) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;  // edge-triggered and never read: a peer cannot block us on it
  event.data.u32 = index;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, endpoints_[index].wake_event, &event) == 0;
}

Nanos ShmPort::listen(Nanos now) {
  if (muted_ == 0) return INT64_MAX;
  for (const EndpointIndex index : active_) {
    Endpoint& endpoint = endpoints_[index];
    if (!endpoint.muted || endpoint.empty_rings.at(now) > kMostEmptyRingsNs / 2) continue;
    if (!watch(index)) continue;  // no memory now: it goes on being looked at
    endpoint.muted = false;
    --muted_;
  }
  return muted_ == 0 ? INT64_MAX : kMutedPollNs;
}

void ShmPort::rung(std::span<const epoll_event> events, Nanos now) {
  for (const epoll_event& event : events) {
    if (event.data.u32 == kNobody) continue;
    const auto index = static_cast<EndpointIndex>(event.data.u32);
    Endpoint& endpoint = endpoints_[index];
    const bool sent = has_packet(endpoint) || endpoint.tx_index != endpoint.tx_index_at_ring;
    endpoint.tx_index_at_ring = endpoint.tx_index;
    if (sent) continue;
    endpoint.empty_rings.add(kEmptyRingNs, now);
    if (endpoint.empty_rings.at(now) <= kMostEmptyRingsNs) continue;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, endpoint.wake_event, nullptr);
    endpoint.muted = true;
    ++muted_;
  }
}

bool ShmPort::prepare_sleep() {
  for (const EndpointIndex index : active_)
    endpoints_[index].lane_sleeping->value.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const EndpointIndex index : active_)
    if (has_packet(endpoints_[index])) return false;
  return true;
}

void ShmPort::end_sleep() {
  for (const EndpointIndex index : active_)
    endpoints_[index].lane_sleeping->value.store(0, std::memory_order_relaxed);
}

}  // namespace ina::io::shm
