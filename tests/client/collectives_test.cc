// Every collective against a naive model, through the public API, with a whole switch over the shm
// port.
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <numeric>

#include "ina/ina.hpp"
#include "tests/client/collective_values.h"
#include "tests/support/client_ranks.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::on_ranks;
using test::TestSwitch;
using test::value_of;
using test::values;

using Counts = std::vector<size_t>;

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

}  // namespace
}  // namespace ina
