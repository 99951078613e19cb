// Every collective against a naive model, through the public API, with a whole switch over the shm
// port.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <bit>
#include <condition_variable>
#include <functional>
#include <latch>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>

#include "ina/ina.hpp"
#include "tests/support/client_ranks.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using namespace std::chrono_literals;
using test::join;
using test::on_joined_ranks;
using test::on_ranks;
using test::TestSwitch;
using testing::AllOf;
using testing::HasSubstr;

using Counts = std::vector<size_t>;

/// Element `i` that `source` has for `receiver`.
template <class T>
T value_of(int source, int receiver, size_t i) {
  return static_cast<T>(
      static_cast<int>(
          (i * 7 + static_cast<size_t>(source) * 13 + static_cast<size_t>(receiver) * 29) % 11) -
      5);
}
template <class T>
std::vector<T> values(int source, int receiver, size_t count) {
  std::vector<T> made(count);
  for (size_t i = 0; i < count; ++i) made[i] = value_of<T>(source, receiver, i);
  return made;
}

template <class T>
T reduced(ina_op op, int world, int receiver, size_t i) {
  T result = value_of<T>(0, receiver, i);
  for (int rank = 1; rank < world; ++rank) {
    const T other = value_of<T>(rank, receiver, i);
    if (op == INA_MIN)
      result = std::min(result, other);
    else if (op == INA_MAX)
      result = std::max(result, other);
    else
      result = static_cast<T>(result + other);
  }
  return op == INA_AVG ? static_cast<T>(result / static_cast<T>(world)) : result;
}

size_t total(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

/// The contents of a call's buffers must be the expected ones.
template <class T>
void expect_equal(const std::vector<T>& got, const std::vector<T>& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    if (!(got[i] == expected[i])) {
      ADD_FAILURE() << what << ": element " << i << " of " << got.size() << " is wrong";
      return;
    }
}

/// All collectives of one element type, once each, with `count` elements a block, or so many that
/// ranks differ.
template <class T>
class Round {
 public:
  Round(Context& context, size_t count, int round)
      : context_(context),
        world_(context.world_size()),
        rank_(context.rank()),
        root_(round % world_),
        count_(count) {
    for (int r = 0; r < world_; ++r)
      counts_.push_back(r % 3 == round % 3 ? 0 : count + static_cast<size_t>(r));
    places_.resize(counts_.size());
    size_t end = 1;  // gaps of one element, and in the other order
    for (size_t r = counts_.size(); r-- > 0; end += counts_[r] + 1) places_[r] = end;
    places_end_ = end;
  }

  void sums(ina_op op) {
    std::vector<T> expected(count_);
    for (size_t i = 0; i < count_; ++i) expected[i] = reduced<T>(op, world_, 0, i);
    const auto send = values<T>(rank_, 0, count_);
    std::vector<T> recv(count_, kGuard);
    context_.reduce<T>(send, recv, root_, op);
    expect_equal(recv, rank_ == root_ ? expected : std::vector<T>(count_, kGuard), "reduce");
    std::vector<T> in_place = send;
    context_.reduce<T>(in_place, in_place, root_, op);
    expect_equal(in_place, rank_ == root_ ? expected : send, "reduce in place");

    const auto blocks = blocks_from_me(Counts(static_cast<size_t>(world_), count_));
    std::vector<T> own(count_);
    for (size_t i = 0; i < count_; ++i) own[i] = reduced<T>(op, world_, rank_, i);
    context_.reduce_scatter<T>(blocks, recv, op);
    expect_equal(recv, own, "reduce-scatter");

    auto uneven = blocks_from_me(counts_);
    const size_t mine = counts_[static_cast<size_t>(rank_)];
    own.resize(mine);
    for (size_t i = 0; i < mine; ++i) own[i] = reduced<T>(op, world_, rank_, i);
    std::vector<T> share(mine, kGuard);
    context_.reduce_scatter<T>(uneven, share, counts_, op);
    expect_equal(share, own, "reduce-scatter, uneven");
    // In place, which must leave the other blocks as they were.
    const size_t first = std::accumulate(counts_.begin(), counts_.begin() + rank_, size_t{0});
    auto all = uneven;
    context_.reduce_scatter<T>(all, std::span(all).subspan(first, mine), counts_, op);
    std::copy(own.begin(), own.end(), uneven.begin() + static_cast<ptrdiff_t>(first));
    expect_equal(all, uneven, "reduce-scatter in place");
  }

  void moves() {
    from_one_to_all();
    all_gather();
    to_and_from_root();
    all_to_all();
    one_to_one();
  }

 private:
  static constexpr T kGuard = static_cast<T>(99);

  /// One block after the other, one for each rank.
  std::vector<T> blocks_from_me(const Counts& counts) const {
    std::vector<T> all;
    for (int to = 0; to < world_; ++to)
      for (const T& value : values<T>(rank_, to, counts[static_cast<size_t>(to)]))
        all.push_back(value);
    return all;
  }
  /// The blocks that all ranks have for `receiver`, at their places.
  std::vector<T> blocks_of_all(int receiver) const {
    std::vector<T> all(places_end_, kGuard);
    for (int from = 0; from < world_; ++from) {
      const auto at = static_cast<size_t>(from);
      std::ranges::copy(values<T>(from, receiver, counts_[at]),
                        all.begin() + static_cast<ptrdiff_t>(places_[at]));
    }
    return all;
  }
  std::vector<T> even_blocks_of_all(int receiver) const {
    std::vector<T> all;
    for (int from = 0; from < world_; ++from)
      for (const T& value : values<T>(from, receiver, count_)) all.push_back(value);
    return all;
  }
  size_t own_count() const { return counts_[static_cast<size_t>(rank_)]; }
  std::span<T> own_block(std::vector<T>& all) const {
    return std::span(all).subspan(places_[static_cast<size_t>(rank_)], own_count());
  }

  void from_one_to_all() {
    auto data = rank_ == root_ ? values<T>(root_, 0, count_) : std::vector<T>(count_, kGuard);
    context_.broadcast<T>(data, root_);
    expect_equal(data, values<T>(root_, 0, count_), "broadcast");
  }

  void all_gather() {
    std::vector<T> recv(count_ * static_cast<size_t>(world_), kGuard);
    context_.all_gather<T>(values<T>(rank_, 0, count_), recv);
    expect_equal(recv, even_blocks_of_all(0), "all-gather");
    std::vector<T> places(places_end_, kGuard);
    context_.all_gather<T>(values<T>(rank_, 0, own_count()), places, counts_, places_);
    expect_equal(places, blocks_of_all(0), "all-gather, uneven");
    std::ranges::fill(places, kGuard);
    std::ranges::copy(values<T>(rank_, 0, own_count()), own_block(places).begin());
    context_.all_gather<T>(own_block(places), places, counts_, places_);
    expect_equal(places, blocks_of_all(0), "all-gather in place");
  }

  void to_and_from_root() {
    const bool root = rank_ == root_;
    std::vector<T> recv(root ? count_ * static_cast<size_t>(world_) : 0, kGuard);
    context_.gather<T>(values<T>(rank_, root_, count_), recv, root_);
    if (root) expect_equal(recv, even_blocks_of_all(root_), "gather");
    std::vector<T> places(root ? places_end_ : 0, kGuard);
    context_.gather<T>(values<T>(rank_, root_, own_count()), places, root_, counts_, places_);
    if (root) expect_equal(places, blocks_of_all(root_), "gather, uneven");
    if (root) {
      std::ranges::fill(places, kGuard);
      std::ranges::copy(values<T>(rank_, root_, own_count()), own_block(places).begin());
      context_.gather<T>(own_block(places), places, root_, counts_, places_);
      expect_equal(places, blocks_of_all(root_), "gather in place");
    } else {
      context_.gather<T>(values<T>(rank_, root_, own_count()), {}, root_, counts_, places_);
    }

    std::vector<T> block(count_, kGuard);
    const Counts even(static_cast<size_t>(world_), count_);
    context_.scatter<T>(root ? blocks_from_me(even) : std::vector<T>(), block, root_);
    expect_equal(block, values<T>(root_, rank_, count_), "scatter");
    block.assign(own_count(), kGuard);
    std::vector<T> sent;
    if (root) {
      sent.assign(places_end_, kGuard);
      for (int to = 0; to < world_; ++to) {
        const auto at = static_cast<size_t>(to);
        std::ranges::copy(values<T>(root_, to, counts_[at]),
                          sent.begin() + static_cast<ptrdiff_t>(places_[at]));
      }
    }
    context_.scatter<T>(sent, block, root_, counts_, places_);
    expect_equal(block, values<T>(root_, rank_, own_count()), "scatter, uneven");
    const auto before = sent;
    context_.scatter<T>(sent, root ? own_block(sent) : std::span(block), root_, counts_, places_);
    expect_equal(sent, before, "scatter in place");
  }

  void all_to_all() {
    const Counts even(static_cast<size_t>(world_), count_);
    std::vector<T> recv(count_ * static_cast<size_t>(world_), kGuard);
    context_.all_to_all<T>(blocks_from_me(even), recv);
    expect_equal(recv, even_blocks_of_all(rank_), "all-to-all");
    // Everybody sends rank d counts_[s] + d elements, or none.
    const auto count = [&](int from, int to) {
      return (from + to) % 4 == 1 ? 0
                                  : counts_[static_cast<size_t>(from)] + static_cast<size_t>(to);
    };
    Counts to(counts_.size()), from(counts_.size());
    std::vector<T> expected;
    for (int other = 0; other < world_; ++other) {
      to[static_cast<size_t>(other)] = count(rank_, other);
      from[static_cast<size_t>(other)] = count(other, rank_);
      for (const T& value : values<T>(other, rank_, count(other, rank_))) expected.push_back(value);
    }
    recv.assign(total(from), kGuard);
    context_.all_to_all<T>(blocks_from_me(to), to, recv, from);
    expect_equal(recv, expected, "all-to-all, uneven");
  }

  void one_to_one() {
    // Rank r sends to r + 1; rank 0 receives nothing where there are more than two.
    std::vector<int> destinations(static_cast<size_t>(world_));
    for (int r = 0; r < world_; ++r) destinations[static_cast<size_t>(r)] = (r + 1) % world_;
    if (world_ > 2) destinations.back() = INA_NOBODY;
    const bool receives = rank_ != 0 || world_ <= 2;
    const int source = (rank_ + world_ - 1) % world_;
    std::vector<T> recv(count_, kGuard);
    context_.permute<T>(values<T>(rank_, 0, count_), recv, destinations);
    expect_equal(recv, receives ? values<T>(source, 0, count_) : std::vector<T>(count_, kGuard),
                 "permute");
    // Sends and receives with a size for each pair.
    const int destination = destinations[static_cast<size_t>(rank_)];
    const auto sent = values<T>(rank_, 1, own_count());
    recv.assign(receives ? counts_[static_cast<size_t>(source)] : 0, kGuard);
    context_.send_receive<T>(destination == INA_NOBODY ? std::span<const T>() : sent, destination,
                             recv, receives ? source : INA_NOBODY);
    if (receives)
      expect_equal(recv, values<T>(source, 1, counts_[static_cast<size_t>(source)]),
                   "send and receive");
  }

  Context& context_;
  const int world_;
  const int rank_;
  const int root_;
  const size_t count_;
  Counts counts_;
  Counts places_;
  size_t places_end_ = 0;
};

/// Bit patterns, which are compared and moved, not added.
template <class T>
T bits(int value) {
  return static_cast<T>(value);
}
template <>
bfloat16 value_of<bfloat16>(int source, int receiver, size_t i) {
  return bits<bfloat16>(
      static_cast<int>((i * 31 + static_cast<size_t>(source * 7 + receiver)) % 65521));
}

struct Shape {
  int world;
  uint32_t lanes;
  uint32_t slot_bytes;
  scheduler::PolicyKind policy;
  Home home;
};

class Collectives : public testing::TestWithParam<Shape> {
 protected:
  static TestSwitch::Options options() {
    const Shape shape = GetParam();
    return {.slots = 256,
            .slot_bytes = shape.slot_bytes,
            .lanes = shape.lanes,
            .conductor = [shape](switchd::ConductorConfig& config) {
              config.aggregator.policy.kind = shape.policy;
              config.rules.home = shape.home;
            }};
  }
};

TEST_P(Collectives, GiveWhatTheModelGives) {
  const Shape shape = GetParam();
  TestSwitch sw(options());
  const size_t row = shape.slot_bytes;
  on_ranks(sw, shape.world, [&](Context& context, int) {
    int round = 0;
    for (const size_t count : {size_t{0}, size_t{1}, row / 4 - 1, row / 4, row / 4 + 1,
                               16 * row / 4 + 3, size_t{10'007}}) {
      SCOPED_TRACE("count " + std::to_string(count));
      Round<float> floats(context, count, round);
      floats.sums(INA_SUM);
      floats.moves();
      Round<int32_t>(context, count, round + 1).sums(INA_MAX);
      Round<int8_t> bytes(context, count, round + 2);
      bytes.sums(INA_MIN);
      bytes.moves();
      ++round;
    }
    for (const size_t count : {size_t{1}, row / 8 + 1, size_t{3000}}) {
      SCOPED_TRACE("count " + std::to_string(count));
      Round<double> doubles(context, count, round);
      doubles.sums(INA_AVG);
      doubles.moves();
      Round<int64_t> wide(context, count, round + 1);
      wide.sums(INA_SUM);
      wide.moves();
      Round<bfloat16>(context, count, round + 2).moves();
      ++round;
    }
    context.barrier();
  });
  const auto status = sw.status();
  EXPECT_EQ(status["aggregator"]["slots_used"], 0);
  EXPECT_EQ(status["jobs"].size(), 0u);
}

using scheduler::PolicyKind;
INSTANTIATE_TEST_SUITE_P(Shapes, Collectives,
                         testing::Values(Shape{1, 1, 1024, PolicyKind::kEsa, Home::kWorkers},
                                         Shape{2, 1, 256, PolicyKind::kStatic, Home::kWorkers},
                                         Shape{3, 2, 1024, PolicyKind::kEsa, Home::kWorkers},
                                         Shape{5, 1, 1024, PolicyKind::kFcfs, Home::kSpill},
                                         Shape{8, 2, 1024, PolicyKind::kEsa, Home::kSpill},
                                         Shape{8, 1, 2048, PolicyKind::kStatic, Home::kSpill}),
                         [](const auto& param_info) {
                           const Shape& shape = param_info.param;
                           return "Workers" + std::to_string(shape.world) + "Lanes" +
                                  std::to_string(shape.lanes) + "Slot" +
                                  std::to_string(shape.slot_bytes) +
                                  std::string(scheduler::traits(shape.policy).hashed ? "Hashed"
                                                                                     : "Static") +
                                  (shape.home == Home::kWorkers ? "HomeWorkers" : "HomeSpill");
                         });

TEST(CollectivesLarge, SomeMebibytes) {
#ifdef INA_SLOW_BUILD
  constexpr size_t kCount = 100'003;
#else
  constexpr size_t kCount = 700'001;
#endif
  TestSwitch sw({.slots = 512, .slot_bytes = 8192, .slots_per_job = 256});
  on_ranks(sw, 3, [](Context& context, int) {
    Round<float> round(context, kCount, 1);
    round.sums(INA_SUM);
    round.moves();
  });
}

// ---- reproducible

/// Values of all sizes, whose sum in float32 depends on the order; with some NaN and Inf.
std::vector<float> uneven_values(int rank, size_t count) {
  std::vector<float> made(count);
  uint32_t state = static_cast<uint32_t>(rank) + 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    made[i] = std::bit_cast<float>((state & 0x807fffff) | (110 + (state >> 9) % 30) << 23);
  }
  if (count > 5000) made[4999] = std::numeric_limits<float>::infinity();
  if (count > 5000 && rank == 1) made[count - 3] = std::numeric_limits<float>::quiet_NaN();
  return made;
}

TEST(CollectivesReproducible, SharesHaveTheBitsOfAnAllReduce) {
  TestSwitch sw({.slots = 512, .slot_bytes = 1024, .slots_per_job = 64});
  on_ranks(
      sw, 3,
      [](Context& context, int rank) {
        const auto expect_bits = [](std::span<const float> got, std::span<const float> expected) {
          ASSERT_EQ(got.size(), expected.size());
          for (size_t i = 0; i < got.size(); ++i)
            ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i])) << i;
        };
        // Shares that begin and end within blocks of 256 and within chunks; and none.
        const std::vector<Counts> all_counts = {
            {1, 0, 2}, {300, 255, 257}, {16'384, 1, 20'000}, {40'001, 99'999, 60'000}};
        for (const Counts& counts : all_counts)
          for (const ina_op op : {INA_SUM, INA_AVG, INA_PROD}) {
            const auto send = uneven_values(rank, total(counts));
            std::vector<float> whole(send.size());
            context.allreduce<float>(send, whole, op);
            std::vector<float> share(counts[static_cast<size_t>(rank)]);
            context.reduce_scatter<float>(send, share, counts, op);
            const size_t first = std::accumulate(counts.begin(), counts.begin() + rank, size_t{0});
            expect_bits(share, std::span(whole).subspan(first, share.size()));
            std::vector<float> at_root(rank == 1 ? send.size() : 0);
            const ina_stats before = context.stats();
            context.reduce<float>(send, at_root, 1, op);
            if (rank == 1) expect_bits(at_root, whole);
            if (rank != 1 && send.size() > 100'000) {
              // For a product a rank gets the others' contributions to its share.
              const size_t most = op == INA_PROD ? sizeof(float) * send.size() : send.size();
              EXPECT_LT(context.stats().bytes_received - before.bytes_received, most)
                  << "sums that were for another rank";
            }
            const size_t third = send.size() / 3;
            std::vector<float> even(third);
            context.reduce_scatter<float>(std::span(send).first(3 * third), even, op);
            // Its blocks' exponents are the same, up to the end.
            if (send.size() == 3 * third)
              expect_bits(even, std::span(whole).subspan(static_cast<size_t>(rank) * third, third));
          }
      },
      [](ina_config& config) { config.numeric = INA_NUMERIC_REPRODUCIBLE; });
}

// ---- asynchronous

TEST(CollectivesAsync, AllKindsInFlightCompleteInAnyOrderOfWaiting) {
  constexpr int kWorld = 3;
  constexpr size_t kCount = 5000;
  TestSwitch sw;
  on_ranks(sw, kWorld, [&](Context& context, int rank) {
    for (int repeat = 0; repeat < 5; ++repeat) {
      const auto send = values<int32_t>(rank, 0, kCount * kWorld);
      const auto block = values<int32_t>(rank, 0, kCount);
      const std::span<const int32_t> all(send), one(block);
      std::vector<std::vector<int32_t>> recv(9, std::vector<int32_t>(kCount * kWorld));
      const Counts counts(kWorld, kCount);
      const std::vector<int> around = {1, 2, 0};
      std::vector<int32_t> data = rank == 1 ? block : std::vector<int32_t>(kCount);
      const auto part = [&](size_t n) { return std::span(recv[n]).first(block.size()); };
      std::vector<Request> requests;
      requests.push_back(context.all_to_all_async<int32_t>(all, counts, recv[0], counts));
      requests.push_back(context.reduce_async<int32_t>(one, part(1), 2));
      requests.push_back(context.all_gather_async<int32_t>(one, recv[2]));
      requests.push_back(context.allreduce_async<int32_t>(one, part(3)));
      requests.push_back(context.reduce_scatter_async<int32_t>(all, part(4)));
      requests.push_back(
          context.send_receive_async<int32_t>(one, (rank + 1) % 3, part(5), (rank + 2) % 3));
      requests.push_back(context.gather_async<int32_t>(one, recv[6], 0));
      requests.push_back(context.broadcast_async<int32_t>(data, 1));
      requests.push_back(context.permute_async<int32_t>(one, part(7), around));
      requests.push_back(context.scatter_async<int32_t>(all, part(8), 2));
      while (!requests.empty()) {
        requests.back().wait();
        requests.pop_back();
      }
      for (size_t i = 0; i < kCount; ++i) {
        int32_t sum = 0;
        for (int r = 0; r < kWorld; ++r) {
          const auto at = static_cast<size_t>(r) * kCount + i;
          const auto mine = static_cast<size_t>(rank) * kCount + i;
          ASSERT_EQ(recv[0][at], value_of<int32_t>(r, 0, mine));
          ASSERT_EQ(recv[2][at], value_of<int32_t>(r, 0, i));
          if (rank == 0) {
            ASSERT_EQ(recv[6][at], value_of<int32_t>(r, 0, i));
          }
          sum += value_of<int32_t>(r, 0, i);
        }
        if (rank == 2) {
          ASSERT_EQ(recv[1][i], sum);
        }
        ASSERT_EQ(recv[3][i], sum);
        ASSERT_EQ(recv[5][i], value_of<int32_t>((rank + 2) % 3, 0, i));
        ASSERT_EQ(data[i], value_of<int32_t>(1, 0, i));
        ASSERT_EQ(recv[7][i], recv[5][i]);
        ASSERT_EQ(recv[8][i], value_of<int32_t>(2, 0, static_cast<size_t>(rank) * kCount + i));
      }
    }
    EXPECT_EQ(context.stats().operations, 50u) << "the exchange of counts is no operation";
  });
}

TEST(CollectivesAsync, ABarrierCompletesWhenTheLastRankHasCalled) {
  constexpr int kWorld = 3;
  TestSwitch sw;
  std::latch tested(kWorld - 1);
  on_ranks(sw, kWorld, [&](Context& context, int rank) {
    Request barrier(nullptr, context.get());
    if (rank == kWorld - 1) {
      tested.wait();
      barrier = context.barrier_async();
    } else {
      barrier = context.barrier_async();
      EXPECT_FALSE(barrier.test());
      tested.count_down();
    }
    barrier.wait();
    // Among others, and waited for in another order.
    std::vector<int32_t> data(1000, rank);
    Request before = context.allreduce_async<int32_t>(std::span(data));
    barrier = context.barrier_async();
    Request after = context.barrier_async();
    after.wait();
    barrier.wait();
    before.wait();
    EXPECT_EQ(data.back(), 3);
    EXPECT_EQ(ina_barrier_async(context.get(), nullptr), INA_ERR_INVALID);
    EXPECT_THAT(ina_last_error(context.get()), HasSubstr("ina_barrier_async: request is NULL"));
  });
}

TEST(CollectivesAsync, GroupsAndCoalescingGoOn) {
  TestSwitch sw;
  on_ranks(
      sw, 2,
      [](Context& context, int rank) {
        std::vector<int32_t> small(10, rank + 1), gathered(20);
        Request first = context.allreduce_async<int32_t>(std::span(small));
        // Collected operations go first.
        context.all_gather<int32_t>(std::vector<int32_t>(10, rank), gathered);
        first.wait();
        EXPECT_EQ(small[9], 3);
        EXPECT_EQ(gathered[10], 1);
        Group group(context);
        Request sum = context.allreduce_async<int32_t>(std::span(small));
        Request all = context.all_gather_async<int32_t>(std::span<const int32_t>(small).first(5),
                                                        std::span(gathered).first(10));
        EXPECT_EQ(ina_all_gather(context.get(), small.data(), gathered.data(), 1, INA_INT32, 0),
                  INA_ERR_INVALID);
        EXPECT_THAT(ina_last_error(context.get()), HasSubstr("ina_all_gather: a group is open"));
        group.end();
        sum.wait();
        all.wait();
        EXPECT_EQ(small[0], 6);
        EXPECT_EQ(gathered[9], 3);
      },
      [](ina_config& config) { config.coalesce_bytes = 4096; });
}

// ---- completion that nobody waits for

/// Callbacks that have come.
class Heard {
 public:
  static void callback(void* user, int status) {
    auto& heard = *static_cast<Heard*>(user);
    const std::lock_guard lock(heard.mutex_);
    heard.statuses_.push_back(status);
    heard.thread_ = std::this_thread::get_id();
    heard.more_.notify_all();
  }
  std::vector<int> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    more_.wait_for(lock, 20s, [&] { return statuses_.size() >= count; });
    return statuses_;
  }
  std::thread::id thread() const { return thread_; }

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<int> statuses_;
  std::thread::id thread_;
};

TEST(CollectivesCompletion, CallbacksComeOnTheLibrarysThread) {
  TestSwitch sw;
  on_ranks(sw, 2, [](Context& context, int rank) {
    Heard heard;
    std::vector<std::vector<int32_t>> data(20, std::vector<int32_t>(30'000, rank + 1));
    std::vector<std::vector<int32_t>> all(20, std::vector<int32_t>(60'000));
    for (size_t n = 0; n < data.size(); ++n) {
      context.allreduce_async<int32_t>(std::span(data[n])).set_callback(Heard::callback, &heard);
      context.all_gather_async<int32_t>(data[n], all[n]).set_callback(Heard::callback, &heard);
    }
    EXPECT_EQ(heard.wait_for(40), std::vector<int>(40, INA_OK));
    EXPECT_NE(heard.thread(), std::this_thread::get_id());
    for (const auto& sum : data) EXPECT_EQ(sum.back(), 3);
    // One that is complete already.
    Request done = context.allreduce_async<int32_t>(std::span(data[0]));
    for (int i = 0; i < 20'000 && context.stats().operations < 41; ++i) ::usleep(1000);
    done.set_callback(Heard::callback, &heard);
    EXPECT_EQ(heard.wait_for(41).size(), 41u);
  });
}

TEST(CollectivesCompletion, ACallbackStartsTheNextOperation) {
  TestSwitch sw;
  struct Chain {
    Context* context;
    std::vector<int32_t> data;
    int left;
    Heard heard;
    static void next(void* user, int status) {
      auto& chain = *static_cast<Chain*>(user);
      if (status != INA_OK || chain.left-- == 0) return Heard::callback(&chain.heard, status);
      try {
        chain.context->broadcast_async<int32_t>(chain.data, 0).set_callback(next, user);
      } catch (const std::exception& e) {
        ADD_FAILURE() << e.what();
      }
    }
  };
  on_ranks(sw, 2, [](Context& context, int rank) {
    Chain chain{&context, std::vector<int32_t>(1000, rank), 50, {}};
    Chain::next(&chain, INA_OK);
    EXPECT_EQ(chain.heard.wait_for(1), std::vector<int>{INA_OK});
    EXPECT_EQ(context.stats().operations, 50u);
    EXPECT_EQ(chain.data[999], 0);
  });
}

TEST(CollectivesCompletion, EachCallbackComesOnceWhenTheJobEnds) {
  TestSwitch sw;
  Heard heard[2];
  on_joined_ranks(sw, 2, [&](Context& context, int rank) {
    std::vector<int32_t> own(2000);
    if (rank == 0)
      context.allreduce_async<int32_t>(own).set_callback(Heard::callback, &heard[0]);
    else
      context.broadcast_async<int32_t>(own, 0).set_callback(Heard::callback, &heard[1]);
    EXPECT_EQ(heard[rank].wait_for(1), std::vector<int>{INA_ERR_MISMATCH});
    EXPECT_THAT(ina_last_error(context.get()), HasSubstr("broadcast of 2000 int32, root 0"));
  });
}

TEST(CollectivesCompletion, ACallbackComesWhenFinalizeGivesUp) {
  TestSwitch sw;
  Heard given_up;
  std::latch gave_up(1);
  on_joined_ranks(sw, 2, [&](Context& context, int rank) {
    if (rank == 1) return gave_up.wait();  // it never calls
    std::vector<int32_t> data(2000);
    context.allreduce_async<int32_t>(std::span(data)).set_callback(Heard::callback, &given_up);
    EXPECT_THROW(context.finalize(1s), Exception);
    gave_up.count_down();
    const auto statuses = given_up.wait_for(1);
    ASSERT_EQ(statuses.size(), 1u);
    EXPECT_NE(statuses[0], INA_OK);
  });
}

TEST(CollectivesCompletion, ADescriptorTellsEventLoops) {
  TestSwitch sw;
  on_ranks(sw, 2, [](Context& context, int rank) {
    const int fd = context.completion_fd();
    EXPECT_EQ(context.completion_fd(), fd);
    std::vector<int32_t> data(100'000, rank + 1);
    for (int n = 0; n < 20; ++n) {
      Request request = context.reduce_async<int32_t>(data, data, 1);
      while (!request.test()) {
        pollfd wait{fd, POLLIN, 0};
        ASSERT_EQ(::poll(&wait, 1, 20'000), 1) << "nobody was told";
        uint64_t count;
        ASSERT_EQ(::read(fd, &count, sizeof(count)), ssize_t{sizeof(count)});
      }
    }
  });
}

// ---- errors

struct Outcome {
  int status = INA_OK;
  std::string text;
};

/// The outcomes of `call(context, rank)` at each of two ranks.
std::vector<Outcome> outcomes(const std::function<int(ina_context*, int)>& call, int world = 2) {
  TestSwitch sw;
  std::vector<Outcome> outcomes(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      try {
        Context context = join(sw, rank, world);
        outcome.status = call(context.get(), rank);
        if (outcome.status != INA_OK) outcome.text = ina_last_error(context.get());
      } catch (const Exception& e) {  // others may disagree before this one has come
        outcome = {e.status(), e.what()};
      }
    });
  for (auto& thread : threads) thread.join();
  return outcomes;
}

TEST(CollectivesErrors, RanksThatDisagreeAllHearOfBothSides) {
  int32_t send[4000] = {}, recv[2][4000] = {};
  const size_t some[] = {3, 4, 5}, others[] = {4, 3, 5};
  const int around[] = {1, 2, 0}, back[] = {2, 0, 1};
  using Call = std::function<int(ina_context*, int)>;
  const auto at = [&](int rank) { return recv[rank == 1]; };
  const struct {
    const char* what;
    Call call;
    std::string one, other;
  } cases[] = {
      {"roots",
       [&](ina_context* c, int r) {
         return ina_broadcast(c, send, at(r), 1000, INA_INT32, r == 1, 0);
       },
       "broadcast of 1000 int32, root 0", "broadcast of 1000 int32, root 1"},
      {"roots of a sum",
       [&](ina_context* c, int r) {
         return ina_reduce(c, send, at(r), 1000, INA_INT32, INA_SUM, r == 1 ? 2 : 0, 0);
       },
       "reduce of 1000 int32 sum, root 0", "reduce of 1000 int32 sum, root 2"},
      {"collectives",
       [&](ina_context* c, int r) {
         return r == 1 ? ina_all_gather(c, send, recv[1], 20, INA_INT32, 0)
                       : ina_allreduce(c, send, recv[0], 60, INA_INT32, INA_SUM, 0);
       },
       "all-gather of 60 int32", "allreduce of 60 int32 sum"},
      {"data types",
       [&](ina_context* c, int r) {
         return ina_all_gather(c, send, at(r), 100, r == 1 ? INA_INT32 : INA_FLOAT32, 0);
       },
       "all-gather of 300 int32", "all-gather of 300 float32"},
      {"operations",
       [&](ina_context* c, int r) {
         return ina_reduce_scatter_block(c, send, at(r), 100, INA_INT32, r == 1 ? INA_MAX : INA_MIN,
                                         0);
       },
       "reduce-scatter of 300 int32 max", "reduce-scatter of 300 int32 min"},
      {"counts",
       [&](ina_context* c, int r) {
         return ina_all_gatherv(c, send, at(r), r == 1 ? some : others, nullptr, INA_INT32, 0);
       },
       "all-gather of 12 int32, counts ", "rank 1 started operation 0: all-gather of 12 int32"},
      {"shares",
       [&](ina_context* c, int r) {
         return ina_reduce_scatter(c, send, at(r), r == 1 ? some : others, INA_INT32, INA_SUM, 0);
       },
       "reduce-scatter of 12 int32 sum, counts ", "rank 1 started operation 0: reduce-scatter"},
      {"counts of a gather",
       [&](ina_context* c, int r) {
         return ina_gatherv(c, send, at(r), r == 1 ? some : others, nullptr, INA_INT32, 2, 0);
       },
       "gather of ", "rank 1 started operation 0: gather of "},
      {"roots of a gather",
       [&](ina_context* c, int r) {
         return ina_gather(c, send, at(r), 10, INA_INT32, r == 1 ? 2 : 0, 0);
       },
       "gather of 20 int32, root 0", "rank 1 started operation 0: gather of 20 int32, root 2"},
      {"counts of a scatter",
       [&](ina_context* c, int r) {
         return ina_scatterv(c, send, at(r), r == 1 ? some : others, nullptr, INA_INT32, 2, 0);
       },
       "scatter of ", "rank 1 started operation 0: scatter of "},
      {"roots of a scatter",
       [&](ina_context* c, int r) {
         return ina_scatter(c, send, at(r), 10, INA_INT32, r == 1 ? 2 : 0, 0);
       },
       "scatter of 20 int32, root 0", "rank 1 started operation 0: scatter of 20 int32, root 2"},
      {"a count alone",
       [&](ina_context* c, int r) {
         return ina_reduce(c, send, at(r), r == 1 ? 999 : 1000, INA_INT32, INA_SUM, 0, 0);
       },
       "reduce of 1000 int32 sum", "rank 1 started operation 0: reduce of 999 int32 sum"},
      {"the order of two operations",
       [&](ina_context* c, int r) {
         ina_request *first = nullptr, *second = nullptr;
         const auto gather = [&](ina_request** request) {
           return ina_all_gather_async(c, send, at(r), 20, INA_INT32, request);
         };
         const auto reduce = [&](ina_request** request) {
           return ina_reduce_async(c, send, at(r) + 100, 60, INA_INT32, INA_SUM, 0, request);
         };
         if (const int status = r == 1 ? reduce(&first) : gather(&first)) return status;
         if (const int status = r == 1 ? gather(&second) : reduce(&second)) return status;
         const int status = ina_wait(first, 0);
         return status == INA_OK ? ina_wait(second, 0) : status;
       },
       "all-gather of 60 int32", "rank 1 started operation 0: reduce of 60 int32 sum, root 0"},
      {"destinations",
       [&](ina_context* c, int r) {
         return ina_permute(c, send, at(r), 10, INA_INT32, r == 1 ? around : back, 0);
       },
       "permute of 30 int32, counts ", "rank 1 started operation 0: permute of 30"},
      {"an exchange and another operation",
       [&](ina_context* c, int r) {
         return r == 1
                    ? ina_all_to_allv(c, send, recv[1], some, nullptr, some, nullptr, INA_INT32, 0)
                    : ina_barrier(c, 0);
       },
       "all-to-all with counts by rank", "barrier"},
      {"counts of an all-to-all",
       [&](ina_context* c, int r) {
         // Rank r receives r + 3 of each, but rank 1 sends 9 to rank 2.
         const size_t received[3][3] = {{3, 3, 3}, {4, 4, 4}, {5, 5, 5}};
         const size_t wrong[] = {3, 4, 9};
         return ina_all_to_allv(c, send, at(r), r == 1 ? wrong : some, nullptr, received[r],
                                nullptr, INA_INT32, 0);
       },
       "rank 1 sends 9 elements to rank 2", "which receives 5 elements from it"},
      {"data types of an all-to-all",
       [&](ina_context* c, int r) {
         const size_t twos[] = {2, 2, 2};
         return ina_all_to_allv(c, send, at(r), twos, nullptr, twos, nullptr,
                                r == 1 ? INA_INT32 : INA_FLOAT32, 0);
       },
       "all-to-all of 12 int32", "all-to-all of 12 float32"},
      {"partners",
       [&](ina_context* c, int r) {
         return ina_send_receive(c, send, at(r), r == 0 ? 5 : 0, r == 0 ? 1 : INA_NOBODY, 5,
                                 r == 1 ? 2 : INA_NOBODY, INA_INT32, 0);
       },
       "rank 0 sends to rank 1", "which receives from rank 2"},
      {"a receiver alone",
       [&](ina_context* c, int r) {
         return ina_send_receive(c, send, at(r), 0, INA_NOBODY, 5, r == 1 ? 2 : INA_NOBODY,
                                 INA_INT32, 0);
       },
       "rank 1 receives from rank 2", "which sends to nobody"},
      {"sizes of a pair",
       [&](ina_context* c, int r) {
         return ina_send_receive(c, send, at(r), 5, r == 0 ? 1 : INA_NOBODY, 4,
                                 r == 1 ? 0 : INA_NOBODY, INA_INT32, 0);
       },
       "rank 0 sends 5 elements to rank 1", "which receives 4 elements from it"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    for (const Outcome& outcome : outcomes(c.call, 3)) {
      EXPECT_EQ(outcome.status, INA_ERR_MISMATCH) << outcome.text;
      EXPECT_THAT(outcome.text, AllOf(HasSubstr(c.one), HasSubstr(c.other)));
    }
  }
}

TEST(CollectivesErrors, WrongArgumentsAreNamedAndChangeNothing) {
  const auto texts = outcomes([](ina_context* c, int rank) {
    int32_t send[100] = {}, recv[100] = {};
    ina_request* request = nullptr;
    const auto expect = [&](int status, const std::string& text, int wanted = INA_ERR_INVALID) {
      EXPECT_EQ(status, wanted) << text;
      EXPECT_EQ(std::string(ina_last_error(c)).substr(0, text.size()), text);
    };
    const size_t two[] = {2, 2}, huge[] = {2, SIZE_MAX}, apart[] = {0, 10}, same[] = {4, 5};
    const int pair[] = {1, 0}, both[] = {1, 1}, wrong[] = {0, 7};
    expect(ina_reduce(c, send, recv, 9, INA_INT32, INA_SUM, 2, 0),
           "ina_reduce: root 2 is not a rank of this job of 2");
    expect(ina_reduce(c, send, recv, 9, INA_INT32, INA_AVG, 0, 0),
           "ina_reduce: avg of int32 is not defined");
    expect(ina_reduce(c, send, recv, 9, INA_INT32, static_cast<ina_op>(77), 0, 0),
           "ina_reduce: op 77 is no ina_op");
    expect(ina_broadcast(c, send, recv, 9, static_cast<ina_dtype>(88), 0, 0),
           "ina_broadcast: dtype 88 is no ina_dtype");
    expect(ina_broadcast(c, send, nullptr, 9, INA_INT32, 0, 0), "ina_broadcast: recv is NULL");
    expect(ina_broadcast(c, send, send + 1, 9, INA_INT32, rank, 0),
           "ina_broadcast: send and recv overlap without being the same buffer");
    expect(ina_broadcast_async(c, send, recv, 9, INA_INT32, 0, nullptr),
           "ina_broadcast_async: request is NULL");
    expect(ina_all_gatherv(c, send, recv, nullptr, nullptr, INA_INT32, 0),
           "ina_all_gatherv: counts is NULL");
    expect(ina_all_gatherv_async(c, send, recv, huge, nullptr, INA_INT32, &request),
           "ina_all_gatherv_async: count 18446744073709551615 of rank 1 is too large");
    expect(ina_all_gatherv(c, send, recv, two, huge, INA_INT32, 0),
           "ina_all_gatherv: displacement 18446744073709551615 of rank 1 exceeds");
    expect(ina_all_gatherv(c, send, recv, two, same, INA_INT32, 0),
           "ina_all_gatherv: the blocks of ranks 0 and 1 overlap in recv");
    expect(ina_all_gather(c, send + (rank == 0 ? 1 : 0), send, 9, INA_INT32, 0),
           "ina_all_gather: send overlaps with recv; in place");
    expect(ina_all_gather(c, nullptr, recv, 9, INA_INT32, 0), "ina_all_gather: send is NULL");
    // Where MPI would have it, which is another rank's block here.
    expect(ina_reduce_scatter_block(c, send, rank == 0 ? send + 9 : send, 9, INA_INT32, INA_SUM, 0),
           "ina_reduce_scatter_block: recv overlaps with send; in place");
    expect(ina_all_to_all(c, send, send, 9, INA_INT32, 0),
           "ina_all_to_all: send and recv overlap; ");
    const size_t three[] = {3, 3};
    expect(ina_all_to_allv(c, send, recv, two, nullptr, three, apart, INA_INT32, 0),
           "ina_all_to_allv: this rank sends itself send_counts[" + std::to_string(rank) +
               "] = 2 elements and receives recv_counts[" + std::to_string(rank) + "] = 3");
    expect(ina_permute(c, send, recv, 9, INA_INT32, nullptr, 0),
           "ina_permute: destinations is NULL");
    expect(ina_permute(c, send, recv, 9, INA_INT32, both, 0),
           "ina_permute: destinations[1] is 1, and so is destinations[0]");
    expect(ina_permute(c, send, recv, 9, INA_INT32, wrong, 0),
           "ina_permute: destinations[1] is 7, which is neither a rank of this job of 2 nor");
    expect(ina_permute(c, send, send, 9, INA_INT32, pair, 0),
           "ina_permute: send and recv overlap; ");
    expect(ina_send_receive(c, send, recv, 9, 5, 9, INA_NOBODY, INA_INT32, 0),
           "ina_send_receive: destination 5 is neither a rank of this job of 2 nor INA_NOBODY");
    expect(ina_send_receive(c, send, recv, 9, rank, 9, 1 - rank, INA_INT32, 0),
           "ina_send_receive: rank " + std::to_string(rank) + " is its own destination or source");
    EXPECT_EQ(ina_request_set_callback(nullptr, Heard::callback, nullptr), INA_ERR_INVALID);
    expect(ina_completion_fd(c, nullptr), "ina_completion_fd: fd is NULL");
    // The job goes on.
    return ina_all_gather(c, send, recv, 9, INA_INT32, 0);
  });
  for (const Outcome& outcome : texts) EXPECT_EQ(outcome.status, INA_OK) << outcome.text;
}

TEST(CollectivesMemory, WhatAllReceiveGoesToResultBuffers) {
  constexpr size_t kBlock = 1600;  // not of whole fragments
  TestSwitch sw;
  on_ranks(sw, 3, [](Context& context, int rank) {
    const auto results = context.alloc_result<int32_t>(3 * kBlock);
    const std::span recv(const_cast<int32_t*>(results.data()), results.size());
    for (int round = 0; round < 3; ++round) {
      context.all_gather<int32_t>(values<int32_t>(rank, round, kBlock), recv);
      for (int r = 0; r < 3; ++r)
        for (size_t i = 0; i < kBlock; ++i)
          ASSERT_EQ(results[static_cast<size_t>(r) * kBlock + i], value_of<int32_t>(r, round, i));
      context.barrier();
      const auto send = values<int32_t>(2, 7 + round, 1000);
      ASSERT_EQ(
          ina_broadcast(context.get(), send.data(), recv.data() + 64, send.size(), INA_INT32, 1, 0),
          INA_OK);
      for (size_t i = 0; i < send.size(); ++i) ASSERT_EQ(results[64 + i], send[i]);
      context.barrier();
    }
    // Those of which each rank receives something else need memory of their own.
    const std::vector<int32_t> send(3000);
    const auto expect = [&](int status, int wanted, const char* text) {
      EXPECT_EQ(status, wanted);
      EXPECT_THAT(ina_last_error(context.get()), HasSubstr(text));
    };
    expect(ina_all_to_all(context.get(), send.data(), recv.data(), 100, INA_INT32, 0),
           INA_ERR_UNSUPPORTED,
           "ina_all_to_all: recv lies in a result buffer, to which the switch");
    expect(ina_all_gather(context.get(), send.data(), recv.data(), 100, INA_INT32, 0),
           INA_ERR_INVALID, "a block is received at byte 400 of a result buffer");
    expect(ina_broadcast(context.get(), send.data(), recv.data() + 1, 10, INA_INT32, 0, 0),
           INA_ERR_INVALID, "a block is received at byte 4 of a result buffer");
    expect(ina_broadcast(context.get(), send.data(), recv.data() + 64 * 70, 2000, INA_INT32, 0, 0),
           INA_ERR_INVALID, "recv reaches beyond its result buffer of 19200 bytes");
  });
}

TEST(CollectivesMemory, RegisteredMemoryIsReadWhereItLies) {
  TestSwitch sw;
  on_ranks(sw, 2, [](Context& context, int rank) {
    auto send = context.alloc<int32_t>(50'000);
    std::ranges::fill(send, rank + 1);
    std::vector<int32_t> recv(100'000), sums(25'000);
    context.all_gather<int32_t>(std::span<const int32_t>(send.data(), send.size()), recv);
    EXPECT_EQ(recv.front(), 1);
    EXPECT_EQ(recv.back(), 2);
    context.reduce_scatter<int32_t>(std::span<const int32_t>(send.data(), send.size()), sums);
    EXPECT_EQ(sums.back(), 3);
    Request request =
        context.all_gather_async<int32_t>(std::span<const int32_t>(send.data(), send.size()), recv);
    request.wait();
  });
}

}  // namespace
}  // namespace ina
