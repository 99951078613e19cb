// Wrong arguments of every function of ina.h: each is INA_ERR_INVALID with a text that names
// function and argument, before anything is done, and the job goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <fstream>
#include <functional>
#include <limits>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "ina/ina.h"
#include "tests/support/read_only_memory.h"
#include "tests/support/switch_fixture.h"

namespace ina {
namespace {

using test::TestSwitch;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int kRanks = 2;
constexpr size_t kCount = 6;
constexpr int64_t kTimeoutUs = 20'000'000;

/// The arguments of any collective.
struct Values {
  ina_context* context = nullptr;
  ina_hierarchy* hierarchy = nullptr;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = kCount;
  ina_dtype dtype = INA_FLOAT32;
  ina_op op = INA_SUM;
  int root = 0;
  const size_t* counts = nullptr;
  const size_t* displacements = nullptr;
  const size_t* recv_counts = nullptr;
  const size_t* recv_displacements = nullptr;
  const int* destinations = nullptr;
  int destination = 0, source = 0;
  const ina_hierarchical_options* options = nullptr;
  ina_hierarchical_collective collective = INA_HIERARCHICAL_ALLREDUCE;
  int64_t timeout_us = kTimeoutUs;
  ina_request** request = nullptr;
};

/// The arguments that a function has; all have send, recv and dtype.
enum Has : unsigned {
  kOp = 1,
  kRoot = 2,
  kOneCount = 4,
  kCounts = 8,
  kPlaces = 16,
  kCounted = 32,
  kDestinations = 64,
  kPair = 128,
  kHierarchy = 256,
  kCalls = 512,
};

struct Function {
  std::string name;
  unsigned has;
  std::function<int(const Values&)> waits;
  std::function<int(const Values&)> starts;
};

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

std::vector<Function> collectives() {
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

/// A rank's context, its hierarchy, and memory for right arguments.
class Rank {
 public:
  Rank(const TestSwitch& sw, int rank, ina_config config) : rank_(rank), next_(1 - rank) {
    config.url = url_.assign(sw.url()).c_str();
    config.job = "job";
    config.rank = rank;
    config.world_size = kRanks;
    config.timeout_us = kTimeoutUs;
    EXPECT_EQ(ina_init(&config, &context), INA_OK) << ina_last_error(nullptr);
    const ina_hierarchy_config dimensions{sizeof dimensions,
                                          "dimensions: [{kind: ina, size: 2, gbps: 10, "
                                          "step_latency_ns: 100, point_to_point: direct}]",
                                          nullptr, nullptr, 0};
    EXPECT_EQ(ina_hierarchy_create(context, &dimensions, &hierarchy), INA_OK)
        << ina_last_error(context);
  }
  ~Rank() {
    EXPECT_EQ(ina_hierarchy_free(hierarchy, 0), INA_OK) << ina_last_error(nullptr);
    EXPECT_EQ(ina_finalize(context, 0), INA_OK) << ina_last_error(nullptr);
  }
  Values right() {
    Values v;
    v.context = context;
    v.hierarchy = hierarchy;
    v.send = send_.data();  // which must not be written to
    v.recv = recv_.data();
    v.counts = counts_.data();
    v.displacements = displacements_.data();
    v.recv_counts = counts_.data();
    v.recv_displacements = displacements_.data();
    v.destinations = destinations_.data();
    v.destination = v.source = next_;
    v.request = &request;
    return v;
  }
  int rank() const { return rank_; }

  ina_context* context = nullptr;
  ina_hierarchy* hierarchy = nullptr;
  ina_request* request = nullptr;

 private:
  std::string url_;
  int rank_, next_;
  test::ReadOnlyMemory send_{std::vector<std::byte>(2048)};
  std::array<double, 256> recv_{};
  std::array<size_t, kRanks> counts_{kCount, kCount}, displacements_{0, kCount};
  std::array<int, kRanks> destinations_{1, 0};
};

struct Wrong {
  const char* what;
  std::string named;  ///< a part of the text
  std::function<void(Values&)> change;
};

constexpr size_t kHuge = std::numeric_limits<size_t>::max();
constexpr std::array<size_t, kRanks> kHugeCounts{kHuge / 2, kHuge / 2 + 3};
constexpr std::array<size_t, kRanks> kTogetherTooMany{size_t{1} << 46, size_t{1} << 46};
constexpr std::array<size_t, kRanks> kFarPlaces{0, kHuge / 4};
constexpr std::array<int, kRanks> kSameDestinations{1, 1};
constexpr std::array<int, kRanks> kNoRank{2, 0};
constexpr std::array<int, kRanks> kBelowNobody{-2, 0};
constexpr ina_hierarchical_options kShortOptions{8, nullptr, 0};
constexpr ina_hierarchical_options kUnknownScheduler{sizeof(ina_hierarchical_options), "best", 0};
constexpr ina_hierarchical_options kTooManyChunks{sizeof(ina_hierarchical_options), nullptr, 4097};

template <class Enum>
Enum no_value(int number) {
  return static_cast<Enum>(number);
}

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

class Arguments : public testing::Test {
 protected:
  static void SetUpTestSuite() { switch_ = std::make_unique<TestSwitch>(); }
  static void TearDownTestSuite() { switch_.reset(); }

  /// `body(rank)` on a thread for each rank.
  static void on_ranks(const std::function<void(Rank&)>& body) {
    ina_config config;
    ina_config_init(&config);
    on_ranks(config, body);
  }
  static void on_ranks(const ina_config& config, const std::function<void(Rank&)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        Rank own(*switch_, rank, config);
        body(own);
      });
    for (auto& thread : threads) thread.join();
  }
  static uint64_t operations(const Rank& rank) {
    ina_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_EQ(ina_get_stats(rank.context, &stats), INA_OK);
    return stats.operations;
  }
  /// `status` is that of a wrong call of `function`.
  static void expect_invalid(int status, const ina_context* context, const std::string& function,
                             const std::string& named) {
    const std::string text = ina_last_error(context);
    EXPECT_EQ(status, INA_ERR_INVALID) << text;
    EXPECT_THAT(text, StartsWith(function));
    EXPECT_THAT(text, HasSubstr(named));
  }

  static std::unique_ptr<TestSwitch> switch_;
};
std::unique_ptr<TestSwitch> Arguments::switch_;

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

/// One call with wrong arguments, of a function that is no collective.
struct Other {
  std::string function;
  std::string named;
  std::function<int(Rank&)> call;
  bool no_context = false;  ///< the text is ina_last_error(NULL)'s
};

#define INA_OTHER(NAME, NAMED, ...)                               \
  Other {                                                         \
#NAME, NAMED, [](Rank & r) { (void)r; return NAME(__VA_ARGS__); } \
  }
#define INA_NO_CONTEXT(NAME, NAMED, ...)                                \
  Other {                                                               \
#NAME, NAMED, [](Rank & r) { (void)r; return NAME(__VA_ARGS__); }, true \
  }

ina_config changed(const std::function<void(ina_config&)>& change) {
  ina_config config;
  ina_config_init(&config);
  config.url = "shm:/nowhere/switch.sock";
  config.rank = 0;
  config.world_size = 2;
  change(config);
  return config;
}

std::vector<Other> inits() {
  std::vector<Other> all;
  const auto add = [&](std::string named, std::function<void(ina_config&)> change) {
    all.push_back({"ina_init", std::move(named),
                   [change = std::move(change)](Rank&) {
                     const ina_config config = changed(change);
                     ina_context* context = nullptr;
                     const int status = ina_init(&config, &context);
                     EXPECT_EQ(context, nullptr);
                     return status;
                   },
                   true});
  };
  for (const size_t size : {size_t{0}, size_t{8}, sizeof(ina_config) - 1, sizeof(ina_config) + 8})
    add("struct_size", [=](ina_config& c) { c.struct_size = size; });
  for (const int rank : {-2, 2, INT_MAX}) add("rank", [=](ina_config& c) { c.rank = rank; });
  for (const int size : {0, -2, 65}) add("world_size", [=](ina_config& c) { c.world_size = size; });
  for (const int64_t us : {int64_t{-1}, INT64_MIN}) {
    add("timeout_us", [=](ina_config& c) { c.timeout_us = us; });
    add("rejoin_timeout_us", [=](ina_config& c) { c.rejoin_timeout_us = us; });
  }
  for (const int number : {-1, 5, INT_MAX})
    add("idle", [=](ina_config& c) { c.idle = no_value<ina_idle>(number); });
  for (const int number : {-1, 3, INT_MAX})
    add("numeric", [=](ina_config& c) { c.numeric = no_value<ina_numeric>(number); });
  for (const int threads : {-1, INT_MIN})
    add("copy_threads", [=](ina_config& c) { c.copy_threads = threads; });
  add("coalesce_bytes", [](ina_config& c) { c.coalesce_bytes = (uint64_t{64} << 20) + 1; });
  add("window_bytes", [](ina_config& c) { c.window_bytes = kHuge; });
  for (const char* url : {"", "nothing", "shm:", ":x", "carrier-pigeon:/x", "shm:/x?y=z"})
    add(url, [=](ina_config& c) { c.url = url; });
  return all;
}

int get_stats(ina_context* context, size_t size) {
  ina_stats stats{};
  stats.struct_size = size;
  return ina_get_stats(context, &stats);
}

int set_hints(ina_context* context, size_t size, uint32_t layer, uint32_t layers) {
  const ina_hints hints{size, layer, layers, 0};
  return ina_set_hints(context, &hints);
}

int create_hierarchy(ina_context* context, size_t size, const char* topology, const char* file,
                     size_t rails) {
  const ina_hierarchy_config config{size, topology, file, nullptr, rails};
  ina_hierarchy* hierarchy = nullptr;
  return ina_hierarchy_create(context, &config, &hierarchy);
}

int create_plan(const std::function<void(ina_redistribution&)>& change) {
  static constexpr std::array<size_t, 9> kShape{8, 8, 1, 1, 1, 1, 1, 1, 1};
  ina_redistribution wanted{sizeof wanted, "x=2", kShape.data(), 2,      "x,-", "-,x",
                            INA_FLOAT32,   0,     nullptr,       nullptr};
  change(wanted);
  ina_plan* plan = nullptr;
  const int status = ina_plan_create(&wanted, &plan);
  EXPECT_EQ(plan, nullptr);
  ina_plan_free(plan);
  return status;
}

std::vector<Other> plans() {
  std::vector<Other> all;
  const auto add = [&](std::string named, std::function<void(ina_redistribution&)> change) {
    all.push_back({"ina_plan_create", std::move(named),
                   [change = std::move(change)](Rank&) { return create_plan(change); }, true});
  };
  static constexpr std::array<size_t, 2> kNoElements{0, kHuge}, kTooMany{kHuge, kHuge};
  static const ina_costs short_costs{8, 1, 1, 1, 1};
  static const ina_costs negative{sizeof(ina_costs), -1, 1, 1, 1};
  static const ina_costs no_number{sizeof(ina_costs), std::numeric_limits<double>::quiet_NaN(), 1,
                                   1, 1};
  add("struct_size", [](ina_redistribution& r) { r.struct_size = 8; });
  add("mesh", [](ina_redistribution& r) { r.mesh = nullptr; });
  add("from", [](ina_redistribution& r) { r.from = nullptr; });
  add("to", [](ina_redistribution& r) { r.to = nullptr; });
  add("shape", [](ina_redistribution& r) { r.shape = nullptr; });
  add("dimensions", [](ina_redistribution& r) { r.dimensions = 0; });
  add("dimensions", [](ina_redistribution& r) { r.dimensions = 9; });
  add("dtype", [](ina_redistribution& r) { r.dtype = no_value<ina_dtype>(0); });
  add("mesh", [](ina_redistribution& r) { r.mesh = "x=0"; });
  add("mesh", [](ina_redistribution& r) { r.mesh = "x=99999999999999999999"; });
  add("from", [](ina_redistribution& r) { r.from = "y,-"; });
  add("", [](ina_redistribution& r) { r.shape = kTooMany.data(); });
  add("", [](ina_redistribution& r) { r.shape = kNoElements.data(); });
  add("method", [](ina_redistribution& r) { r.method = "magic"; });
  add("costs", [](ina_redistribution& r) { r.costs = &short_costs; });
  add("", [](ina_redistribution& r) { r.costs = &negative; });
  add("", [](ina_redistribution& r) { r.costs = &no_number; });
  return all;
}

std::vector<Other> others() {
  // Each rank has its own: they are written to.
  static thread_local std::byte memory[64];
  static thread_local ina_plan* no_plan = nullptr;
  static thread_local ina_plan_facts wrong_facts{1, 0, 0, 0, 0, 0, 0, 0, 0};
  static thread_local ina_costs wrong_costs{1, 0, 0, 0, 0};
  static constexpr ina_hierarchical_options* kDefaults = nullptr;
  std::vector<Other> all{
      INA_NO_CONTEXT(ina_init, "context is NULL", nullptr, nullptr),
      INA_NO_CONTEXT(ina_finalize, "context is NULL", nullptr, 0),
      INA_OTHER(ina_finalize, "timeout_us -1", r.context, -1),
      INA_NO_CONTEXT(ina_split, "context is NULL", nullptr, 0, 0, nullptr),
      INA_OTHER(ina_split, "group is NULL", r.context, 0, 0, nullptr),
      INA_NO_CONTEXT(ina_create_group, "context is NULL", nullptr, nullptr, 0, 0, nullptr),
      INA_OTHER(ina_create_group, "group is NULL", r.context, nullptr, 0, 0, nullptr),
      INA_NO_CONTEXT(ina_rank, "context is NULL", nullptr),
      INA_NO_CONTEXT(ina_world_size, "context is NULL", nullptr),
      INA_NO_CONTEXT(ina_wait, "request is NULL", nullptr, 0),
      INA_NO_CONTEXT(ina_test, "request is NULL", nullptr),
      INA_NO_CONTEXT(ina_request_free, "request is NULL", nullptr),
      INA_NO_CONTEXT(ina_request_set_callback, "request is NULL", nullptr, nullptr, nullptr),
      INA_NO_CONTEXT(ina_completion_fd, "context is NULL", nullptr, nullptr),
      INA_OTHER(ina_completion_fd, "fd is NULL", r.context, nullptr),
      INA_NO_CONTEXT(ina_group_start, "context is NULL", nullptr),
      INA_NO_CONTEXT(ina_group_end, "context is NULL", nullptr),
      INA_OTHER(ina_group_end, "no group is open", r.context),
      INA_NO_CONTEXT(ina_barrier, "context is NULL", nullptr, 0),
      INA_OTHER(ina_barrier, "timeout_us -5", r.context, -5),
      INA_NO_CONTEXT(ina_barrier_async, "context is NULL", nullptr, nullptr),
      INA_OTHER(ina_barrier_async, "request is NULL", r.context, nullptr),
      INA_NO_CONTEXT(ina_alloc, "context is NULL", nullptr, 1, nullptr),
      INA_OTHER(ina_alloc, "memory is NULL", r.context, 1, nullptr),
      INA_NO_CONTEXT(ina_alloc_result, "context is NULL", nullptr, 1, nullptr),
      INA_OTHER(ina_alloc_result, "memory is NULL", r.context, 1, nullptr),
      INA_NO_CONTEXT(ina_register, "context is NULL", nullptr, 0, nullptr, 0),
      INA_OTHER(ina_register, "memfd", r.context, -1, memory, sizeof memory),
      INA_OTHER(ina_register, "memfd", r.context, 1 << 20, memory, sizeof memory),
      INA_NO_CONTEXT(ina_free, "context is NULL", nullptr, nullptr),
      INA_OTHER(ina_free, "memory is not the start", r.context, memory),
      INA_NO_CONTEXT(ina_get_stats, "context is NULL", nullptr, nullptr),
      INA_OTHER(ina_get_stats, "stats", r.context, nullptr),
      INA_NO_CONTEXT(ina_set_hints, "context is NULL", nullptr, nullptr),
      INA_NO_CONTEXT(ina_overflowed, "context is NULL", nullptr, 0),
      INA_NO_CONTEXT(ina_plan_create, "plan is NULL", nullptr, nullptr),
      INA_NO_CONTEXT(ina_plan_create, "wanted is NULL", nullptr, &no_plan),
      INA_NO_CONTEXT(ina_plan_parse, "plan is NULL", "{}", nullptr),
      INA_NO_CONTEXT(ina_plan_parse, "json is NULL", nullptr, &no_plan),
      INA_NO_CONTEXT(ina_plan_parse, "", "no JSON", &no_plan),
      INA_NO_CONTEXT(ina_plan_get_facts, "plan is NULL", nullptr, &wrong_facts),
      INA_NO_CONTEXT(ina_measure_costs, "context is NULL", nullptr, &wrong_costs),
      INA_OTHER(ina_measure_costs, "costs is NULL", r.context, nullptr),
      INA_OTHER(ina_measure_costs, "struct_size", r.context, &wrong_costs),
      INA_NO_CONTEXT(ina_redistribute, "context is NULL", nullptr, nullptr, memory, 64, 0),
      INA_OTHER(ina_redistribute, "plan is NULL", r.context, nullptr, memory, 64, 0),
      INA_OTHER(ina_redistribute, "timeout_us -1", r.context, nullptr, memory, 64, -1),
      INA_NO_CONTEXT(ina_redistribute_async, "context is NULL", nullptr, nullptr, memory, 64,
                     nullptr),
      INA_OTHER(ina_redistribute_async, "request is NULL", r.context, nullptr, memory, 64, nullptr),
      INA_NO_CONTEXT(ina_hierarchy_create, "context is NULL", nullptr, nullptr, nullptr),
      INA_OTHER(ina_hierarchy_create, "hierarchy is NULL", r.context, nullptr, nullptr),
      INA_NO_CONTEXT(ina_hierarchy_free, "timeout_us -1", r.hierarchy, -1),
      INA_NO_CONTEXT(ina_hierarchy_calibrate, "hierarchy is NULL", nullptr, nullptr),
      INA_OTHER(ina_hierarchy_calibrate, "yaml is NULL", r.hierarchy, nullptr),
      INA_OTHER(ina_hierarchical_group, "0 collectives", r.hierarchy, nullptr, 1, kDefaults, 0),
      INA_OTHER(ina_hierarchical_group_async, "0 collectives", r.hierarchy, nullptr, 1, kDefaults,
                &r.request),
  };
  for (const size_t bytes : {size_t{0}, kHuge, kHuge / 2}) {
    all.push_back({"ina_alloc", "bytes is ", [=](Rank& r) {
                     void* made = nullptr;
                     return ina_alloc(r.context, bytes, &made);
                   }});
    all.push_back({"ina_alloc_result", "bytes is ", [=](Rank& r) {
                     void* made = nullptr;
                     return ina_alloc_result(r.context, bytes, &made);
                   }});
  }
  for (const size_t size : {size_t{0}, size_t{4}, size_t{12}, sizeof(ina_stats) + 8, kHuge}) {
    all.push_back(
        {"ina_get_stats", "struct_size", [=](Rank& r) { return get_stats(r.context, size); }});
    all.push_back({"ina_set_hints", "struct_size",
                   [=](Rank& r) { return set_hints(r.context, size, 0, 0); }});
  }
  all.push_back({"ina_set_hints", "layer",
                 [](Rank& r) { return set_hints(r.context, sizeof(ina_hints), 3, 2); }});
  all.push_back({"ina_set_hints", "layer",
                 [](Rank& r) { return set_hints(r.context, sizeof(ina_hints), 0, 2); }});
  for (auto more : {inits(), plans()}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST_F(Arguments, WrongOnesOfAllOtherFunctionsAreNamed) {
  on_ranks([](Rank& rank) {
    for (const Other& wrong : others()) {
      SCOPED_TRACE(wrong.function + ": " + wrong.named);
      const int status = wrong.call(rank);
      const std::string text = ina_last_error(wrong.no_context ? nullptr : rank.context);
      EXPECT_EQ(status, INA_ERR_INVALID) << text;
      EXPECT_THAT(text, HasSubstr(wrong.named));
      if (wrong.function != "ina_init") {
        EXPECT_THAT(text, HasSubstr(wrong.function));
      }
    }
    EXPECT_EQ(ina_barrier(rank.context, 0), INA_OK) << ina_last_error(rank.context);
  });
}

// All ranks must hear of it, because each waits for the others.
TEST_F(Arguments, AWrongHierarchyIsNamedOnTheRankThatGivesIt) {
  on_ranks([](Rank& rank) {
    const struct {
      size_t size;
      const char *topology, *file;
      size_t rails;
      const char* named;
    } cases[] = {{8, "dimensions: []", nullptr, 0, "struct_size"},
                 {sizeof(ina_hierarchy_config), nullptr, nullptr, 0, "topology"},
                 {sizeof(ina_hierarchy_config), "x", "y", 0, "topology"},
                 {sizeof(ina_hierarchy_config), "x", nullptr, 1, "rails[0]"}};
    for (const auto& [size, topology, file, rails, named] : cases) {
      EXPECT_EQ(create_hierarchy(rank.context, size, topology, file, rails), INA_ERR_INVALID);
      EXPECT_THAT(ina_last_error(rank.context), HasSubstr(named));
    }
  });
}

TEST_F(Arguments, FunctionsThatCannotFailTakeAnything) {
  ina_config_init_sized(nullptr, sizeof(ina_config));
  ina_plan_free(nullptr);
  EXPECT_EQ(ina_hierarchy_free(nullptr, 0), INA_OK);
  EXPECT_EQ(ina_plan_text(nullptr), nullptr);
  EXPECT_EQ(ina_plan_json(nullptr), nullptr);
  EXPECT_EQ(ina_dtype_size(no_value<ina_dtype>(0)), 0u);
  EXPECT_EQ(ina_dtype_size(no_value<ina_dtype>(INT_MAX)), 0u);
  EXPECT_NE(ina_status_name(12345), nullptr);
  EXPECT_NE(ina_last_error(nullptr), nullptr);
  EXPECT_NE(ina_version(), nullptr);
}

// A new function of ina.h needs its rows.
TEST_F(Arguments, TheTablesHaveEveryFunction) {
  std::set<std::string> known{"ina_config_init_sized", "ina_plan_free",  "ina_plan_text",
                              "ina_plan_json",         "ina_dtype_size", "ina_status_name",
                              "ina_last_error",        "ina_version"};
  for (const Function& function : collectives()) {
    known.insert(function.name);
    known.insert(function.name + "_async");
  }
  for (const Other& other : others()) known.insert(other.function);
  std::stringstream header;
  header << std::ifstream(INA_H).rdbuf();
  const std::string text = header.str();
  const std::regex declaration("INA_API [^;(]*?(ina_[a-z_]+)\\(");
  std::set<std::string> declared;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), declaration);
       at != std::sregex_iterator(); ++at)
    declared.insert((*at)[1]);
  EXPECT_EQ(declared, known);
}

}  // namespace
}  // namespace ina
