#include "sim/faults/hierarchy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "plans/themis/chunks.h"
#include "plans/themis/planner.h"

namespace ina::sim {

namespace {

using scheduler::Block;
using scheduler::Schedule;
using Random = std::mt19937_64;

constexpr size_t kScratchBytes = 1 << 20;
constexpr int32_t kUntouched = 0x5aa5a55a;
constexpr int32_t kUsers = static_cast<int32_t>(0xeeeeeeee);

uint64_t upto(Random& random, uint64_t most) {
  return random() % (most + 1);
}
bool chance(Random& random, uint32_t percent) {
  return random() % 100 < percent;
}

uint32_t ranks_of(const HierarchyPlan& hierarchy) {
  uint32_t ranks = 1;
  for (const uint32_t size : hierarchy.sizes) ranks *= size;
  return ranks;
}

bool sends_all(themis::Collective what) {
  return what == themis::Collective::kReduceScatter || what == themis::Collective::kAllToAll;
}
bool gets_all(themis::Collective what) {
  return what == themis::Collective::kAllGather || what == themis::Collective::kAllToAll;
}

/// A topology with rates and latencies by which chunks go different ways. Switches carry it out.
themis::Topology draw_topology(Random& random, const HierarchyPlan& hierarchy) {
  themis::Topology topology;
  for (const uint32_t size : hierarchy.sizes)
    topology.dimensions.push_back(
        {.name = "d" + std::to_string(topology.dimensions.size()),
         .size = size,
         .bits_per_s = (1 + upto(random, 9)) * 1'000'000'000,
         .step_latency_ps = static_cast<themis::Picos>(upto(random, 2'000'000))});
  return themis::carried_by_switches(std::move(topology));
}

/// Every chunk takes its dimensions in an order of its own, and goes through switches or not.
themis::Plan random_plan(Random& random, const themis::Topology& topology,
                         const std::vector<themis::Request>& requests) {
  std::vector<themis::Chunk> chunks;
  for (uint32_t r = 0; r < requests.size(); ++r) {
    const uint64_t granule = topology.participants() * sizeof(int32_t);
    for (uint64_t left = (requests[r].bytes + granule - 1) / granule; left > 0;) {
      const uint64_t granules = std::min(left, 1 + upto(random, left - 1));
      left -= granules;
      themis::Way way{.order = themis::baseline_order(topology, requests[r].collective)};
      std::shuffle(way.order.begin(), way.order.end(), random);
      way.in_network = static_cast<uint32_t>(random() % (1u << topology.dimensions.size()));
      chunks.push_back(
          themis::make_chunk(topology, r, requests[r].collective, granules * granule, way));
    }
  }
  const auto discipline = static_cast<themis::Discipline>(random() % 3);
  const themis::Timeline timeline = themis::Simulator(topology, requests).run(chunks, discipline);
  return {topology, requests, std::move(chunks), order_of(timeline)};
}

themis::Plan draw_plan(Random& random, const themis::Topology& topology,
                       const std::vector<themis::Request>& requests) {
  if (chance(random, 50)) return random_plan(random, topology, requests);
  themis::PlanOptions options{.scheduler = static_cast<themis::Scheduler>(random() % 3),
                              .chunks = static_cast<uint32_t>(1 + upto(random, 5)),
                              .in_network = themis::InNetwork::kAlways};
  options.evaluations = 20;
  return themis::make_plan(topology, requests, options).value().plan;
}

PlannedGroup::Collective draw_collective(Random& random, uint32_t ranks, uint64_t most_elements) {
  PlannedGroup::Collective drawn;
  drawn.what = static_cast<themis::Collective>(random() % themis::kCollectiveNames.size());
  const bool is_allreduce = drawn.what == themis::Collective::kAllReduce;
  drawn.count = 1 + upto(random, most_elements / (is_allreduce ? 1 : ranks));
  drawn.in_place = drawn.what != themis::Collective::kAllToAll && chance(random, 40);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    auto& input = drawn.inputs.emplace_back(drawn.count * (sends_all(drawn.what) ? ranks : 1));
    for (int32_t& element : input) element = static_cast<int32_t>(random());
  }
  return drawn;
}

template <class Visit>
void for_each_operation(const Schedule& schedule, Visit&& visit) {
  for (Schedule::Stage stage = 0; stage < schedule.size(); ++stage)
    if (const auto* operate = std::get_if<scheduler::Operate>(&schedule.work(stage)))
      visit(*operate);
}

}  // namespace

// ---- what is to be done

size_t PlannedGroup::Collective::output_size() const {
  return count * (gets_all(what) ? inputs.size() : 1);
}

std::vector<int32_t> PlannedGroup::Collective::expected(uint32_t rank) const {
  std::vector<int32_t> output(output_size());
  for (size_t i = 0; i < output.size(); ++i) {
    uint32_t sum = 0;
    switch (what) {
      case themis::Collective::kAllReduce:
        for (const auto& input : inputs) sum += static_cast<uint32_t>(input[i]);
        break;
      case themis::Collective::kReduceScatter:
        for (const auto& input : inputs) sum += static_cast<uint32_t>(input[rank * count + i]);
        break;
      case themis::Collective::kAllGather:
        sum = static_cast<uint32_t>(inputs[i / count][i % count]);
        break;
      case themis::Collective::kAllToAll:
        sum = static_cast<uint32_t>(inputs[i / count][rank * count + i % count]);
    }
    output[i] = static_cast<int32_t>(sum);
  }
  return output;
}

std::vector<PlannedGroup> draw_groups(Random& random, const HierarchyPlan& hierarchy,
                                      uint32_t slot_bytes) {
  const uint32_t ranks = ranks_of(hierarchy);
  const uint64_t most_elements = uint64_t{hierarchy.max_fragments} * slot_bytes / sizeof(int32_t);
  std::vector<PlannedGroup> groups;
  for (uint32_t i = 0; i < hierarchy.groups; ++i) {
    const themis::Topology topology = draw_topology(random, hierarchy);
    PlannedGroup& group = groups.emplace_back();
    std::vector<themis::Request> requests;
    for (uint64_t n = chance(random, 40) ? 2 + upto(random, 1) : 1; n > 0; --n) {
      const auto& drawn =
          group.collectives.emplace_back(draw_collective(random, ranks, most_elements));
      const bool is_allreduce = drawn.what == themis::Collective::kAllReduce;
      requests.push_back({.collective = drawn.what,
                          .bytes = drawn.count * sizeof(int32_t) * (is_allreduce ? 1 : ranks)});
    }
    group.plan = std::make_shared<const themis::Plan>(draw_plan(random, topology, requests));
  }
  return groups;
}

ChannelPlace channel_place(const HierarchyPlan& hierarchy, size_t channel, uint32_t rank) {
  const uint32_t ranks = ranks_of(hierarchy);
  uint32_t first = 0, step = 1;
  for (size_t d = 0; d < hierarchy.sizes.size(); ++d) {
    const uint32_t size = hierarchy.sizes[d];
    if (d == channel)
      return {first + rank / (step * size) * step + rank % step, rank / step % size};
    first += ranks / size;
    step *= size;
  }
  return {first, rank};
}

std::vector<uint32_t> jobs_of(const HierarchyPlan& hierarchy) {
  const uint32_t ranks = ranks_of(hierarchy);
  std::vector<uint32_t> workers;
  for (const uint32_t size : hierarchy.sizes) workers.insert(workers.end(), ranks / size, size);
  workers.push_back(ranks);
  return workers;
}

// ---- a rank

/// Says of which engine something was let go.
class HierarchyRank::Prompting final : public client::Channel {
 public:
  Prompting(client::Engine& engine, bool& due) : channel_(engine), due_(due) {}
  client::Operation* submit_held(const client::OperationSpec& spec, Nanos now) override {
    due_ = true;
    return channel_.submit_held(spec, now);
  }
  void let_go(client::Operation* operation, const std::byte* send, std::byte* recv,
              uint64_t elements, std::shared_ptr<const scheduler::BlockTable> blocks) override {
    due_ = true;
    channel_.let_go(operation, send, recv, elements, std::move(blocks));
  }
  void skip(client::Operation* operation) override { channel_.skip(operation); }
  void forget(client::Operation* operation) override { channel_.forget(operation); }

 private:
  client::EngineChannel channel_;
  bool& due_;
};

/// A group's schedule and its kernels.
class HierarchyRank::Carried final : public client::Executor::Kernels {
 public:
  Carried(HierarchyRank& rank, std::unique_ptr<const themis::Execution> execution)
      : rank_(rank), execution_(std::move(execution)) {}

  const std::shared_ptr<const Schedule>& schedule() const { return execution_->schedule(); }

  void run(const scheduler::Compute& compute, const client::Executor::Frame& frame) override {
    const uint64_t hash = execution_->hash();
    switch (compute.kernel) {
      case themis::Execution::kTell:
        std::memcpy(frame.scratch() + execution_->hash_offset(), &hash, sizeof(hash));
        break;
      case themis::Execution::kAgree:
        for (uint32_t r = 0; r < ranks_of(rank_.hierarchy_); ++r)
          if (std::memcmp(frame.scratch() + r * sizeof(hash), &hash, sizeof(hash)) != 0)
            rank_.violations_.push_back(
                fmt::format("I1: rank {} is told another plan's hash by {}", rank_.rank_, r));
        break;
      default:
        execution_->keep(compute.argument, frame.buffers(execution_->pair_of(compute.argument)),
                         frame.scratch());
    }
  }

 private:
  HierarchyRank& rank_;
  const std::unique_ptr<const themis::Execution> execution_;
};

struct HierarchyRank::Running {
  size_t group = 0;
  std::vector<std::vector<int32_t>> send, recv;  ///< of each collective; in place: one is empty
  client::Operation* operation = nullptr;
};

HierarchyRank::HierarchyRank(const HierarchyPlan& hierarchy,
                             const std::vector<PlannedGroup>& groups, uint32_t rank,
                             uint32_t slot_bytes, uint64_t seed)
    : hierarchy_(hierarchy), groups_(groups), rank_(rank), random_(seed) {
  for (const PlannedGroup& group : groups_) {
    auto made = themis::Execution::make(
        group.plan, {.rank = rank,
                     .slot_bytes = std::vector<uint32_t>(hierarchy.sizes.size() + 1, slot_bytes),
                     .elements = std::vector<themis::Elements>(group.collectives.size())});
    if (!made) throw std::logic_error(made.error().text);
    carried_.push_back(std::make_unique<Carried>(*this, std::move(*made)));
  }
}

HierarchyRank::~HierarchyRank() = default;

void HierarchyRank::stop() {
  running_.clear();
  executor_.reset();
  channels_.clear();
}

void HierarchyRank::begin(const std::vector<std::pair<client::Engine*, bool*>>& engines,
                          Nanos now) {
  std::vector<client::Channel*> channels;
  for (const auto& [engine, due] : engines) {
    channels_.push_back(std::make_unique<Prompting>(*engine, *due));
    channels.push_back(channels_.back().get());
  }
  executor_ = std::make_unique<client::Executor>(channels, kScratchBytes);
  next_ = 0;
  starts_at_ = now + static_cast<Nanos>(upto(random_, static_cast<uint64_t>(hierarchy_.jitter_ns)));
}

void HierarchyRank::step(Nanos now) {
  for (auto running = running_.begin(); running != running_.end();) {
    if (!(*running)->operation->done) {
      ++running;
      continue;
    }
    check(**running);
    executor_->release((*running)->operation);
    // The buffers are the user's again, and the user writes to them at once.
    for (auto* buffers : {&(*running)->send, &(*running)->recv})
      for (auto& buffer : *buffers) std::ranges::fill(buffer, kUsers);
    running = running_.erase(running);
    ++completed_;
    starts_at_ =
        now + static_cast<Nanos>(upto(random_, static_cast<uint64_t>(hierarchy_.jitter_ns)));
  }
  while (next_ < groups_.size() && now >= starts_at_ && running_.size() < hierarchy_.depth)
    start(now);
}

void HierarchyRank::start(Nanos now) {
  const PlannedGroup& group = groups_[next_];
  Running& running = *running_.emplace_back(std::make_unique<Running>());
  running.group = next_++;
  std::vector<scheduler::BufferPair> pairs;
  for (const PlannedGroup::Collective& own : group.collectives) {
    std::vector<int32_t> send = own.inputs[rank_], recv(own.output_size(), kUntouched);
    // In place: the smaller one is a part of the larger one.
    const bool gathers = own.what == themis::Collective::kAllGather;
    if (own.in_place && gathers) std::ranges::copy(send, recv.begin() + rank_ * own.count);
    if (own.in_place) (gathers ? send : recv).clear();
    auto& kept_send = running.send.emplace_back(std::move(send));
    auto& kept_recv = running.recv.emplace_back(std::move(recv));
    const size_t part = own.what == themis::Collective::kAllReduce ? 0 : rank_ * own.count;
    int32_t* const from = own.in_place && gathers ? kept_recv.data() + part : kept_send.data();
    int32_t* const to = own.in_place && !gathers ? kept_send.data() + part : kept_recv.data();
    pairs.push_back({reinterpret_cast<const std::byte*>(from), reinterpret_cast<std::byte*>(to)});
  }
  running.operation =
      executor_->start(carried_[running.group]->schedule(), {}, carried_[running.group].get(),
                       client::Executor::Handle::kKept, now, pairs);
}

void HierarchyRank::check(const Running& running) {
  const PlannedGroup& group = groups_[running.group];
  for (size_t i = 0; i < group.collectives.size(); ++i) {
    const PlannedGroup::Collective& own = group.collectives[i];
    const auto say = [&](const std::string& what) {
      violations_.push_back(
          fmt::format("I1: group {} of a hierarchy, collective {} ({}), rank {}: {}", running.group,
                      i, themis::name(own.what), rank_, what));
    };
    const std::vector<int32_t> expected = own.expected(rank_);
    const bool in_send = own.in_place && own.what != themis::Collective::kAllGather;
    const size_t part =
        in_send && own.what != themis::Collective::kAllReduce ? rank_ * own.count : 0;
    const int32_t* const got = (in_send ? running.send[i] : running.recv[i]).data() + part;
    const auto wrong = std::mismatch(expected.begin(), expected.end(), got).first;
    if (wrong != expected.end())
      say(fmt::format("element {}: {} instead of {}", wrong - expected.begin(),
                      got[wrong - expected.begin()], *wrong));
    if (!own.in_place && running.send[i] != own.inputs[rank_]) say("its input was written to");
  }
}

std::pair<uint64_t, uint64_t> HierarchyRank::payload(size_t channel) const {
  const uint32_t place = channel_place(hierarchy_, channel, rank_).place;
  uint64_t up = 0, down = 0;
  for (const auto& carried : carried_)
    for_each_operation(*carried->schedule(), [&](const scheduler::Operate& operate) {
      if (operate.channel != channel) return;
      const Block everything{.elements = operate.elements};
      const auto blocks = operate.blocks ? operate.blocks->blocks() : std::span(&everything, 1);
      for (const Block& block : blocks) {
        const uint64_t bytes = block.elements * wire_bytes(operate.dtype);
        if (block.source == 0 || block.source == 1 + place) up += bytes;
        if (block.receiver == 0 || block.receiver == 1 + place) down += bytes;
      }
    });
  return {up, down};
}

}  // namespace ina::sim
