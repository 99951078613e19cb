// The schedules of all ranks of a plan, carried out in memory by an interpreter that knows of
// channels, blocks and dependencies only, against the collective's definition.
#include "plans/themis/execution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "plans/themis/chunks.h"
#include "tests/plans/themis_fixture.h"
#include "tests/support/sanitizers.h"

namespace ina::themis {
namespace {

using scheduler::Block;
using scheduler::Buffer;
using scheduler::Compute;
using scheduler::Operate;
/// Sums of many ranks wrap, as the switch's do.
using Element = uint32_t;
using testing::HasSubstr;

constexpr uint32_t kSlotBytes = 256;
constexpr Element kUntouched = 0xffff'ffb3;

/// All ranks of a plan.
class Interpreter {
 public:
  /// Elements of each rank's pairs of buffers; in place, `send` is not used.
  struct PairSize {
    size_t send, recv;
    bool in_place;
  };
  Interpreter(const std::shared_ptr<const Plan>& plan, const std::vector<PairSize>& sizes)
      : plan_(plan), ranks_(static_cast<uint32_t>(plan->topology.participants())) {
    for (uint32_t r = 0; r < ranks_; ++r) {
      Rank& rank = all_.emplace_back();
      auto made = Execution::make(plan, {.rank = r,
                                         .slot_bytes = std::vector<uint32_t>(
                                             plan->topology.dimensions.size() + 1, kSlotBytes),
                                         .elements = std::vector<Elements>(sizes.size())});
      EXPECT_TRUE(made) << made.error().text;
      rank.execution = std::move(*made);
      rank.coordinates = coordinates_of(plan->topology, r);
      for (const PairSize& size : sizes)
        rank.pairs.push_back({std::vector<Element>(size.send, 0),
                              std::vector<Element>(size.recv, kUntouched), size.in_place});
      rank.scratch.resize(rank.execution->schedule()->scratch_bytes());
      submit(r);
    }
  }

  std::vector<Element>& send(uint32_t rank, size_t pair) {
    Pair& own = all_[rank].pairs[pair];
    return own.in_place ? own.recv : own.send;
  }
  std::vector<Element>& recv(uint32_t rank, size_t pair) { return all_[rank].pairs[pair].recv; }
  /// Where `send` begins, of those that are in place.
  void set_offsets(uint32_t rank, size_t pair, size_t send, size_t recv) {
    all_[rank].pairs[pair].send_first = send;
    all_[rank].pairs[pair].receive_first = recv;
  }

  /// False: they wait for each other. Operations with closing fragments end as late as they can.
  bool run() {
    for (bool any = true; std::exchange(any, false);) {
      for (Rank& rank : all_) any |= run_local(rank);
      for (auto& [channel, members] : channels_) any |= run_channel(members);
      for (Rank& rank : all_)
        if (!any) any |= rank.end_oldest();
    }
    for (const Rank& rank : all_)
      if (rank.ended != rank.execution->schedule()->size()) return false;
    return true;
  }

 private:
  /// Buffers of one collective.
  struct Pair {
    std::vector<Element> send, recv;
    bool in_place = false;
    size_t send_first = 0, receive_first = 0;
  };
  struct Rank {
    std::unique_ptr<const Execution> execution;
    std::vector<uint32_t> coordinates;
    std::vector<Pair> pairs;
    std::vector<std::byte> scratch;
    std::map<uint32_t, std::vector<uint32_t>> queues;  ///< of operations, by channel
    std::vector<uint32_t> awaits;                      ///< of each stage
    std::vector<uint32_t> computes;                    ///< stages that have not ended
    size_t ended = 0;
    /// Bytes that an operation with its own result has sent, and that others may still need.
    struct Sent {
      const std::byte* from;
      std::vector<std::byte> bytes;
      uint32_t channel;
      uint16_t receiver;
    };
    std::map<uint32_t, std::vector<Sent>> unended;  ///< by stage

    std::byte* place(const Buffer& buffer) {
      Pair& pair = pairs[buffer.pair];
      std::byte* base = scratch.data();
      if (buffer.place == Buffer::Place::kSend)
        base = reinterpret_cast<std::byte*>((pair.in_place ? pair.recv : pair.send).data() +
                                            pair.send_first);
      if (buffer.place == Buffer::Place::kReceive)
        base = reinterpret_cast<std::byte*>(pair.recv.data() + pair.receive_first);
      return base + buffer.offset_bytes;
    }
    /// So that nothing lies outside of the buffers.
    void expect_inside(const std::byte* at, size_t bytes) const {
      const auto within = [&](const auto& of) {
        const auto* begin = reinterpret_cast<const std::byte*>(of.data());
        return at >= begin && at + bytes <= begin + of.size() * sizeof(of[0]);
      };
      ASSERT_TRUE(within(scratch) || std::ranges::any_of(pairs, [&](const Pair& pair) {
                    return within(pair.send) || within(pair.recv);
                  }));
    }
    const Operate& head(uint32_t channel) {
      return std::get<Operate>(execution->schedule()->work(queues[channel].front()));
    }
    void tell(uint32_t stage, scheduler::Schedule::Event event) {
      execution->schedule()->for_each_dependent(stage, event,
                                                [&](uint32_t next) { --awaits[next]; });
    }
    void end(uint32_t stage) {
      ++ended;
      tell(stage, scheduler::Schedule::Event::kReceived);
      tell(stage, scheduler::Schedule::Event::kEnded);
    }
    void received(uint32_t stage, uint32_t place) {
      const auto& own = std::get<Operate>(execution->schedule()->work(stage));
      if (!has_closing(own.collective)) return end(stage);
      for (const Block& block : own.blocks->blocks()) {
        if (block.receiver == place + 1 || (block.source != 0 && block.source != place + 1))
          continue;
        const size_t width = wire_bytes(own.dtype);
        const std::byte* from = this->place(own.send) + block.send_offset * width;
        unended[stage].push_back(
            {from, {from, from + block.elements * width}, own.channel, block.receiver});
      }
      unended.try_emplace(stage);
      tell(stage, scheduler::Schedule::Event::kReceived);
    }
    /// Bytes have come from the only rank that may still have needed what was there.
    void give_up(uint32_t channel, uint8_t source, const std::byte* to, size_t bytes) {
      for (auto& [stage, all_sent] : unended)
        for (Sent& sent : all_sent) {
          if (sent.channel != channel || sent.receiver != source) continue;
          const std::byte* const begin = std::max(to, sent.from);
          const std::byte* const end = std::min(to + bytes, sent.from + sent.bytes.size());
          if (begin < end) std::copy(begin, end, sent.bytes.begin() + (begin - sent.from));
        }
    }
    bool end_oldest() {
      if (unended.empty()) return false;
      const auto [stage, all_sent] = *unended.begin();
      for (const Sent& sent : all_sent)
        EXPECT_EQ(std::memcmp(sent.from, sent.bytes.data(), sent.bytes.size()), 0)
            << "stage " << stage << " sent what a later one has overwritten";
      unended.erase(unended.begin());
      ++ended;
      tell(stage, scheduler::Schedule::Event::kEnded);
      return true;
    }
  };
  using Members = std::vector<uint32_t>;  ///< ranks

  void submit(uint32_t r) {
    Rank& rank = all_[r];
    const scheduler::Schedule& schedule = *rank.execution->schedule();
    for (uint32_t stage = 0; stage < schedule.size(); ++stage) {
      rank.awaits.push_back(schedule.awaits(stage));
      if (const auto* operate = std::get_if<Operate>(&schedule.work(stage)))
        rank.queues[operate->channel].push_back(stage);
      else
        rank.computes.push_back(stage);
    }
    for (uint32_t channel = 0; channel <= plan_->topology.dimensions.size(); ++channel) {
      auto key = rank.coordinates;
      if (channel < key.size())
        key[channel] = 0;
      else
        key.assign(key.size(), 0);
      key.push_back(channel);
      channels_[key].push_back(r);
    }
  }

  bool run_local(Rank& rank) {
    return std::erase_if(rank.computes, [&](uint32_t stage) {
             if (rank.awaits[stage] != 0) return false;
             run_compute(rank, std::get<Compute>(rank.execution->schedule()->work(stage)));
             rank.end(stage);
             return true;
           }) != 0;
  }

  void run_compute(Rank& rank, const Compute& compute) {
    if (compute.kernel == Execution::kTell) {
      const uint64_t hash = rank.execution->hash();
      std::memcpy(rank.scratch.data() + rank.execution->hash_offset(), &hash, sizeof(hash));
    } else if (compute.kernel == Execution::kAgree) {
      for (uint32_t other = 0; other < ranks_; ++other)
        EXPECT_EQ(std::memcmp(rank.scratch.data() + 8 * other, rank.scratch.data(), 8), 0);
    } else {
      const uint32_t pair = rank.execution->pair_of(compute.argument);
      rank.execution->keep(compute.argument,
                           {rank.place({Buffer::Place::kSend, 0, pair}),
                            rank.place({Buffer::Place::kReceive, 0, pair})},
                           rank.scratch.data());
    }
  }

  /// The first operation of a channel, once all of its ranks have come to it.
  bool run_channel(const Members& members) {
    const uint32_t channel = channel_of(members);
    for (const uint32_t r : members) {
      auto& queue = all_[r].queues[channel];
      if (queue.empty() || all_[r].awaits[queue.front()] != 0) return false;
    }
    const Operate& first = all_[members[0]].head(channel);
    for (const uint32_t r : members) {
      const Operate& own = all_[r].head(channel);
      EXPECT_EQ(own.collective, first.collective);
      EXPECT_EQ(own.elements, first.elements);
      EXPECT_EQ(own.op, first.op);
      if (!own.blocks) continue;
      EXPECT_EQ(own.blocks->fingerprint(), first.blocks->fingerprint());
      const auto a = own.blocks->blocks(), b = first.blocks->blocks();
      EXPECT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
        EXPECT_EQ(a[i].elements, b[i].elements);
        EXPECT_EQ(a[i].source, b[i].source);
        EXPECT_EQ(a[i].receiver, b[i].receiver);
      }
    }
    const size_t blocks = first.blocks ? first.blocks->blocks().size() : 1;
    for (size_t i = 0; i < blocks; ++i) run_block(members, channel, i);
    for (uint32_t place = 0; place < members.size(); ++place) {
      Rank& rank = all_[members[place]];
      expect_apart(rank, channel, place);
      const uint32_t stage = rank.queues[channel].front();
      rank.queues[channel].erase(rank.queues[channel].begin());
      rank.received(stage, place);
    }
    return true;
  }
  uint32_t channel_of(const Members& members) const {
    for (const auto& [key, of] : channels_)
      if (&of == &members) return key.back();
    return 0;
  }

  static Block block_of(const Operate& operate, size_t i) {
    return operate.blocks ? operate.blocks->blocks()[i] : Block{.elements = operate.elements};
  }

  void run_block(const Members& members, uint32_t channel, size_t i) {
    const Operate& first = all_[members[0]].head(channel);
    const size_t width = wire_bytes(first.dtype);
    const Block shape = block_of(first, i);
    std::vector<std::byte> result(shape.elements * width);
    for (uint32_t place = 0; place < members.size(); ++place) {
      const Operate& own = all_[members[place]].head(channel);
      const Block block = block_of(own, i);
      if (block.source != 0 && block.source != place + 1) continue;
      const std::byte* from = all_[members[place]].place(own.send) + block.send_offset * width;
      all_[members[place]].expect_inside(from, result.size());
      if (block.source != 0) {
        std::memcpy(result.data(), from, result.size());
      } else {
        for (size_t e = 0; e < shape.elements; ++e) {
          Element sum, value;
          std::memcpy(&sum, result.data() + e * width, width);
          std::memcpy(&value, from + e * width, width);
          sum += value;
          std::memcpy(result.data() + e * width, &sum, width);
        }
      }
    }
    for (uint32_t place = 0; place < members.size(); ++place) {
      const Operate& own = all_[members[place]].head(channel);
      const Block block = block_of(own, i);
      if (block.receiver != 0 && block.receiver != place + 1) continue;
      std::byte* to = all_[members[place]].place(own.receive) + block.receive_offset * width;
      all_[members[place]].expect_inside(to, result.size());
      std::memcpy(to, result.data(), result.size());
      if (block.source != 0) all_[members[place]].give_up(channel, block.source, to, result.size());
    }
  }

  /// A result must not overwrite what may have to be sent again, but for itself.
  static void expect_apart(Rank& rank, uint32_t channel, uint32_t place) {
    const Operate& own = rank.head(channel);
    const size_t width = wire_bytes(own.dtype);
    const size_t blocks = own.blocks ? own.blocks->blocks().size() : 1;
    std::vector<std::pair<size_t, Block>> sent, received;
    for (size_t i = 0; i < blocks; ++i) {
      const Block block = block_of(own, i);
      if (block.source == 0 || block.source == place + 1) sent.emplace_back(i, block);
      if (block.receiver == 0 || block.receiver == place + 1) received.emplace_back(i, block);
    }
    for (const auto& [i, a] : sent)
      for (const auto& [j, b] : received) {
        const std::byte* from = rank.place(own.send) + a.send_offset * width;
        const std::byte* to = rank.place(own.receive) + b.receive_offset * width;
        if (i == j && from == to) continue;
        EXPECT_TRUE(from + a.elements * width <= to || to + b.elements * width <= from);
      }
  }

  const std::shared_ptr<const Plan> plan_;
  const uint32_t ranks_;
  std::vector<Rank> all_;
  std::map<std::vector<uint32_t>, Members> channels_;
};

Element value_of(uint32_t rank, size_t index) {
  return static_cast<Element>(rank * 1'000'003 + index * 7 + 1);
}

/// A plan whose chunks take dimensions at random.
Plan random_plan(const Topology& topology, const std::vector<Request>& requests, Cases& cases) {
  const uint64_t granule = topology.participants() * sizeof(Element);
  std::vector<Chunk> chunks;
  for (uint32_t r = 0; r < requests.size(); ++r)
    for (uint64_t left = (requests[r].bytes + granule - 1) / granule; left > 0;) {
      const uint64_t granules = 1 + cases.below(left);
      left -= granules;
      Way way{.order = baseline_order(topology, requests[r].collective)};
      for (size_t i = way.order.size(); i > 1; --i)
        std::swap(way.order[i - 1], way.order[cases.below(i)]);
      way.in_network = static_cast<uint32_t>(cases.below(16));
      chunks.push_back(make_chunk(topology, r, requests[r].collective, granules * granule, way));
    }
  const Discipline discipline = static_cast<Discipline>(cases.below(3));
  const Timeline timeline = Simulator(topology, requests).run(chunks, discipline);
  return {topology, requests, std::move(chunks), order_of(timeline)};
}

Plan made_plan(const Topology& topology, const std::vector<Request>& requests, Cases& cases) {
  PlanOptions options{.scheduler = static_cast<Scheduler>(cases.below(3)),
                      .chunks = static_cast<uint32_t>(1 + cases.below(12))};
  options.evaluations = 20;
  options.or_baseline = false;
  return plan(topology, requests, options).plan;
}

Topology small_topology(Cases& cases) {
  Topology topology{.name = "small"};
  uint64_t ranks = 1;
  for (uint64_t d = 1 + cases.below(4); d > 0; --d) {
    const uint32_t size = static_cast<uint32_t>(2 + cases.below(4));
    if (ranks * size > kMaxWorkers) break;
    ranks *= size;
    Dimension made = dimension(size == 2 || size == 4 ? DimensionKind::kIna : DimensionKind::kRing,
                               size, 1 + cases.below(9), static_cast<Picos>(cases.below(9'000)));
    topology.dimensions.push_back(made);
  }
  return topology;
}

/// A collective of a plan as its caller has it.
struct Given {
  Collective collective{};
  size_t count = 0;
  bool in_place = false;

  size_t whole(uint32_t ranks) const {
    return count * (collective == Collective::kAllReduce ? 1 : ranks);
  }
  size_t sent(uint32_t ranks) const {
    return collective == Collective::kAllGather ? count : whole(ranks);
  }
  size_t received(uint32_t ranks) const {
    return collective == Collective::kReduceScatter ? count : whole(ranks);
  }
  Request request(uint32_t ranks) const {
    return {.collective = collective, .bytes = whole(ranks) * sizeof(Element)};
  }
};

Given draw(Collective collective, uint64_t ranks, Cases& cases) {
  return {collective, 1 + cases.below(collective == Collective::kAllReduce ? 5 * ranks : 23),
          collective != Collective::kAllToAll && cases.below(2) == 0};
}

/// Elements that rank `r` sends in one of the collectives.
Element sent_by(uint32_t r, size_t pair, size_t index) {
  return value_of(r, index + 1'000 * pair);
}

void fill(Interpreter& all, uint32_t rank, size_t pair, const Given& given, uint32_t ranks) {
  const size_t own =
      given.in_place && given.collective != Collective::kAllReduce ? rank * given.count : 0;
  const bool is_gather = given.collective == Collective::kAllGather;
  all.set_offsets(rank, pair, is_gather ? own : 0, is_gather ? 0 : own);
  for (size_t i = 0; i < given.sent(ranks); ++i)
    all.send(rank, pair)[i + (is_gather ? own : 0)] = sent_by(rank, pair, i);
}

void expect_done(Interpreter& all, uint32_t r, size_t pair, const Given& given, uint32_t ranks) {
  const size_t count = given.count;
  const auto sum_of = [&](size_t index) {
    Element sum = 0;
    for (uint32_t other = 0; other < ranks; ++other) sum += sent_by(other, pair, index);
    return sum;
  };
  const size_t first =
      given.in_place && given.collective == Collective::kReduceScatter ? r * count : 0;
  for (size_t i = 0; i < given.received(ranks); ++i) {
    const auto block = static_cast<uint32_t>(i / count);
    Element wanted = 0;
    switch (given.collective) {
      case Collective::kAllReduce:
        wanted = sum_of(i);
        break;
      case Collective::kReduceScatter:
        wanted = sum_of(r * count + i);
        break;
      case Collective::kAllGather:
        wanted = sent_by(block, pair, i % count);
        break;
      case Collective::kAllToAll:
        wanted = sent_by(block, pair, r * count + i % count);
    }
    ASSERT_EQ(all.recv(r, pair)[first + i], wanted)
        << "rank " << r << ", collective " << pair << ", element " << i;
  }
}

/// Fills, runs, and compares every element of every rank.
void expect_collectives(const Plan& made, const std::vector<Given>& all_given) {
  const auto ranks = static_cast<uint32_t>(made.topology.participants());
  std::vector<Interpreter::PairSize> sizes;
  for (const Given& given : all_given)
    sizes.push_back({given.sent(ranks), given.in_place ? given.whole(ranks) : given.received(ranks),
                     given.in_place});
  Interpreter all(std::make_shared<const Plan>(made), sizes);
  for (uint32_t r = 0; r < ranks; ++r)
    for (size_t pair = 0; pair < all_given.size(); ++pair)
      fill(all, r, pair, all_given[pair], ranks);
  ASSERT_TRUE(all.run()) << "they wait for each other";
  for (uint32_t r = 0; r < ranks; ++r)
    for (size_t pair = 0; pair < all_given.size(); ++pair)
      expect_done(all, r, pair, all_given[pair], ranks);
}

#ifdef INA_SLOW_BUILD
constexpr int kRounds = 20;
#else
constexpr int kRounds = 120;
#endif

TEST(ThemisExecution, AnyPlanIsTheCollective) {
  Cases cases(20260801);
  for (int round = 0; round < 2 * kRounds; ++round) {
    const Topology topology = small_topology(cases);
    const auto ranks = static_cast<uint32_t>(topology.participants());
    const Given given = draw(static_cast<Collective>(round % 4), ranks, cases);
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << name(given.collective) << " of "
                                    << given.count << " elements, " << topology.dimensions.size()
                                    << " dimensions, " << ranks << " ranks");
    expect_collectives(cases.below(3) == 0 ? made_plan(topology, {given.request(ranks)}, cases)
                                           : random_plan(topology, {given.request(ranks)}, cases),
                       {given});
    if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure()) return;
  }
}

TEST(ThemisExecution, SeveralCollectivesInOnePlanAreEachTheirOwn) {
  Cases cases(20260802);
  for (int round = 0; round < kRounds; ++round) {
    const Topology topology = small_topology(cases);
    const auto ranks = static_cast<uint32_t>(topology.participants());
    std::vector<Given> all_given;
    std::vector<Request> requests;
    for (uint64_t n = 2 + cases.below(3); n > 0; --n) {
      all_given.push_back(draw(static_cast<Collective>(cases.below(4)), ranks, cases));
      requests.push_back(all_given.back().request(ranks));
    }
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << requests.size()
                                    << " collectives, " << ranks << " ranks");
    expect_collectives(cases.below(2) == 0 ? made_plan(topology, requests, cases)
                                           : random_plan(topology, requests, cases),
                       all_given);
    if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure()) return;
  }
}

TEST(ThemisExecution, MoreRanksThanASwitchHasMembers) {
  Cases cases(20261208);
  const Topology topology{
      .name = "wide",
      .dimensions = {dimension(DimensionKind::kRing, 13, 1), dimension(DimensionKind::kIna, 2, 3),
                     dimension(DimensionKind::kRing, 5, 2)}};
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter,
                                      Collective::kAllGather, Collective::kAllToAll}) {
    SCOPED_TRACE(name(collective));
    const Given given{collective, 7, false};
    expect_collectives(random_plan(topology, {given.request(130)}, cases), {given});
  }
}

// From five stages on, one takes the scratch memory that another sent from.
TEST(ThemisExecution, AllToAllsOfManyStagesKeepWhatIsStillNeeded) {
  Cases cases(20261128);
  for (int round = 0; round < 8; ++round) {
    const size_t dimensions = 5 + cases.below(2);
    const Topology topology{
        .name = "deep",
        .dimensions = std::vector(dimensions, dimension(DimensionKind::kIna, 2, 1))};
    const auto ranks = static_cast<uint32_t>(topology.participants());
    const Given given = draw(Collective::kAllToAll, ranks, cases);
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << given.count << " elements, "
                                    << dimensions << " dimensions");
    expect_collectives(random_plan(topology, {given.request(ranks)}, cases), {given});
    if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure()) return;
  }
}

TEST(ThemisExecution, NothingIsAgreedUponAlone) {
  Plan empty{.topology = figure5(), .requests = {Request{}}, .chunks = {}, .order = {{}, {}}};
  const auto made = Execution::make(std::make_shared<const Plan>(empty),
                                    {.rank = 5, .slot_bytes = {256, 256, 256}, .elements = {{}}});
  ASSERT_TRUE(made);
  EXPECT_EQ((*made)->schedule()->size(), 3u);
  EXPECT_EQ((*made)->hash_offset(), 40u);
}

TEST(ThemisExecution, PlansThatCannotBeCarriedOutAreRefused) {
  const auto complaint = [](Plan plan) {
    const auto made = Execution::make(std::make_shared<const Plan>(std::move(plan)),
                                      {.rank = 0, .slot_bytes = {256, 256, 256}, .elements = {{}}});
    return made ? "" : made.error().text;
  };
  const Plan good = plan(figure5(), {{.bytes = 4096}}, {.chunks = 4}).plan;
  EXPECT_EQ(complaint(good), "");
  Plan bad = good;
  std::ranges::reverse(bad.order[0]);
  EXPECT_THAT(complaint(bad), HasSubstr("wait for each other in a circle"));
  bad = good;
  bad.requests[0].bytes = 4095;
  EXPECT_THAT(complaint(bad), HasSubstr("4095 bytes are no multiple of 4"));
  bad = good;
  bad.requests[0].bytes = 8192;
  EXPECT_THAT(complaint(bad), HasSubstr("chunks have 4096 bytes of 8192"));
  bad = good;
  bad.requests.push_back(bad.requests[0]);
  EXPECT_THAT(complaint(bad), HasSubstr("2 collectives, of 1 the elements are known"));
  bad = good;
  bad.chunks[2].request = 1;
  EXPECT_THAT(complaint(bad), HasSubstr("a chunk is of none of its collectives"));
  bad = plan({.name = "large",
              .dimensions = {dimension(DimensionKind::kRing, 241, 1),
                             dimension(DimensionKind::kRing, 17, 1)}},
             {{.bytes = 4097 * 4}})
            .plan;
  EXPECT_THAT(complaint(bad), HasSubstr("4097 ranks, of which a job has 4096 at most"));
}

}  // namespace
}  // namespace ina::themis
