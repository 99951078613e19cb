// Wrong arguments of every collective of ina.h: each is INA_ERR_INVALID with a text that names
// function and argument, before anything is done, and the job goes on. Right ones are taken.
#include <gtest/gtest.h>

#include <array>
#include <climits>
#include <functional>

#include "ina/ina.h"
#include "tests/client/arguments.h"
#include "tests/support/read_only_memory.h"

namespace ina {
namespace {

using test::Arguments;
using test::collectives;
using test::Function;
using test::kCalls;
using test::kCount;
using test::kCounted;
using test::kCounts;
using test::kDestinations;
using test::kHierarchy;
using test::kHuge;
using test::kOneCount;
using test::kOp;
using test::kPair;
using test::kPlaces;
using test::kRanks;
using test::kRoot;
using test::no_value;
using test::Rank;
using test::Values;

ina_hierarchical_call call_of(const Values& v) {
  return {v.collective, v.send, v.recv, v.count, v.dtype, v.op};
}

#define INA_UNPACK(...) __VA_ARGS__
#define INA_CASE(NAME, HAS, HANDLE, ARGUMENTS)                                            \
  Function {                                                                              \
#NAME, HAS,                                                                             \
        [](const Values& v) { return NAME(v.HANDLE, INA_UNPACK ARGUMENTS, v.timeout_us); }, \
        [](const Values& v) { return NAME##_async(v.HANDLE, INA_UNPACK ARGUMENTS, v.request); } \
  }

}  // namespace

std::vector<Function> test::collectives() {
  return {
      INA_CASE(ina_allreduce, kOp | kOneCount, context, (v.send, v.recv, v.count, v.dtype, v.op)),
      INA_CASE(ina_reduce, kOp | kOneCount | kRoot, context,
               (v.send, v.recv, v.count, v.dtype, v.op, v.root)),
      INA_CASE(ina_broadcast, kOneCount | kRoot, context,
               (v.send, v.recv, v.count, v.dtype, v.root)),
      INA_CASE(ina_reduce_scatter_block, kOp | kOneCount, context,
               (v.send, v.recv, v.count, v.dtype, v.op)),
      INA_CASE(ina_reduce_scatter, kOp | kCounts, context,
               (v.send, v.recv, v.counts, v.dtype, v.op)),
      INA_CASE(ina_all_gather, kOneCount, context, (v.send, v.recv, v.count, v.dtype)),
      INA_CASE(ina_all_gatherv, kCounts | kPlaces, context,
               (v.send, v.recv, v.counts, v.displacements, v.dtype)),
      INA_CASE(ina_gather, kOneCount | kRoot, context, (v.send, v.recv, v.count, v.dtype, v.root)),
      INA_CASE(ina_gatherv, kCounts | kPlaces | kRoot, context,
               (v.send, v.recv, v.counts, v.displacements, v.dtype, v.root)),
      INA_CASE(ina_scatter, kOneCount | kRoot, context, (v.send, v.recv, v.count, v.dtype, v.root)),
      INA_CASE(ina_scatterv, kCounts | kPlaces | kRoot, context,
               (v.send, v.recv, v.counts, v.displacements, v.dtype, v.root)),
      INA_CASE(ina_all_to_all, kOneCount, context, (v.send, v.recv, v.count, v.dtype)),
      INA_CASE(ina_all_to_allv, kCounted, context,
               (v.send, v.recv, v.counts, v.displacements, v.recv_counts, v.recv_displacements,
                v.dtype)),
      INA_CASE(ina_permute, kOneCount | kDestinations, context,
               (v.send, v.recv, v.count, v.dtype, v.destinations)),
      INA_CASE(ina_send_receive, kPair, context,
               (v.send, v.recv, v.count, v.destination, v.count, v.source, v.dtype)),
      INA_CASE(ina_hierarchical_allreduce, kHierarchy | kOp | kOneCount, hierarchy,
               (v.send, v.recv, v.count, v.dtype, v.op, v.options)),
      INA_CASE(ina_hierarchical_reduce_scatter, kHierarchy | kOp | kOneCount, hierarchy,
               (v.send, v.recv, v.count, v.dtype, v.op, v.options)),
      INA_CASE(ina_hierarchical_all_gather, kHierarchy | kOneCount, hierarchy,
               (v.send, v.recv, v.count, v.dtype, v.options)),
      INA_CASE(ina_hierarchical_all_to_all, kHierarchy | kOneCount, hierarchy,
               (v.send, v.recv, v.count, v.dtype, v.options)),
      Function{"ina_hierarchical_group", kHierarchy | kOp | kOneCount | kCalls,
               [](const Values& v) {
                 const ina_hierarchical_call call = call_of(v);
                 return ina_hierarchical_group(v.hierarchy, &call, 1, v.options, v.timeout_us);
               },
               [](const Values& v) {
                 const ina_hierarchical_call call = call_of(v);
                 return ina_hierarchical_group_async(v.hierarchy, &call, 1, v.options, v.request);
               }},
  };
}

namespace {

struct Wrong {
  const char* what;
  std::string named;  ///< a part of the text
  std::function<void(Values&)> change;
};

constexpr std::array<size_t, kRanks> kHugeCounts{kHuge / 2, kHuge / 2 + 3};
constexpr std::array<size_t, kRanks> kTogetherTooMany{size_t{1} << 46, size_t{1} << 46};
constexpr std::array<size_t, kRanks> kFarPlaces{0, kHuge / 4};
constexpr std::array<int, kRanks> kSameDestinations{1, 1};
constexpr std::array<int, kRanks> kNoRank{2, 0};
constexpr std::array<int, kRanks> kBelowNobody{-2, 0};
constexpr ina_hierarchical_options kShortOptions{8, nullptr, 0};
constexpr ina_hierarchical_options kUnknownScheduler{sizeof(ina_hierarchical_options), "best", 0};
constexpr ina_hierarchical_options kTooManyChunks{sizeof(ina_hierarchical_options), nullptr, 4097};

std::vector<Wrong> wrongs_of(const Function& function) {
  std::vector<Wrong> all;
  const auto has = [&](unsigned what) { return (function.has & what) != 0; };
  const auto add = [&](const char* what, std::string named, std::function<void(Values&)> change) {
    all.push_back({what, std::move(named), std::move(change)});
  };
  for (const int number : {0, -1, 10, 99, INT_MAX, INT_MIN})
    add("dtype", "dtype " + std::to_string(number),
        [=](Values& v) { v.dtype = no_value<ina_dtype>(number); });
  add("send", "send is NULL", [](Values& v) { v.send = nullptr; });
  add("recv", "recv is NULL", [](Values& v) { v.recv = nullptr; });
  add("recv that is only read", "recv is memory that cannot be written to", [](Values& v) {
    static const test::ReadOnlyMemory memory{std::vector<std::byte>(4096)};
    v.recv = memory.data();
  });
  add("recv that is not mapped", "recv is memory that cannot be written to",
      [](Values& v) { v.recv = reinterpret_cast<void*>(uintptr_t{4096}); });
  add("overlap", "overlap", [](Values& v) {
    v.recv = const_cast<std::byte*>(static_cast<const std::byte*>(v.send)) + 2;
  });
  if (has(kOp)) {
    for (const int number : {0, -1, 9, 99, INT_MAX})
      add("op", "op " + std::to_string(number),
          [=](Values& v) { v.op = no_value<ina_op>(number); });
    add("bits of floats", "of float32 is not defined", [](Values& v) { v.op = INA_BXOR; });
    add("average of integers", "avg of int32 is not defined", [](Values& v) {
      v.op = INA_AVG;
      v.dtype = INA_INT32;
    });
  }
  if (has(kRoot))
    for (const int number : {-1, kRanks, 64, INT_MAX, INT_MIN})
      add("root", "root " + std::to_string(number), [=](Values& v) { v.root = number; });
  if (has(kOneCount | kPair))
    for (const size_t count : {kHuge, kHuge / 2, kHuge / 4 + 2, size_t{1} << 47})
      add("count", "count " + std::to_string(count), [=](Values& v) { v.count = count; });
  if (has(kCounts | kCounted)) {
    add("counts", "counts is NULL", [](Values& v) { v.counts = nullptr; });
    add("huge counts", "count ", [](Values& v) { v.counts = kHugeCounts.data(); });
    add("counts together", "count ", [](Values& v) { v.counts = kTogetherTooMany.data(); });
  }
  if (has(kPlaces | kCounted))
    add("displacements", "displacement ", [](Values& v) { v.displacements = kFarPlaces.data(); });
  if (has(kCounted)) {
    add("recv_counts", "recv_counts is NULL", [](Values& v) { v.recv_counts = nullptr; });
    add("huge recv_counts", "recv_count ", [](Values& v) { v.recv_counts = kHugeCounts.data(); });
    add("recv_displacements", "recv_displacement ",
        [](Values& v) { v.recv_displacements = kFarPlaces.data(); });
  }
  if (has(kDestinations)) {
    add("destinations", "destinations is NULL", [](Values& v) { v.destinations = nullptr; });
    add("two to one", "destinations[1]",
        [](Values& v) { v.destinations = kSameDestinations.data(); });
    add("no rank", "destinations[0]", [](Values& v) { v.destinations = kNoRank.data(); });
    add("below nobody", "destinations[0]", [](Values& v) { v.destinations = kBelowNobody.data(); });
  }
  if (has(kPair))
    for (const int number : {-2, kRanks, INT_MAX}) {
      add("destination", "destination " + std::to_string(number),
          [=](Values& v) { v.destination = number; });
      add("source", "source " + std::to_string(number), [=](Values& v) { v.source = number; });
    }
  if (has(kHierarchy)) {
    add("options", "struct_size", [](Values& v) { v.options = &kShortOptions; });
    add("scheduler", "scheduler 'best'", [](Values& v) { v.options = &kUnknownScheduler; });
    add("chunks", "chunks", [](Values& v) { v.options = &kTooManyChunks; });
  }
  if (has(kCalls))
    for (const int number : {-1, 4, INT_MAX})
      add("collective", "collective " + std::to_string(number),
          [=](Values& v) { v.collective = no_value<ina_hierarchical_collective>(number); });
  return all;
}

TEST_F(Arguments, RightOnesAreTakenByEveryCollective) {
  on_ranks([](Rank& rank) {
    for (const Function& function : collectives()) {
      SCOPED_TRACE(function.name);
      EXPECT_EQ(function.waits(rank.right()), INA_OK) << ina_last_error(rank.context);
      EXPECT_EQ(function.starts(rank.right()), INA_OK) << ina_last_error(rank.context);
      EXPECT_EQ(ina_wait(rank.request, 0), INA_OK) << ina_last_error(rank.context);
    }
  });
}

TEST_F(Arguments, NoWayOfASumWritesToItsSendBuffer) {
  ina_config config;
  ina_config_init(&config);
  config.numeric = INA_NUMERIC_REPRODUCIBLE;
  config.coalesce_bytes = 4096;
  on_ranks(config, [](Rank& rank) {
    for (const Function& function : collectives()) {
      if ((function.has & kOp) == 0 || (function.has & kHierarchy) != 0) continue;
      for (const ina_dtype dtype : {INA_FLOAT32, INA_FLOAT64, INA_BFLOAT16, INA_INT32}) {
        SCOPED_TRACE(function.name);
        Values values = rank.right();
        values.dtype = dtype;
        EXPECT_EQ(function.waits(values), INA_OK) << ina_last_error(rank.context);
        EXPECT_EQ(function.starts(values), INA_OK) << ina_last_error(rank.context);
        EXPECT_EQ(ina_wait(rank.request, 0), INA_OK) << ina_last_error(rank.context);
      }
    }
  });
}

TEST_F(Arguments, WrongOnesOfCollectivesAreNamedAndNothingIsDone) {
  on_ranks([](Rank& rank) {
    const uint64_t before = operations(rank);
    for (const Function& function : collectives())
      for (const Wrong& wrong : wrongs_of(function)) {
        SCOPED_TRACE(function.name + ": " + wrong.what);
        Values values = rank.right();
        wrong.change(values);
        // What a rank has no use for may be missing: this is for rank 0, the root.
        if (rank.rank() != 0) continue;
        expect_invalid(function.waits(values), rank.context, function.name, wrong.named);
        rank.request = reinterpret_cast<ina_request*>(&rank);
        expect_invalid(function.starts(values), rank.context, function.name + "_async",
                       wrong.named);
        EXPECT_EQ(rank.request, nullptr);
      }
    EXPECT_EQ(operations(rank), before);
    EXPECT_EQ(ina_allreduce(rank.context, rank.right().send, rank.right().recv, kCount, INA_FLOAT32,
                            INA_SUM, 0),
              INA_OK)
        << ina_last_error(rank.context);
  });
}

TEST_F(Arguments, NegativeTimeoutsAndMissingHandlesAreRefused) {
  on_ranks([](Rank& rank) {
    for (const Function& function : collectives()) {
      SCOPED_TRACE(function.name);
      for (const int64_t timeout_us : {int64_t{-1}, int64_t{-5}, INT64_MIN}) {
        Values values = rank.right();
        values.timeout_us = timeout_us;
        expect_invalid(function.waits(values), rank.context, function.name,
                       "timeout_us " + std::to_string(timeout_us));
      }
      Values values = rank.right();
      values.request = nullptr;
      expect_invalid(function.starts(values), rank.context, function.name + "_async",
                     "request is NULL");
      values = rank.right();
      values.context = nullptr;
      values.hierarchy = nullptr;
      const std::string handle = (function.has & kHierarchy) != 0 ? "hierarchy" : "context";
      expect_invalid(function.waits(values), nullptr, function.name, handle + " is NULL");
      expect_invalid(function.starts(values), nullptr, function.name + "_async",
                     handle + " is NULL");
    }
  });
}

TEST_F(Arguments, TheLongestTimeoutIsTaken) {
  on_ranks([](Rank& rank) {
    for (const Function& function : collectives()) {
      Values values = rank.right();
      values.timeout_us = INT64_MAX;
      EXPECT_EQ(function.waits(values), INA_OK) << ina_last_error(rank.context);
    }
    EXPECT_EQ(ina_barrier(rank.context, INT64_MAX), INA_OK);
  });
}

// Buffers need no alignment.
TEST_F(Arguments, BuffersMayLieAnywhere) {
  on_ranks([](Rank& rank) {
    constexpr size_t kElements = 3001;
    for (const ina_dtype dtype : {INA_INT8, INA_INT32, INA_INT64, INA_FLOAT32, INA_FLOAT64,
                                  INA_BFLOAT16, INA_FLOAT16, INA_UINT8, INA_BOOL}) {
      const size_t bytes = kElements * ina_dtype_size(dtype);
      std::vector<std::byte> send(bytes + 1), recv(bytes + 1, std::byte{1});
      EXPECT_EQ(ina_allreduce(rank.context, send.data() + 1, recv.data() + 1, kElements, dtype,
                              INA_SUM, 0),
                INA_OK)
          << ina_last_error(rank.context);
      EXPECT_EQ(recv, [&] {
        std::vector<std::byte> zero(bytes + 1);
        zero[0] = std::byte{1};
        return zero;
      }());
    }
  });
}

}  // namespace
}  // namespace ina
