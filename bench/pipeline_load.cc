#include "bench/pipeline_load.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <new>
#include <stdexcept>

#include "aggregator/kernels.h"
#include "common/clock.h"
#include "common/huge_page_memory.h"

namespace ina::bench {

using aggregator::Aggregator;
using aggregator::Emission;
using aggregator::JobIndex;

static_assert(io::SwitchPort<MemoryPort>);

namespace {

constexpr uint32_t kBurst = 32;  // the daemon's default
constexpr uint32_t kEpoch = 1;
constexpr uint32_t kDescriptorsAhead = 8;
// Rounds need not be longer: their memory is far beyond any cache by then.
constexpr uint32_t kLargestWindow = 1 << 16;
constexpr uint32_t kFloorAheadBytes = 2048;
constexpr uint64_t kMostChecked = 4096;  // fragments

// The share of one core: sysconf() adds up the caches of a socket's cores.
size_t cache_bytes(int level, size_t usual) {
  const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(level);
  size_t kib = 0;
  std::ifstream(folder + "/size") >> kib;
  return kib != 0 ? std::bit_floor(kib << 10) : usual;
}

// Value rows. Results and receive rings take up to as much again and have to fit, too.
size_t row_bytes_in(Place place) {
  switch (place) {
    case Place::kL2:
      return l2_bytes() / 4;
    case Place::kL3:
      return l3_bytes() / 4;
    case Place::kDram:
      break;
  }
  return 8 * l3_bytes();
}

// Distinct payloads.
size_t packet_bytes_in(Place place) {
  switch (place) {
    case Place::kL2:
      return l2_bytes() / 4;
    case Place::kL3:
      return 4 * l2_bytes();
    case Place::kDram:
      break;
  }
  return 8 * l3_bytes();
}

template <int kToWrite>
void prefetch(const std::byte* from, uint32_t bytes) {
  for (uint32_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at, kToWrite);
}

// 0..3, so that sums of 64 are exact in every data type. `index`: of the payload in its ring.
uint32_t element(uint32_t job, uint32_t rank, uint64_t index, uint32_t e) {
  uint64_t mixed = (index * 64 + rank) * 64 + job + 1;
  mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ mixed >> 32) * 0x94d049bb133111eb;
  return mixed >> (e % 32 * 2) & 3;
}

void write_number(std::byte* to, DType dtype, uint32_t number) {
  const auto bits = dtype == DType::kInt32 ? number : std::bit_cast<uint32_t>(float(number));
  if (dtype == DType::kBFloat16)
    std::memcpy(to, reinterpret_cast<const std::byte*>(&bits) + 2, 2);
  else
    std::memcpy(to, &bits, 4);
}

}  // namespace

const char* name(Place place) {
  return place == Place::kL2 ? "L2" : place == Place::kL3 ? "L3" : "DRAM";
}
size_t l2_bytes() {
  return cache_bytes(2, 1 << 20);
}
size_t l3_bytes() {
  return cache_bytes(3, 32 << 20);
}

// ---- the port

void MemoryPort::start(uint64_t round, uint32_t first_rank, uint32_t ranks) {
  first_seq_ = lane + uint64_t{lanes} * round * window;
  next_ = {.rank = first_rank};
  end_rank_ = first_rank + ranks;
}

/// `seq`: of the packet.
[[gnu::always_inline]] inline bool MemoryPort::take(Endpoint& endpoint, uint32_t seq,
                                                    io::RxPacket& packet) {
  const uint32_t depth = tx_depth;
  const uint64_t index = endpoint.tx_index++;
  const Descriptor& shared = endpoint.tx_ring[index & (depth - 1)];
  if (shared.turn.load(std::memory_order_acquire) != (index & (depth - 1)) + 1) return false;
  __builtin_prefetch(&endpoint.tx_ring[(index + kDescriptorsAhead) & (depth - 1)]);
  packet.message = shared.message;
  const uint64_t offset = shared.payload_offset;
  const uint32_t bytes = shared.payload_bytes;
  if (!endpoint.tx_taken) {
    endpoint.tx_taken = true;
    taken_from_.push_back(static_cast<uint32_t>(&endpoint - endpoints.data()));
  }
  if (bytes > endpoint.worker_bytes || offset > endpoint.worker_bytes - bytes) {
    counters_.drops.add(DropReason::kBadOffset);
    return false;
  }
  if (!endpoint.header.repeats(packet.message, bytes)) [[unlikely]] {
    const auto reason = endpoint.header.validate(packet.message, bytes, endpoint.slot_bytes);
    if (reason) {
      counters_.drops.add(*reason);
      return false;
    }
  }
  packet.message.seq = seq;
  packet.payload = endpoint.worker_base + offset;
  packet.payload_bytes = bytes;
  packet.job = endpoint.job;
  packet.rank = endpoint.rank;
  return true;
}

size_t MemoryPort::rx_burst(std::span<io::RxPacket> burst) {
  size_t filled = 0;
  uint64_t bytes = 0;
  Step next = next_;
  // A burst ends where the ranks change: there are no other groups than those that were asked for.
  const uint32_t end = std::min(end_rank_, next.rank + 1);
  while (filled < burst.size() && next.rank < end) {
    Endpoint* const first = &endpoints[size_t{next.job} * ranks_each + next.rank];
    const auto priority = static_cast<uint8_t>(1 + next.rank * jobs + next.job);
    for (; filled < burst.size() && next.fragment < window; ++next.fragment) {
      const auto seq = static_cast<uint32_t>(first_seq_ + uint64_t{lanes} * next.fragment);
      for (; filled < burst.size() && next.member < group; ++next.member) {
        io::RxPacket& packet = burst[filled];
        if (!take(first[next.member], seq, packet)) continue;
        if (rising_priority) packet.message.priority = priority;
        bytes += packet.payload_bytes;
        ++filled;
      }
      if (next.member < group) break;
      next.member = 0;
    }
    if (next.fragment < window) break;
    next.fragment = 0;
    if (++next.job < jobs) continue;
    next.job = 0;
    next.rank += group;
  }
  next_ = next;
  counters_.rx_packets += filled;
  counters_.rx_bytes += bytes;
  return filled;
}

void MemoryPort::rx_release() {
  for (const uint32_t index : taken_from_) {
    endpoints[index].tx_read->store(endpoints[index].tx_index, std::memory_order_release);
    endpoints[index].tx_taken = false;
  }
  taken_from_.clear();
}

/// `depth`: of all receive rings.
inline void MemoryPort::write(Endpoint& endpoint, uint32_t depth, const wire::Message& message,
                              std::span<const std::byte> payload) {
  if (endpoint.rx_index - endpoint.rx_read_seen >= depth)
    endpoint.rx_read_seen = endpoint.rx_index;  // a worker that keeps up
  const auto in_results =
      reinterpret_cast<uintptr_t>(payload.data()) - reinterpret_cast<uintptr_t>(endpoint.results);
  Descriptor& slot = endpoint.rx_ring[endpoint.rx_index & (depth - 1)];
  slot.message = message;
  slot.payload_offset = in_results < endpoint.results_bytes ? in_results : ~uint64_t{0};
  slot.payload_bytes = static_cast<uint32_t>(payload.size());
  slot.turn.store(static_cast<uint32_t>(endpoint.rx_index >> __builtin_ctz(depth)) + 1,
                  std::memory_order_release);
  ++endpoint.rx_index;
}

bool MemoryPort::tx(io::EndpointIndex index, const wire::Message& message,
                    std::span<const std::byte> payload) {
  write(endpoints[index], rx_depth, message, payload);
  ++counters_.tx_packets;
  counters_.tx_bytes += payload.size();
  return true;
}

size_t MemoryPort::tx_to_all(std::span<const io::EndpointIndex> to, const wire::Message& message,
                             std::span<const std::byte> payload) {
  const wire::Message copy = message;  // which no descriptor that is written could change
  const uint32_t depth = rx_depth;
  Endpoint* const all = endpoints.data();
  for (const io::EndpointIndex index : to) write(all[index], depth, copy, payload);
  counters_.tx_packets += to.size();
  counters_.tx_bytes += to.size() * payload.size();
  return to.size();
}

// ---- memory and packets

namespace {

Mapping huge_pages(size_t bytes) {
  constexpr size_t kHugePage = 2 << 20;
  const size_t size = (bytes + 2 * kHugePage) / kHugePage * kHugePage;
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  Mapping map(static_cast<std::byte*>(memory), size);
  ::madvise(memory, size, MADV_HUGEPAGE);  // as the daemon does
  std::memset(memory, 0, size);
  return map;
}

size_t memory_bytes(const LoadConfig& config, const LoadSizes& sizes, size_t row_bytes) {
  const size_t jobs = config.jobs;
  const size_t endpoints = jobs * (config.fan_in + 1);
  constexpr size_t kPage = 4096;
  return row_bytes + jobs * sizes.result_bytes + jobs * 2 * sizes.window * sizeof(WorkerSet) +
         endpoints * (size_t{sizes.tx_depth} * (config.payload_bytes + sizeof(Descriptor)) +
                      sizes.rx_depth * sizeof(Descriptor)) +
         endpoints * 64 + 8 * kPage;
}

}  // namespace

LoadSizes::LoadSizes(const LoadConfig& config)
    : slot_bytes(config.slot_bytes()),
      slots(config.slots != 0 ? config.slots
                              : static_cast<uint32_t>(row_bytes_in(config.slots_in) / slot_bytes)),
      // A quarter of all slots is used at a time: with more, windows could hardly keep apart.
      window(std::clamp<uint32_t>(slots / 4 / config.jobs, 1, kLargestWindow)),
      senders(config.fan_in - (config.worst_case ? 1 : 0)),
      tx_depth(static_cast<uint32_t>(
          std::bit_ceil(std::max<size_t>(1, packet_bytes_in(config.packets_in) / config.jobs /
                                                config.fan_in / config.payload_bytes)))),
      rx_depth(2 * std::bit_ceil(2 * window)),
      result_bytes(size_t{2} * window * config.lanes * slot_bytes) {}

LoadMemory::LoadMemory(const LoadConfig& config, const LoadSizes& sizes, size_t row_bytes)
    : map_(huge_pages(memory_bytes(config, sizes, row_bytes))),
      rows(take<std::byte>(row_bytes)),
      results(take<std::byte>(config.jobs * sizes.result_bytes)),
      seen(take<WorkerSet>(size_t{config.jobs} * 2 * sizes.window)),
      payloads(take<std::byte>(size_t{config.jobs} * config.fan_in * sizes.tx_depth *
                               config.payload_bytes)),
      tx_rings(take<Descriptor>(size_t{config.jobs} * (config.fan_in + 1) * sizes.tx_depth)),
      rx_rings(take<Descriptor>(size_t{config.jobs} * (config.fan_in + 1) * sizes.rx_depth)),
      positions(take<std::atomic<uint64_t>>(size_t{config.jobs} * (config.fan_in + 1) * 8)) {}

std::byte* LoadMemory::take_bytes(size_t bytes) {
  std::byte* at = map_.data() + used_;
  used_ += (bytes + 4095) / 4096 * 4096;
  if (used_ > map_.size()) throw std::bad_alloc();
  return at;
}

Load::Load(const LoadConfig& config)
    : config_(config),
      sizes_(config),
      memory_(config, sizes_, Aggregator::row_memory_bytes(shape())),
      aggregator_(shape(), {memory_.rows, Aggregator::row_memory_bytes(shape())},
                  huge_page_memory()),
      packets_(kBurst),
      verdicts_(kBurst) {
  if (!policy().hashed && config.jobs * 2 * sizes_.window > sizes_.slots)
    throw std::runtime_error("too few slots for a pool of each job");
  choose_ids();
  add_jobs();
  write_packets();
}

aggregator::Shape Load::shape() const {
  aggregator::Shape shape;
  shape.slots = sizes_.slots;
  shape.slot_bytes = sizes_.slot_bytes;
  shape.max_jobs = config_.jobs;
  shape.burst = kBurst;
  shape.lanes = config_.lanes;
  shape.lane = config_.lane;
  shape.policy.kind = config_.policy;
  shape.policy.ways = config_.ways;
  return shape;
}

void Load::choose_ids() {
  // Where a fragment falls among 2^32 - 1 slots. All jobs move on by the same distance each round,
  // so what keeps apart in one does in all.
  const auto place = [&](JobId id, uint32_t fragment) {
    return scheduler::hashed_slot(id, Seq{fragment}, UINT32_MAX);
  };
  const uint64_t apart = (uint64_t{1} << 32) / sizes_.slots + 4;
  const auto keeps_apart = [&](JobId id) {
    for (const JobId other : ids_)
      for (uint32_t fragment = 0; fragment < sizes_.window; ++fragment) {
        const auto forward = place(id, fragment) - place(other, 0);
        const auto backward = place(id, 0) - place(other, fragment);
        for (const uint32_t distance : {forward, backward})
          if (distance < apart || -distance < apart) return false;
      }
    return true;
  };
  constexpr uint32_t kMostIds = 1 << 20;
  for (uint32_t id = 1; ids_.size() < config_.jobs; ++id) {
    if (id == kMostIds) throw std::runtime_error("found no jobs whose fragments keep apart");
    if (config_.worst_case) {
      ids_.push_back(JobId{1});  // all of them: their fragments meet in the same slots
    } else if (!policy().hashed || keeps_apart(JobId{id})) {
      ids_.push_back(JobId{id});
    }
  }
}

void Load::add_jobs() {
  for (uint32_t job = 0; job < config_.jobs; ++job) {
    aggregator::JobSpec spec;
    spec.id = ids_[job];
    spec.epoch = kEpoch;
    spec.workers = config_.fan_in;
    spec.window = sizes_.window * config_.lanes;
    spec.rules.home = Home::kDedicated;
    spec.pool = {job * 2 * sizes_.window, 2 * sizes_.window, config_.lanes, config_.lane};
    spec.results = memory_.results + job * sizes_.result_bytes;
    spec.seen = memory_.seen + size_t{job} * 2 * sizes_.window;
    aggregator_.add_job(static_cast<JobIndex>(job), spec);
  }
}

void Load::write_packets() {
  const uint32_t ranks_each = config_.fan_in + 1;
  port_.jobs = config_.jobs;
  port_.ranks_each = ranks_each;
  port_.window = sizes_.window;
  port_.tx_depth = sizes_.tx_depth;
  port_.rx_depth = sizes_.rx_depth;
  port_.lanes = config_.lanes;
  port_.lane = config_.lane;
  port_.group = config_.group;
  port_.rising_priority = config_.worst_case;
  port_.endpoints.resize(size_t{config_.jobs} * ranks_each);
  const size_t worker_bytes = size_t{sizes_.tx_depth} * config_.payload_bytes;
  for (size_t i = 0; i < port_.endpoints.size(); ++i) {
    const auto job = static_cast<uint32_t>(i / ranks_each);
    const auto rank = static_cast<uint32_t>(i % ranks_each);
    const bool is_fallback = rank == config_.fan_in;
    if (!is_fallback) workers_.push_back(static_cast<io::EndpointIndex>(i));
    // The contents of the fallback's results do not matter: some worker's payloads.
    const uint32_t sender = is_fallback ? 0 : rank;
    std::byte* base = memory_.payloads + (size_t{job} * config_.fan_in + sender) * worker_bytes;
    Descriptor* ring = memory_.tx_rings + i * sizes_.tx_depth;
    for (uint32_t index = 0; index < sizes_.tx_depth; ++index) {
      Descriptor& descriptor = ring[index];
      wire::Message& message = descriptor.message;
      message.type = is_fallback ? wire::Type::kResult : wire::Type::kGrad;
      message.epoch = kEpoch;
      message.operation_elements = uint64_t{1} << 40;
      message.elements = static_cast<uint16_t>(config_.elements());
      message.dtype = config_.dtype;
      message.op = Op::kSum;
      message.collective = Collective::kAllReduce;
      message.priority = 1;
      descriptor.payload_offset = size_t{index} * config_.payload_bytes;
      descriptor.payload_bytes = config_.payload_bytes;
      descriptor.turn = index + 1;
      if (is_fallback) continue;
      std::byte* to = base + descriptor.payload_offset;
      for (uint32_t e = 0; e < config_.elements(); ++e)
        write_number(to + size_t{e} * wire_bytes(config_.dtype), config_.dtype,
                     element(job, rank, index, e));
    }
    port_.endpoints[i] = {.job = static_cast<io::JobIndex>(job),
                          .rank = is_fallback ? kFallbackRank : Rank{static_cast<uint8_t>(rank)},
                          .tx_ring = ring,
                          .worker_base = base,
                          .worker_bytes = worker_bytes,
                          .slot_bytes = sizes_.slot_bytes,
                          .tx_read = memory_.positions + 8 * i,
                          .rx_ring = memory_.rx_rings + i * sizes_.rx_depth,
                          .results = memory_.results + job * sizes_.result_bytes,
                          .results_bytes = sizes_.result_bytes};
  }
}

// ---- running

template <class OnEmission>
void Load::serve(OnEmission&& on_emission) {
  while (aggregator::serve(
             port_, aggregator_, packets_, verdicts_, 0, on_emission,
             [this](const io::RxPacket&, const aggregator::Verdict&) { mismatch_ = true; }) != 0) {
  }
}

template <class OnEmission>
Load::Times Load::run_round(OnEmission&& on_emission) {
  Times times;
  uint32_t first = 0;
  if (config_.worst_case) {  // the first pass finds empty slots
    port_.start(rounds_, 0, 1);
    serve(on_emission);
    first = 1;
  }
  port_.start(rounds_, first, sizes_.senders - first);
  const Nanos start = now_ns();
  serve(on_emission);
  const Nanos mid = now_ns();
  times.contributions_ns = mid - start;
  if (has_fallback()) {
    port_.group = 1;
    port_.start(rounds_, config_.fan_in, 1);
    serve(on_emission);
    port_.group = config_.group;
    times.acknowledgements_ns = now_ns() - mid;
  }
  ++rounds_;
  return times;
}

/// Writes descriptors.
struct Load::Writer {
  Load& load;
  void operator()(io::JobIndex job, Rank rank, const Emission& emission) const {
    const uint32_t at = rank == kFallbackRank ? load.config_.fan_in : value(rank);
    const auto endpoint = static_cast<io::EndpointIndex>(job * load.port_.ranks_each + at);
    load.port_.tx(endpoint, emission.message, {emission.payload, emission.payload_bytes});
  }
  void to_all(io::JobIndex job, uint32_t workers, const Emission& emission) const {
    load.port_.tx_to_all(std::span(load.workers_).subspan(size_t{job} * workers, workers),
                         emission.message, {emission.payload, emission.payload_bytes});
  }
};

/// Counts them.
struct Load::Counter {
  Load& load;
  void operator()(io::JobIndex, Rank, const Emission&) const { ++load.unsent_; }
  void to_all(io::JobIndex, uint32_t workers, const Emission&) const { load.unsent_ += workers; }
};

Load::Times Load::run_path(uint64_t rounds, Send send) {
  Times sum;
  for (uint64_t i = 0; i < rounds; ++i) {
    const Times times =
        send == Send::kDescriptors ? run_round(Writer{*this}) : run_round(Counter{*this});
    sum.contributions_ns += times.contributions_ns;
    sum.acknowledgements_ns += times.acknowledgements_ns;
  }
  return sum;
}

uint32_t Load::slot_of(uint32_t job, uint64_t seq) const {
  return policy().hashed ? scheduler::hashed_slot(ids_[job], Seq{seq / config_.lanes}, sizes_.slots)
                         : aggregator_.spec(static_cast<JobIndex>(job)).pool.slot_of(Seq{seq});
}

std::byte* Load::result_row(uint32_t job, uint64_t seq) const {
  return memory_.results + job * sizes_.result_bytes +
         seq % (uint64_t{2} * sizes_.window * config_.lanes) * sizes_.slot_bytes;
}

template <bool kPrefetch, bool kGroups>
Nanos Load::run_floor(uint64_t rounds) {
  const aggregator::Kernels& kernels = aggregator::kernels(config_.dtype, Op::kSum);
  const size_t elements = config_.elements();
  const uint32_t group = config_.group;
  const uint32_t ahead =
      std::max<uint32_t>(1, kFloorAheadBytes / config_.payload_bytes / config_.group);
  const auto row_of = [&](uint32_t job, uint64_t seq) {
    return memory_.rows + size_t{slot_of(job, seq)} * sizes_.slot_bytes;
  };
  const Nanos start = now_ns();
  // These are the rounds that the path is about to run.
  for (uint64_t round = rounds_; round < rounds_ + rounds; ++round) {
    for (uint32_t rank = config_.worst_case ? 1 : 0; rank < sizes_.senders; rank += group) {
      const bool is_first = rank == 0 || config_.worst_case;
      const bool is_last = rank + group == config_.fan_in && !has_fallback();
      for (uint32_t job = 0; job < config_.jobs; ++job) {
        const std::byte* bases[kMaxWorkers];
        for (uint32_t member = 0; member < group; ++member)
          bases[member] =
              port_.endpoints[size_t{job} * port_.ranks_each + rank + member].worker_base;
        const auto payload = [&](uint32_t member, uint64_t index) {
          return bases[member] + (index & (sizes_.tx_depth - 1)) * config_.payload_bytes;
        };
        for (uint32_t fragment = 0; fragment < sizes_.window; ++fragment) {
          const uint64_t seq = seq_of(round, fragment);
          const uint64_t index = round * sizes_.window + fragment;
          if constexpr (kPrefetch) {
            if (!kGroups || !is_first || !is_last)
              prefetch<1>(row_of(job, seq + uint64_t{ahead} * config_.lanes), sizes_.slot_bytes);
            for (uint32_t member = 0; member < group; ++member)
              prefetch<0>(payload(member, index + ahead), config_.payload_bytes);
          }
          std::byte* row = row_of(job, seq);
          std::byte* result = result_row(job, seq);
          if (kGroups && group != 1) {
            const std::byte* payloads[kMaxWorkers];
            for (uint32_t member = 0; member < group; ++member)
              payloads[member] = payload(member, index);
            if (is_last)
              kernels.finish_all(result, is_first ? nullptr : row, payloads, group, elements, 1);
            else
              kernels.add_all(row, !is_first, payloads, group, elements);
            continue;
          }
          for (uint32_t member = 0; member < group; ++member) {
            if (is_first && member == 0)
              kernels.load(row, payload(member, index), elements);
            else if (is_last && member + 1 == group)
              kernels.add_finish(result, row, payload(member, index), elements, 1);
            else
              kernels.add(row, payload(member, index), elements);
          }
        }
      }
    }
  }
  return now_ns() - start;
}

template Nanos Load::run_floor<false, false>(uint64_t);
template Nanos Load::run_floor<true, false>(uint64_t);
template Nanos Load::run_floor<false, true>(uint64_t);
template Nanos Load::run_floor<true, true>(uint64_t);

uint64_t Load::packets_per_round() const {
  return uint64_t{sizes_.window} * config_.jobs * (sizes_.senders - (config_.worst_case ? 1 : 0));
}

uint64_t Load::emissions_per_round() const {
  return config_.worst_case ? packets_per_round() : uint64_t{sizes_.window} * config_.jobs;
}

uint64_t Load::acknowledgements_per_round() const {
  return has_fallback() ? uint64_t{sizes_.window} * config_.jobs : 0;
}

// ---- checking

bool Load::is_sum(const std::byte* values, uint32_t job, uint64_t seq, WorkerSet ranks,
                  DType dtype) const {
  // A rank's packets go out in the order of its ring, not in that of their sequence numbers.
  const uint64_t index = (seq - config_.lane) / config_.lanes % sizes_.tx_depth;
  const uint32_t width = wire_bytes(dtype);
  for (uint32_t e = 0; e < config_.elements(); ++e) {
    uint32_t sum = 0;
    for (const Rank rank : ranks) sum += element(job, value(rank), index, e);
    std::byte expected[4];
    write_number(expected, dtype, sum);
    if (std::memcmp(expected, values + size_t{e} * width, width) != 0) return false;
  }
  return true;
}

std::string Load::check_counters() const {
  const aggregator::Counters& counters = aggregator_.counters();
  const uint64_t fragments = rounds_ * sizes_.window * config_.jobs;
  const auto differ = [](const char* what, uint64_t is, uint64_t expected) {
    return std::string(what) + ": " + std::to_string(is) + " instead of " +
           std::to_string(expected);
  };
  if (mismatch_) return "workers were said to disagree";
  if (const uint64_t dropped = counters.dropped(); dropped != 0)
    return differ("packets dropped", dropped, 0);
  if (counters.bypassed != 0) return differ("contributions without a slot", counters.bypassed, 0);
  if (counters.absorbed != fragments * sizes_.senders)
    return differ("contributions added", counters.absorbed, fragments * sizes_.senders);
  if (counters.absorbed_bytes != counters.absorbed * config_.payload_bytes)
    return differ("bytes added", counters.absorbed_bytes,
                  counters.absorbed * config_.payload_bytes);
  const uint64_t results = has_fallback() ? 0 : fragments;
  if (counters.results != results) return differ("results", counters.results, results);
  const uint64_t grouped = config_.group == 1 ? 0 : fragments * sizes_.senders;
  if (counters.grouped != grouped)
    return differ("contributions in groups", counters.grouped, grouped);
  const uint64_t preemptions =
      config_.worst_case ? rounds_ * (packets_per_round() + untimed_preemptions()) : 0;
  if (counters.preemptions != preemptions)
    return differ("preemptions", counters.preemptions, preemptions);
  if (counters.fallback_results != rounds_ * acknowledgements_per_round())
    return differ("acknowledgements", counters.fallback_results,
                  rounds_ * acknowledgements_per_round());
  return "";
}

void Load::spoil_results() {
  if (has_fallback()) return;
  for (size_t at = 0; at < config_.jobs * sizes_.result_bytes; at += sizes_.slot_bytes)
    std::memset(memory_.results + at, 0xff, wire_bytes(config_.dtype));
}

std::string Load::check_ring(uint64_t first_round, uint64_t end_round) const {
  if (has_fallback()) return "";  // its results are not sums
  first_round = std::max(first_round, end_round - std::min<uint64_t>(end_round, 2));
  const uint64_t each = std::max<uint64_t>(1, 2 * sizes_.window * config_.jobs / kMostChecked);
  for (uint32_t job = 0; job < config_.jobs; ++job)
    for (uint64_t round = first_round; round < end_round; ++round)
      for (uint64_t fragment = (job + round) % each; fragment < sizes_.window; fragment += each) {
        const uint64_t seq = seq_of(round, static_cast<uint32_t>(fragment));
        if (!is_sum(result_row(job, seq), job, seq, WorkerSet::first(config_.fan_in),
                    config_.dtype))
          return "wrong sum in the result ring at seq " + std::to_string(seq);
      }
  return "";
}

std::string Load::check_round() {
  std::string wrong;
  uint64_t checked = 0;
  const uint64_t each = std::max<uint64_t>(1, emissions_per_round() / kMostChecked);
  const auto look = [&](io::JobIndex job, Rank rank, const Emission& emission) {
    const wire::Message& message = emission.message;
    if (message.type == wire::Type::kResult && has_fallback()) return;
    // All workers get one payload: looked at once.
    if (message.type == wire::Type::kResult && rank != Rank{0}) return;
    ++checked;
    if (checked % each != 0) return;
    const bool is_part = message.type == wire::Type::kPart;
    const DType dtype = is_part ? accumulator_of(config_.dtype) : config_.dtype;
    if (!wrong.empty() || is_sum(emission.payload, job, aggregator_.seq_of(job, message.seq).value,
                                 message.bitmap, dtype))
      return;
    wrong = "wrong sum sent for seq " + std::to_string(message.seq);
  };
  run_round(look);
  const uint64_t expected = emissions_per_round() + untimed_preemptions();
  if (wrong.empty() && checked != expected)
    wrong = std::to_string(checked) + " messages instead of " + std::to_string(expected);
  return wrong;
}

std::string Load::check() {
  std::string wrong = check_counters();
  if (wrong.empty()) wrong = check_ring(0, rounds_);
  if (wrong.empty()) wrong = check_round();
  if (wrong.empty()) wrong = check_counters();
  // The floor is none if it does not do the same work.
  const auto check_floor = [&](auto run) {
    if (!wrong.empty()) return;
    spoil_results();
    run();
    wrong = check_ring(rounds_, rounds_ + 2);
  };
  check_floor([&] { run_floor<false, false>(2); });
  check_floor([&] { run_floor<true, false>(2); });
  check_floor([&] { run_floor<false, true>(2); });
  check_floor([&] { run_floor<true, true>(2); });
  return wrong;
}

}  // namespace ina::bench
