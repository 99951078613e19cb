// The C ABI over Context. Nothing thrown gets past this file.
#include "ina/ina.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/abi.h"
#include "client/context.h"
#include "client/handles.h"
#include "common/printable.h"
#include "common/status_name.h"

using ina::DType;
using ina::Op;
using ina::client::check_context;
using ina::client::Context;
using ina::client::dtype_of;
using ina::client::fail_with;
using ina::client::global_error;
using ina::client::global_failure;
using ina::client::guarded;
using ina::client::op_of;
using ina::client::Operation;
using ina::client::OperationSpec;
using ina::client::start_and_wait;
using ina::client::start_with_request;
using ina::client::timeout_of;

namespace {

thread_local std::string shown_error;

int check_arguments(ina_context* context, const char* function, const void* send, const void* recv,
                    size_t count, int dtype, int op) {
  Context& impl = *context->impl;
  const auto invalid = [&](const std::string& text) {
    return impl.set_error(INA_ERR_INVALID, std::string(function) + ": " + text);
  };
  const auto type = dtype_of(dtype);
  if (!type) return invalid("dtype " + std::to_string(dtype) + " is no ina_dtype");
  const auto operation = op_of(op);
  if (!operation) return invalid("op " + std::to_string(op) + " is no ina_op");
  if (!ina::is_valid(*type, *operation))
    return invalid(std::string(ina::name(*operation)) + " of " + std::string(ina::name(*type)) +
                   " is not defined: " +
                   (*operation == Op::kAvg ? "use sum and divide, or a float type"
                                           : "bitwise operations are for integers and bool"));
  if (count > ina::wire::kMaxBlocksElements)
    return invalid("count " + std::to_string(count) + " is too large: at most " +
                   std::to_string(ina::wire::kMaxBlocksElements) + " are allowed");
  if (count != 0 && (!send || !recv)) return invalid(send ? "recv is NULL" : "send is NULL");
  const auto from = reinterpret_cast<uintptr_t>(send), to = reinterpret_cast<uintptr_t>(recv);
  const size_t bytes = count * ina::wire_bytes(*type);
  if (count != 0 && from != to && from < to + bytes && to < from + bytes)
    return invalid("send and recv overlap without being the same buffer");
  return INA_OK;
}

/// Why `hints` make no sense; empty if they do.
std::string complaint(const ina_hints& hints) {
  constexpr size_t kLeast =
      offsetof(ina_hints, remaining_iterations) + sizeof(ina_hints::remaining_iterations);
  if (hints.struct_size < kLeast || hints.struct_size > sizeof(ina_hints))
    return "hints->struct_size " + std::to_string(hints.struct_size) +
           " must be sizeof(ina_hints), which is " + std::to_string(sizeof(ina_hints));
  if (hints.layer > hints.layers)
    return "hints->layer " + std::to_string(hints.layer) + " exceeds hints->layers " +
           std::to_string(hints.layers);
  if (hints.layer == 0 && hints.layers != 0)
    return "hints->layer is 0, but layers count from 1 (hints->layers is " +
           std::to_string(hints.layers) + "); if it is unknown, set both to 0";
  return "";
}

int start(ina_context* context, const OperationSpec& spec, Operation** operation) {
  auto started = context->impl->start(spec);
  if (!started) return context->impl->set_error(started.error().status, started.error().text);
  *operation = *started;
  return INA_OK;
}

ina::Result<Operation*> start_barrier(ina_context* context) {
  OperationSpec spec;
  spec.collective = ina::Collective::kBarrier;
  return context->impl->start(spec);
}

/// Hands out what a call about memory gave.
int give(ina_context* context, const char* function, ina::Result<void*> made, void** memory) {
  if (!made)
    return context->impl->set_error(made.error().status,
                                    std::string(function) + ": " + made.error().text);
  if (memory) *memory = *made;
  return INA_OK;
}

/// The operation, from arguments that check_arguments() has found to be right.
OperationSpec spec_of(const void* send, void* recv, size_t count, int dtype, int op) {
  return {static_cast<const std::byte*>(send),
          static_cast<std::byte*>(recv),
          count,
          *dtype_of(dtype),
          *op_of(op),
          ina::Collective::kAllReduce};
}

/// The ranks of a group, as this rank asks for it.
ina::Result<std::vector<uint32_t>> members_of(const ina::client::Settings& settings,
                                              std::span<const int> ranks) {
  std::vector<uint32_t> members;
  bool own = false;
  for (const int rank : ranks) {
    if (rank < 0 || static_cast<uint32_t>(rank) >= settings.world_size)
      return ina::fail(INA_ERR_INVALID, "there is no rank " + std::to_string(rank) + " among " +
                                            std::to_string(settings.world_size));
    if (std::ranges::count(ranks, rank) != 1)
      return ina::fail(INA_ERR_INVALID, "rank " + std::to_string(rank) + " is named twice");
    own |= static_cast<uint32_t>(rank) == settings.rank;
    members.push_back(static_cast<uint32_t>(rank));
  }
  if (!own)
    return ina::fail(INA_ERR_INVALID, "rank " + std::to_string(settings.rank) +
                                          " calls it and is not among the ranks of the group");
  return members;
}

/// The status of a request that was freed: INA_ERR_TIMEOUT says that it was not. The job has ended,
/// because another caller's time had passed, as the text says.
int status_of_freed(int status) {
  return status == INA_ERR_TIMEOUT ? INA_ERR_ABORTED : status;
}

}  // namespace

extern "C" {

void ina_config_init_sized(ina_config* config, size_t struct_size) {
  if (!config) return;
  ina_config defaults{};
  defaults.struct_size = struct_size;
  defaults.rank = -1;
  defaults.world_size = -1;
  // One that is longer was made for a newer library, which ina_init says.
  std::memcpy(config, &defaults, std::min(struct_size, sizeof defaults));
}

int ina_init(const ina_config* config, ina_context** context) {
  if (!context) return global_failure(INA_ERR_INVALID, "ina_init: context is NULL");
  *context = nullptr;
  return guarded([&]() -> int {
    const auto settings =
        ina::client::resolve(config, [](const char* name) { return std::getenv(name); });
    if (!settings) return global_failure(settings.error().status, settings.error().text);
    auto joined = Context::join(*settings);
    if (!joined) return global_failure(joined.error().status, joined.error().text);
    *context = new ina_context;
    (*context)->impl = std::move(*joined);
    return INA_OK;
  });
}

int ina_finalize(ina_context* context, int64_t timeout_us) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, "ina_finalize"); status != INA_OK) return status;
    const auto timeout_ns = timeout_of("ina_finalize", timeout_us);
    if (!timeout_ns) return fail_with(context, timeout_ns.error());
    const int status = context->impl->leave(*timeout_ns);
    if (status != INA_OK) global_error() = context->impl->last_error();
    context->impl->close();
    delete context;
    return status;
  });
}

int ina_create_group(ina_context* context, const int* ranks, size_t count, uint64_t tag,
                     ina_context** group) {
  return guarded([&]() -> int {
    constexpr const char* kName = "ina_create_group";
    if (const int status = check_context(context, kName); status != INA_OK) return status;
    const auto failed = [&](int status, const std::string& text) {
      return context->impl->set_error(status, std::string(kName) + ": " + text);
    };
    if (!group) return failed(INA_ERR_INVALID, "group is NULL");
    *group = nullptr;
    if (!ranks) return failed(INA_ERR_INVALID, "ranks is NULL");
    const auto members = members_of(context->impl->settings(), {ranks, count});
    if (!members) return failed(members.error().status, members.error().text);
    if (const int status = context->impl->refuse_in_group(kName); status != INA_OK) return status;
    auto handle = std::make_unique<ina_context>();
    auto made = context->impl->create_group(*members, tag);
    if (!made) return failed(made.error().status, made.error().text);
    handle->impl = std::move(*made);
    *group = handle.release();
    return INA_OK;
  });
}

int ina_split(ina_context* context, int32_t colour, int32_t key, ina_context** group) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, "ina_split"); status != INA_OK) return status;
    if (!group) return context->impl->set_error(INA_ERR_INVALID, "ina_split: group is NULL");
    *group = nullptr;
    if (const int status = context->impl->refuse_in_group("ina_split"); status != INA_OK)
      return status;
    auto made = std::make_unique<ina_context>();
    auto split = context->impl->split(colour, key);
    if (!split)
      return context->impl->set_error(split.error().status, "ina_split: " + split.error().text);
    if (!*split) return INA_OK;
    made->impl = std::move(*split);
    *group = made.release();
    return INA_OK;
  });
}

int ina_rank(const ina_context* context) {
  if (!context) return global_failure(INA_ERR_INVALID, "ina_rank: context is NULL");
  return static_cast<int>(context->impl->settings().rank);
}

int ina_world_size(const ina_context* context) {
  if (!context) return global_failure(INA_ERR_INVALID, "ina_world_size: context is NULL");
  return static_cast<int>(context->impl->settings().world_size);
}

int ina_allreduce(ina_context* context, const void* send, void* recv, size_t count, ina_dtype dtype,
                  ina_op op, int64_t timeout_us) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, "ina_allreduce"); status != INA_OK) return status;
    if (const int status = check_arguments(context, "ina_allreduce", send, recv, count, dtype, op);
        status != INA_OK)
      return status;
    const auto timeout_ns = timeout_of("ina_allreduce", timeout_us);
    if (!timeout_ns) return fail_with(context, timeout_ns.error());
    if (const int status = context->impl->refuse_in_group("ina_allreduce"); status != INA_OK)
      return status;
    Operation* operation = nullptr;
    if (const int status = start(context, spec_of(send, recv, count, dtype, op), &operation);
        status != INA_OK)
      return status;
    return context->impl->wait(operation, *timeout_ns, true).status;
  });
}

int ina_allreduce_async(ina_context* context, const void* send, void* recv, size_t count,
                        ina_dtype dtype, ina_op op, ina_request** request) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, "ina_allreduce_async"); status != INA_OK)
      return status;
    if (!request)
      return context->impl->set_error(INA_ERR_INVALID, "ina_allreduce_async: request is NULL");
    *request = nullptr;
    if (const int status =
            check_arguments(context, "ina_allreduce_async", send, recv, count, dtype, op);
        status != INA_OK)
      return status;
    ina_request* made = context->new_request();
    OperationSpec spec = spec_of(send, recv, count, dtype, op);
    spec.deferrable = true;
    made->group = context->impl->open_group();
    const int status = guarded([&] { return start(context, spec, &made->operation); });
    if (status != INA_OK) {
      context->release(made);
      return status;
    }
    context->impl->kick_if_running();
    *request = made;
    return INA_OK;
  });
}

int ina_wait(ina_request* request, int64_t timeout_us) {
  return guarded([&]() -> int {
    if (!request) return global_failure(INA_ERR_INVALID, "ina_wait: request is NULL");
    if (const int status = check_context(request->context, "ina_wait"); status != INA_OK)
      return status;
    if (const int status = request->context->impl->refuse_in_group("ina_wait", request->group);
        status != INA_OK)
      return status;
    const auto timeout_ns = timeout_of("ina_wait", timeout_us);
    if (!timeout_ns) return fail_with(request->context, timeout_ns.error());
    const auto [status, released] = request->wait(*timeout_ns, false);
    if (!released) return status;
    request->context->release(request);
    return status_of_freed(status);
  });
}

int ina_request_free(ina_request* request) {
  return guarded([&]() -> int {
    if (!request) return global_failure(INA_ERR_INVALID, "ina_request_free: request is NULL");
    if (const int status = check_context(request->context, "ina_request_free"); status != INA_OK)
      return status;
    const int status = request->wait(0, true).status;
    request->context->release(request);
    return status;
  });
}

int ina_test(ina_request* request) {
  return guarded([&]() -> int {
    if (!request) return global_failure(INA_ERR_INVALID, "ina_test: request is NULL");
    if (const int status = check_context(request->context, "ina_test"); status != INA_OK)
      return status;
    if (const int status = request->context->impl->refuse_in_group("ina_test", request->group);
        status != INA_OK)
      return status;
    const int status = request->test();
    if (status == INA_IN_PROGRESS) return status;
    request->context->release(request);
    return status_of_freed(status);
  });
}

int ina_group_start(ina_context* context) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, "ina_group_start"); status != INA_OK)
      return status;
    return context->impl->start_group();
  });
}

int ina_group_end(ina_context* context) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, "ina_group_end"); status != INA_OK) return status;
    return context->impl->end_group();
  });
}

int ina_barrier(ina_context* context, int64_t timeout_us) {
  return start_and_wait(context, "ina_barrier", timeout_us, [&] { return start_barrier(context); });
}

int ina_barrier_async(ina_context* context, ina_request** request) {
  return start_with_request(context, "ina_barrier_async", request,
                            [&] { return start_barrier(context); });
}

int ina_get_stats(const ina_context* context, ina_stats* stats) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, "ina_get_stats"); status != INA_OK) return status;
    if (!stats || stats->struct_size < sizeof(size_t) || stats->struct_size > sizeof(ina_stats) ||
        stats->struct_size % alignof(ina_stats) != 0)
      return context->impl->set_error(
          INA_ERR_INVALID, "ina_get_stats: stats->struct_size must be sizeof(ina_stats)");
    ina_stats all{};
    context->impl->stats(all);
    all.struct_size = stats->struct_size;
    std::memcpy(stats, &all, stats->struct_size);
    return INA_OK;
  });
}

int ina_alloc(ina_context* context, size_t bytes, void** memory) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, "ina_alloc"); status != INA_OK) return status;
    if (!memory) return context->impl->set_error(INA_ERR_INVALID, "ina_alloc: memory is NULL");
    *memory = nullptr;
    return give(context, "ina_alloc", context->impl->memory().allocate(bytes), memory);
  });
}

int ina_alloc_result(ina_context* context, size_t bytes, void** memory) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, "ina_alloc_result"); status != INA_OK)
      return status;
    if (!memory)
      return context->impl->set_error(INA_ERR_INVALID, "ina_alloc_result: memory is NULL");
    *memory = nullptr;
    return give(context, "ina_alloc_result", context->impl->memory().share_results(bytes), memory);
  });
}

int ina_register(ina_context* context, int memfd, void* memory, size_t bytes) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, "ina_register"); status != INA_OK) return status;
    return give(context, "ina_register",
                context->impl->memory().register_memory(memfd, memory, bytes), nullptr);
  });
}

int ina_free(ina_context* context, void* memory) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, "ina_free"); status != INA_OK) return status;
    if (!memory) return INA_OK;
    if (auto freed = context->impl->memory().free_memory(memory); !freed)
      return context->impl->set_error(freed.error().status, "ina_free: " + freed.error().text);
    return INA_OK;
  });
}

int ina_set_hints(ina_context* context, const ina_hints* hints) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, "ina_set_hints"); status != INA_OK) return status;
    if (!hints) {
      context->impl->set_hints({});
      return INA_OK;
    }
    if (const std::string wrong = complaint(*hints); !wrong.empty())
      return context->impl->set_error(INA_ERR_INVALID, "ina_set_hints: " + wrong);
    context->impl->set_hints({hints->layer, hints->layers, hints->remaining_iterations});
    return INA_OK;
  });
}

int ina_overflowed(ina_context* context, int clear) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, "ina_overflowed"); status != INA_OK)
      return status;
    return context->impl->overflowed(clear != 0) ? 1 : 0;
  });
}

const char* ina_last_error(const ina_context* context) {
  shown_error = ina::printable(
      context && !context->impl->forked() ? context->impl->last_error() : global_error(), "\n");
  return shown_error.c_str();
}

const char* ina_status_name(int status) {
  return ina::name_of(status);
}

size_t ina_dtype_size(ina_dtype dtype) {
  const auto type = dtype_of(dtype);
  return type ? ina::wire_bytes(*type) : 0;
}

const char* ina_version(void) {
  return INA_PROJECT_VERSION;
}

}  // extern "C"
