// The C ABI of hierarchical collectives. Nothing thrown gets past this file.
#include <cstddef>
#include <vector>

#include "client/handles.h"
#include "client/hierarchy.h"
#include "client/topology_loader.h"
#include "ina/ina.h"

using ina::Result;
using ina::client::check_context;
using ina::client::Context;
using ina::client::fail_with;
using ina::client::global_error;
using ina::client::global_failure;
using ina::client::guarded;
using ina::client::HierarchicalCall;
using ina::client::Hierarchy;
using ina::client::Operation;
using ina::client::start_with_request;
using ina::themis::Collective;

struct ina_hierarchy {
  ina_context* context = nullptr;
  std::shared_ptr<Hierarchy> impl;
};

namespace {

constexpr uint32_t kChunks = 16;

/// What is the same in all calls.
struct Arguments {
  const char* function;
  Collective collective;
  const void* send;
  void* recv;
  size_t count;
  int dtype;
  int op;
  const ina_hierarchical_options* options;
};

Result<void> read_options(const Arguments& arguments, HierarchicalCall& call) {
  const auto invalid = [&](const std::string& text) {
    return ina::fail(INA_ERR_INVALID, std::string(arguments.function) + ": " + text);
  };
  call.chunks = kChunks;
  const ina_hierarchical_options* const options = arguments.options;
  if (!options) return {};
  if (options->struct_size != sizeof(ina_hierarchical_options))
    return invalid("options->struct_size must be sizeof(ina_hierarchical_options)");
  if (options->chunks != 0) call.chunks = options->chunks;
  if (!options->scheduler) return {};
  std::string known;
  for (const ina::themis::Scheduler scheduler :
       {ina::themis::Scheduler::kBaseline, ina::themis::Scheduler::kThemis,
        ina::themis::Scheduler::kSearch}) {
    known += (known.empty() ? "" : ", ") + std::string(name(scheduler));
    call.scheduler = scheduler;
    if (options->scheduler == name(scheduler)) return {};
  }
  return invalid("scheduler '" + std::string(options->scheduler) + "' is unknown (known: " + known +
                 ")");
}

/// Bytes at `recv`.
uint64_t received_bytes(const Arguments& arguments, uint32_t ranks) {
  const bool gives_all = arguments.collective == Collective::kAllGather ||
                         arguments.collective == Collective::kAllToAll;
  return arguments.count * ina_dtype_size(static_cast<ina_dtype>(arguments.dtype)) *
         (gives_all ? ranks : 1);
}

Result<Operation*> start(const ina_hierarchy& hierarchy, const Arguments& arguments) {
  HierarchicalCall call;
  call.function = arguments.function;
  call.collective = arguments.collective;
  call.send = arguments.send;
  call.recv = arguments.recv;
  call.count = arguments.count;
  call.dtype_number = arguments.dtype;
  call.op_number = arguments.op;
  if (auto fine = read_options(arguments, call); !fine) return tl::unexpected(fine.error());
  Context& context = *hierarchy.context->impl;
  if (auto fine = context.refuse_result_buffers(
          arguments.recv, received_bytes(arguments, context.settings().world_size),
          std::string(arguments.function) + ": recv");
      !fine)
    return tl::unexpected(fine.error());
  return hierarchy.impl->start(call);
}

int check_hierarchy(const ina_hierarchy* hierarchy, const char* function) {
  if (!hierarchy)
    return global_failure(INA_ERR_INVALID, std::string(function) + ": hierarchy is NULL");
  return check_context(hierarchy->context, function);
}

int start_and_wait(ina_hierarchy* hierarchy, const Arguments& arguments, int64_t timeout_us) {
  return guarded([&]() -> int {
    if (const int status = check_hierarchy(hierarchy, arguments.function); status != INA_OK)
      return status;
    const auto started = start(*hierarchy, arguments);
    if (!started) return fail_with(hierarchy->context, started.error());
    const int status = hierarchy->impl->wait(*started, timeout_us * 1000, true).status;
    if (status == INA_OK) return INA_OK;
    return hierarchy->context->impl->set_error(status, hierarchy->impl->last_error());
  });
}

int start_async(ina_hierarchy* hierarchy, const Arguments& arguments, ina_request** request) {
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
    const std::unique_ptr<ina_hierarchy> last(hierarchy);
    const int status = hierarchy->impl->leave(timeout_us * 1000);
    if (status != INA_OK) global_error() = hierarchy->impl->last_error();
    return status;
  });
}

int ina_hierarchical_allreduce(ina_hierarchy* hierarchy, const void* send, void* recv, size_t count,
                               ina_dtype dtype, ina_op op, const ina_hierarchical_options* options,
                               int64_t timeout_us) {
  return start_and_wait(
      hierarchy,
      {"ina_hierarchical_allreduce", Collective::kAllReduce, send, recv, count, dtype, op, options},
      timeout_us);
}

int ina_hierarchical_allreduce_async(ina_hierarchy* hierarchy, const void* send, void* recv,
                                     size_t count, ina_dtype dtype, ina_op op,
                                     const ina_hierarchical_options* options,
                                     ina_request** request) {
  return start_async(hierarchy,
                     {"ina_hierarchical_allreduce_async", Collective::kAllReduce, send, recv, count,
                      dtype, op, options},
                     request);
}

int ina_hierarchical_reduce_scatter(ina_hierarchy* hierarchy, const void* send, void* recv,
                                    size_t count, ina_dtype dtype, ina_op op,
                                    const ina_hierarchical_options* options, int64_t timeout_us) {
  return start_and_wait(hierarchy,
                        {"ina_hierarchical_reduce_scatter", Collective::kReduceScatter, send, recv,
                         count, dtype, op, options},
                        timeout_us);
}

int ina_hierarchical_reduce_scatter_async(ina_hierarchy* hierarchy, const void* send, void* recv,
                                          size_t count, ina_dtype dtype, ina_op op,
                                          const ina_hierarchical_options* options,
                                          ina_request** request) {
  return start_async(hierarchy,
                     {"ina_hierarchical_reduce_scatter_async", Collective::kReduceScatter, send,
                      recv, count, dtype, op, options},
                     request);
}

int ina_hierarchical_all_gather(ina_hierarchy* hierarchy, const void* send, void* recv,
                                size_t count, ina_dtype dtype,
                                const ina_hierarchical_options* options, int64_t timeout_us) {
  return start_and_wait(hierarchy,
                        {"ina_hierarchical_all_gather", Collective::kAllGather, send, recv, count,
                         dtype, INA_SUM, options},
                        timeout_us);
}

int ina_hierarchical_all_gather_async(ina_hierarchy* hierarchy, const void* send, void* recv,
                                      size_t count, ina_dtype dtype,
                                      const ina_hierarchical_options* options,
                                      ina_request** request) {
  return start_async(hierarchy,
                     {"ina_hierarchical_all_gather_async", Collective::kAllGather, send, recv,
                      count, dtype, INA_SUM, options},
                     request);
}

int ina_hierarchical_all_to_all(ina_hierarchy* hierarchy, const void* send, void* recv,
                                size_t count, ina_dtype dtype,
                                const ina_hierarchical_options* options, int64_t timeout_us) {
  return start_and_wait(hierarchy,
                        {"ina_hierarchical_all_to_all", Collective::kAllToAll, send, recv, count,
                         dtype, INA_SUM, options},
                        timeout_us);
}

int ina_hierarchical_all_to_all_async(ina_hierarchy* hierarchy, const void* send, void* recv,
                                      size_t count, ina_dtype dtype,
                                      const ina_hierarchical_options* options,
                                      ina_request** request) {
  return start_async(hierarchy,
                     {"ina_hierarchical_all_to_all_async", Collective::kAllToAll, send, recv, count,
                      dtype, INA_SUM, options},
                     request);
}

}  // extern "C"
