// Wrong arguments of every function of ina.h that is no collective: each is INA_ERR_INVALID with a
// text that names function and argument, before anything is done, and the job goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <climits>
#include <fstream>
#include <functional>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

#include "ina/ina.h"
#include "tests/client/arguments.h"

namespace ina {
namespace {

using test::Arguments;
using test::collectives;
using test::Function;
using test::kHuge;
using test::no_value;
using test::Other;
using test::others;
using test::Rank;
using testing::HasSubstr;

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
  for (const int size : {0, -2, 4097})
    add("world_size", [=](ina_config& c) { c.world_size = size; });
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

}  // namespace

std::vector<Other> test::others() {
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

namespace {

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
