// The C ABI of hierarchical collectives. Nothing thrown gets past this file.
#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "client/handles.h"
#include "client/hierarchy.h"
#include "client/topology_loader.h"
#include "ina/ina.h"
#include "plans/themis/calibration.h"

using ina::Result;
using ina::client::check_context;
using ina::client::Context;
using ina::client::fail_with;
using ina::client::global_error;
using ina::client::global_failure;
using ina::client::guarded;
using ina::client::HierarchicalCall;
using ina::client::HierarchicalOptions;
using ina::client::Hierarchy;
using ina::client::Operation;
using ina::client::start_with_request;
using ina::client::timeout_of;

struct ina_hierarchy {
  ina_context* context = nullptr;
  std::shared_ptr<Hierarchy> impl;
  std::string calibrated;  ///< YAML, once it was asked for
};

namespace {

/// The arguments that all calls share.
struct HierarchyArguments {
  const char* function;
  std::span<const ina_hierarchical_call> calls;
  const ina_hierarchical_options* options;
};

Result<HierarchicalOptions> read_options(const HierarchyArguments& arguments) {
  const auto invalid = [&](const std::string& text) {
    return ina::fail(INA_ERR_INVALID, std::string(arguments.function) + ": " + text);
  };
  HierarchicalOptions read;
  const ina_hierarchical_options* const options = arguments.options;
  if (!options) return read;
  if (options->struct_size != sizeof(ina_hierarchical_options))
    return invalid("options->struct_size must be sizeof(ina_hierarchical_options)");
  if (options->chunks != 0) read.chunks = options->chunks;
  if (!options->scheduler) return read;
  std::string known;
  for (const ina::themis::Scheduler scheduler :
       {ina::themis::Scheduler::kBaseline, ina::themis::Scheduler::kThemis,
        ina::themis::Scheduler::kSearch}) {
    known += (known.empty() ? "" : ", ") + std::string(name(scheduler));
    read.scheduler = scheduler;
    if (options->scheduler == name(scheduler)) return read;
  }
  return invalid("scheduler '" + std::string(options->scheduler) + "' is unknown (known: " + known +
                 ")");
}

/// The values of ina.h have the order of the library's.
static_assert(INA_HIERARCHICAL_ALLREDUCE == static_cast<int>(ina::themis::Collective::kAllReduce) &&
              INA_HIERARCHICAL_REDUCE_SCATTER ==
                  static_cast<int>(ina::themis::Collective::kReduceScatter) &&
              INA_HIERARCHICAL_ALL_GATHER ==
                  static_cast<int>(ina::themis::Collective::kAllGather) &&
              INA_HIERARCHICAL_ALL_TO_ALL == static_cast<int>(ina::themis::Collective::kAllToAll));

/// A buffer of a call.
struct Region {
  const std::byte* begin;
  uint64_t bytes;
  size_t call;
  bool is_recv;

  // As numbers: `begin` is NULL where the call is wrong, or the region empty.
  uintptr_t first() const { return reinterpret_cast<uintptr_t>(begin); }
  bool overlaps(const Region& other) const {
    return first() < other.first() + other.bytes && other.first() < first() + bytes;
  }
};

std::vector<Region> regions_of(std::span<const ina_hierarchical_call> calls, uint32_t ranks) {
  std::vector<Region> regions;
  for (size_t i = 0; i < calls.size(); ++i) {
    const ina_hierarchical_call& call = calls[i];
    const uint64_t block = call.count * ina_dtype_size(call.dtype);
    const bool is_allreduce = call.collective == INA_HIERARCHICAL_ALLREDUCE;
    const bool sends_all = !is_allreduce && call.collective != INA_HIERARCHICAL_ALL_GATHER;
    const bool gets_all = !is_allreduce && call.collective != INA_HIERARCHICAL_REDUCE_SCATTER;
    regions.push_back(
        {static_cast<const std::byte*>(call.send), block * (sends_all ? ranks : 1), i, false});
    regions.push_back(
        {static_cast<const std::byte*>(call.recv), block * (gets_all ? ranks : 1), i, true});
  }
  return regions;
}

/// Collectives of a group are under way together: none writes where another one reads or writes.
/// Two that read the same are fine.
Result<void> check_apart(const HierarchyArguments& arguments, uint32_t ranks) {
  std::vector<Region> regions = regions_of(arguments.calls, ranks);
  std::erase_if(regions, [](const Region& region) { return region.bytes == 0; });
  std::ranges::sort(regions, {}, &Region::begin);
  for (size_t i = 0; i < regions.size(); ++i)
    for (size_t j = i + 1; j < regions.size() && regions[i].overlaps(regions[j]); ++j) {
      const Region &a = regions[i], &b = regions[j];
      if (a.call == b.call || (!a.is_recv && !b.is_recv)) continue;
      const auto named = [](const Region& region) {
        return "calls[" + std::to_string(region.call) + "]." + (region.is_recv ? "recv" : "send");
      };
      return ina::fail(INA_ERR_INVALID, std::string(arguments.function) + ": " + named(a) +
                                            " and " + named(b) + " overlap");
    }
  return {};
}

Result<Operation*> start(const ina_hierarchy& hierarchy, const HierarchyArguments& arguments) {
  const auto options = read_options(arguments);
  if (!options) return tl::unexpected(options.error());
  Context& context = *hierarchy.context->impl;
  const uint32_t ranks = context.settings().world_size;
  const bool is_group = arguments.calls.size() > 1;
  std::vector<std::string> names;
  names.reserve(arguments.calls.size());
  std::vector<HierarchicalCall> calls;
  for (size_t i = 0; i < arguments.calls.size(); ++i) {
    const ina_hierarchical_call& given = arguments.calls[i];
    names.emplace_back(arguments.function);
    if (is_group) names.back() += ": calls[" + std::to_string(i) + "]";
    if (given.collective < INA_HIERARCHICAL_ALLREDUCE ||
        given.collective > INA_HIERARCHICAL_ALL_TO_ALL)
      return ina::fail(INA_ERR_INVALID, names.back() + ": collective " +
                                            std::to_string(given.collective) +
                                            " is no ina_hierarchical_collective");
    calls.push_back({.function = names.back(),
                     .collective = static_cast<ina::themis::Collective>(given.collective),
                     .send = given.send,
                     .recv = given.recv,
                     .count = given.count,
                     .dtype_number = given.dtype,
                     .op_number = given.op});
  }
  for (const Region& region : regions_of(arguments.calls, ranks))
    if (region.is_recv)
      if (auto fine = context.memory().refuse_result_buffers(region.begin, region.bytes,
                                                             names[region.call] + ": recv");
          !fine)
        return tl::unexpected(fine.error());
  if (is_group)
    if (auto fine = check_apart(arguments, ranks); !fine) return tl::unexpected(fine.error());
  return hierarchy.impl->start(arguments.function, calls, *options);
}

int check_hierarchy(const ina_hierarchy* hierarchy, const char* function) {
  if (!hierarchy)
    return global_failure(INA_ERR_INVALID, std::string(function) + ": hierarchy is NULL");
  return check_context(hierarchy->context, function);
}

int start_and_wait(ina_hierarchy* hierarchy, const HierarchyArguments& arguments,
                   int64_t timeout_us) {
  return guarded([&]() -> int {
    if (const int status = check_hierarchy(hierarchy, arguments.function); status != INA_OK)
      return status;
    const auto timeout_ns = timeout_of(arguments.function, timeout_us);
    if (!timeout_ns) return fail_with(hierarchy->context, timeout_ns.error());
    const auto started = start(*hierarchy, arguments);
    if (!started) return fail_with(hierarchy->context, started.error());
    const int status = hierarchy->impl->wait(*started, *timeout_ns, true).status;
    if (status == INA_OK) return INA_OK;
    return hierarchy->context->impl->set_error(status, hierarchy->impl->last_error());
  });
}

int start_async(ina_hierarchy* hierarchy, const HierarchyArguments& arguments,
                ina_request** request) {
  return guarded([&]() -> int {
    if (const int status = check_hierarchy(hierarchy, arguments.function); status != INA_OK)
      return status;
    const int status = start_with_request(hierarchy->context, arguments.function, request,
                                          [&] { return start(*hierarchy, arguments); });
    if (status != INA_OK) return status;
    (*request)->hierarchy = hierarchy->impl;
    hierarchy->impl->kick();
    return INA_OK;
  });
}

/// NULL, or without calls: no calls, which start() refuses.
std::span<const ina_hierarchical_call> calls_at(const ina_hierarchical_call* calls, size_t count) {
  return {calls, calls ? count : 0};
}

Result<ina::themis::Topology> topology_of(const ina_hierarchy_config* config) {
  if (!config) return ina::fail(INA_ERR_INVALID, "config is NULL");
  if (config->struct_size != sizeof(ina_hierarchy_config))
    return ina::fail(INA_ERR_INVALID, "config->struct_size must be sizeof(ina_hierarchy_config)");
  if ((config->topology != nullptr) == (config->topology_file != nullptr))
    return ina::fail(INA_ERR_INVALID, "one of topology and topology_file is to be given");
  for (size_t i = 0; i < config->rail_count; ++i)
    if (!config->rails || !config->rails[i])
      return ina::fail(INA_ERR_INVALID, "rails[" + std::to_string(i) + "] is NULL");
  return ina::client::load_topology(config->topology, config->topology_file);
}

}  // namespace

extern "C" {

int ina_hierarchy_create(ina_context* context, const ina_hierarchy_config* config,
                         ina_hierarchy** hierarchy) {
  return guarded([&]() -> int {
    constexpr const char* kFunction = "ina_hierarchy_create";
    if (const int status = check_context(context, kFunction); status != INA_OK) return status;
    if (!hierarchy)
      return context->impl->set_error(INA_ERR_INVALID,
                                      std::string(kFunction) + ": hierarchy is NULL");
    *hierarchy = nullptr;
    if (const int status = context->impl->refuse_in_group(kFunction); status != INA_OK)
      return status;
    const auto topology = topology_of(config);
    std::vector<std::shared_ptr<Context>> rails;
    if (topology)
      for (size_t i = 0; i < config->rail_count; ++i) rails.push_back(config->rails[i]->impl);
    auto made = std::make_unique<ina_hierarchy>();
    auto impl = Hierarchy::create(context->impl, topology, rails);
    if (!impl)
      return context->impl->set_error(impl.error().status,
                                      std::string(kFunction) + ": " + impl.error().text);
    made->context = context;
    made->impl = std::move(*impl);
    *hierarchy = made.release();
    return INA_OK;
  });
}

int ina_hierarchy_free(ina_hierarchy* hierarchy, int64_t timeout_us) {
  if (!hierarchy) return INA_OK;
  return guarded([&]() -> int {
    if (hierarchy->impl->contexts().back()->forked())
      return global_failure(INA_ERR_FORKED,
                            "ina_hierarchy_free: the hierarchy belongs to the parent process");
    const auto timeout_ns = timeout_of("ina_hierarchy_free", timeout_us);
    if (!timeout_ns) return global_failure(INA_ERR_INVALID, timeout_ns.error().text);
    const std::unique_ptr<ina_hierarchy> last(hierarchy);
    const int status = hierarchy->impl->leave(*timeout_ns);
    if (status != INA_OK) global_error() = hierarchy->impl->last_error();
    return status;
  });
}

int ina_hierarchy_calibrate(ina_hierarchy* hierarchy, const char** yaml) {
  return guarded([&]() -> int {
    constexpr const char* kFunction = "ina_hierarchy_calibrate";
    if (const int status = check_hierarchy(hierarchy, kFunction); status != INA_OK) return status;
    Context& context = *hierarchy->context->impl;
    if (!yaml) return context.set_error(INA_ERR_INVALID, std::string(kFunction) + ": yaml is NULL");
    *yaml = nullptr;
    const auto measured = hierarchy->impl->calibrate();
    if (!measured)
      return context.set_error(measured.error().status,
                               std::string(kFunction) + ": " + measured.error().text);
    hierarchy->calibrated = ina::themis::to_yaml(*measured);
    *yaml = hierarchy->calibrated.c_str();
    return INA_OK;
  });
}

int ina_hierarchical_allreduce(ina_hierarchy* hierarchy, const void* send, void* recv, size_t count,
                               ina_dtype dtype, ina_op op, const ina_hierarchical_options* options,
                               int64_t timeout_us) {
  const ina_hierarchical_call call{INA_HIERARCHICAL_ALLREDUCE, send, recv, count, dtype, op};
  return start_and_wait(hierarchy, {"ina_hierarchical_allreduce", {&call, 1}, options}, timeout_us);
}

int ina_hierarchical_allreduce_async(ina_hierarchy* hierarchy, const void* send, void* recv,
                                     size_t count, ina_dtype dtype, ina_op op,
                                     const ina_hierarchical_options* options,
                                     ina_request** request) {
  const ina_hierarchical_call call{INA_HIERARCHICAL_ALLREDUCE, send, recv, count, dtype, op};
  return start_async(hierarchy, {"ina_hierarchical_allreduce_async", {&call, 1}, options}, request);
}

int ina_hierarchical_reduce_scatter(ina_hierarchy* hierarchy, const void* send, void* recv,
                                    size_t count, ina_dtype dtype, ina_op op,
                                    const ina_hierarchical_options* options, int64_t timeout_us) {
  const ina_hierarchical_call call{INA_HIERARCHICAL_REDUCE_SCATTER, send, recv, count, dtype, op};
  return start_and_wait(hierarchy, {"ina_hierarchical_reduce_scatter", {&call, 1}, options},
                        timeout_us);
}

int ina_hierarchical_reduce_scatter_async(ina_hierarchy* hierarchy, const void* send, void* recv,
                                          size_t count, ina_dtype dtype, ina_op op,
                                          const ina_hierarchical_options* options,
                                          ina_request** request) {
  const ina_hierarchical_call call{INA_HIERARCHICAL_REDUCE_SCATTER, send, recv, count, dtype, op};
  return start_async(hierarchy, {"ina_hierarchical_reduce_scatter_async", {&call, 1}, options},
                     request);
}

int ina_hierarchical_all_gather(ina_hierarchy* hierarchy, const void* send, void* recv,
                                size_t count, ina_dtype dtype,
                                const ina_hierarchical_options* options, int64_t timeout_us) {
  const ina_hierarchical_call call{INA_HIERARCHICAL_ALL_GATHER, send, recv, count, dtype, INA_SUM};
  return start_and_wait(hierarchy, {"ina_hierarchical_all_gather", {&call, 1}, options},
                        timeout_us);
}

int ina_hierarchical_all_gather_async(ina_hierarchy* hierarchy, const void* send, void* recv,
                                      size_t count, ina_dtype dtype,
                                      const ina_hierarchical_options* options,
                                      ina_request** request) {
  const ina_hierarchical_call call{INA_HIERARCHICAL_ALL_GATHER, send, recv, count, dtype, INA_SUM};
  return start_async(hierarchy, {"ina_hierarchical_all_gather_async", {&call, 1}, options},
                     request);
}

int ina_hierarchical_all_to_all(ina_hierarchy* hierarchy, const void* send, void* recv,
                                size_t count, ina_dtype dtype,
                                const ina_hierarchical_options* options, int64_t timeout_us) {
  const ina_hierarchical_call call{INA_HIERARCHICAL_ALL_TO_ALL, send, recv, count, dtype, INA_SUM};
  return start_and_wait(hierarchy, {"ina_hierarchical_all_to_all", {&call, 1}, options},
                        timeout_us);
}

int ina_hierarchical_all_to_all_async(ina_hierarchy* hierarchy, const void* send, void* recv,
                                      size_t count, ina_dtype dtype,
                                      const ina_hierarchical_options* options,
                                      ina_request** request) {
  const ina_hierarchical_call call{INA_HIERARCHICAL_ALL_TO_ALL, send, recv, count, dtype, INA_SUM};
  return start_async(hierarchy, {"ina_hierarchical_all_to_all_async", {&call, 1}, options},
                     request);
}

int ina_hierarchical_group(ina_hierarchy* hierarchy, const ina_hierarchical_call* calls,
                           size_t call_count, const ina_hierarchical_options* options,
                           int64_t timeout_us) {
  return start_and_wait(hierarchy, {"ina_hierarchical_group", calls_at(calls, call_count), options},
                        timeout_us);
}

int ina_hierarchical_group_async(ina_hierarchy* hierarchy, const ina_hierarchical_call* calls,
                                 size_t call_count, const ina_hierarchical_options* options,
                                 ina_request** request) {
  return start_async(
      hierarchy, {"ina_hierarchical_group_async", calls_at(calls, call_count), options}, request);
}

}  // extern "C"
