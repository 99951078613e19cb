// The C ABI of the collectives other than all-reduce and barrier, and of completion that nobody
// waits for. Nothing thrown gets past this file.
#include <concepts>

#include "client/collective_call.h"
#include "client/context.h"
#include "client/handles.h"
#include "ina/ina.h"

using ina::Collective;
using ina::Result;
using ina::client::check_context;
using ina::client::CollectiveCall;
using ina::client::Context;
using ina::client::fail_with;
using ina::client::global_failure;
using ina::client::guarded;
using ina::client::Operation;
using ina::client::start_and_wait;
using ina::client::start_with_request;

static_assert(INA_NOBODY == ina::scheduler::kNobody);
static_assert(std::same_as<size_t, uint64_t>);

namespace {

/// The arguments that all calls share.
struct Buffers {
  const void* send;
  void* recv;
  ina_dtype dtype;
};

/// Puts the arguments of one C function into a CollectiveCall.
class Arguments {
 public:
  Arguments(const Context& context, const char* function, Collective collective,
            const Buffers& buffers)
      : workers_(context.settings().world_size) {
    call_.function = function;
    call_.collective = collective;
    call_.send = buffers.send;
    call_.recv = buffers.recv;
    call_.dtype_number = buffers.dtype;
  }
  Arguments& op(ina_op op) {
    call_.op_number = op;
    return *this;
  }
  Arguments& root(int root) {
    call_.root = root;
    return *this;
  }
  /// One count for all.
  Arguments& count(size_t count) {
    call_.counts.push_back(count);
    return *this;
  }
  /// Each rank has this count, and the blocks lie one after the other.
  Arguments& even(size_t count) {
    call_.set_even(workers_, count);
    return *this;
  }
  /// `displacements` NULL: one after the other.
  Arguments& uneven(const size_t* counts, const size_t* displacements) {
    take(call_.counts, counts, "counts");
    place(call_.displacements, call_.counts, displacements);
    return *this;
  }
  Arguments& counted(const size_t* send_counts, const size_t* send_displacements,
                     const size_t* recv_counts, const size_t* recv_displacements) {
    call_.counted = true;
    take(call_.counts, send_counts, "send_counts");
    take(call_.receive_counts, recv_counts, "recv_counts");
    place(call_.displacements, call_.counts, send_displacements);
    place(call_.receive_displacements, call_.receive_counts, recv_displacements);
    return *this;
  }
  Arguments& destinations(const int* destinations) {
    if (destinations)
      call_.destinations.append({destinations, workers_});
    else
      missing_ = "destinations";
    return *this;
  }
  Arguments& pair(size_t send_count, int destination, size_t recv_count, int source) {
    call_.counted = true;
    call_.counts.push_back(destination == INA_NOBODY ? 0 : send_count);
    call_.receive_counts.push_back(source == INA_NOBODY ? 0 : recv_count);
    call_.destination = destination;
    call_.source = source;
    return *this;
  }

  Result<CollectiveCall*> call() {
    if (missing_)
      return ina::fail(INA_ERR_INVALID, std::string(call_.function) + ": " + missing_ + " is NULL");
    return &call_;
  }

 private:
  using Numbers = CollectiveCall::Numbers;
  void take(Numbers& numbers, const size_t* given, const char* name) {
    if (given)
      numbers.append({given, workers_});
    else
      missing_ = name;
  }
  void place(Numbers& displacements, const Numbers& counts, const size_t* given) const {
    if (given) return displacements.append({given, workers_});
    displacements.resize(workers_);
    ina::scheduler::pack(counts, displacements);
  }

  const uint32_t workers_;
  CollectiveCall call_;
  const char* missing_ = nullptr;
};

Result<Operation*> start(ina_context* context, Arguments& arguments) {
  auto call = arguments.call();
  if (!call) return tl::unexpected(call.error());
  return context->impl->start(**call);
}

/// A collective as a blocking call. `give(arguments)` puts in the function's arguments.
template <class Give>
int call(ina_context* context, const char* function, Collective collective, const Buffers& buffers,
         int64_t timeout_us, Give&& give) {
  return start_and_wait(context, function, timeout_us, [&] {
    Arguments arguments(*context->impl, function, collective, buffers);
    give(arguments);
    return start(context, arguments);
  });
}

/// A collective as an asynchronous call. `give(arguments)` puts in the function's arguments.
template <class Give>
int call_async(ina_context* context, const char* function, Collective collective,
               const Buffers& buffers, ina_request** request, Give&& give) {
  return start_with_request(context, function, request, [&] {
    Arguments arguments(*context->impl, function, collective, buffers);
    give(arguments);
    return start(context, arguments);
  });
}

/// On the background thread: the request's end.
void complete(void* argument, int status) {
  auto* request = static_cast<ina_request*>(argument);
  const ina_callback callback = request->callback;
  void* const user = request->user;
  request->context->release(request);
  callback(user, status);
}

}  // namespace

// A collective's two functions, which differ in their last argument alone. PARAMETERS and GIVEN are
// in parentheses.
#define INA_UNPACK(...) __VA_ARGS__
#define INA_COLLECTIVE(NAME, COLLECTIVE, PARAMETERS, GIVEN)                                   \
  int NAME(ina_context* context, const void* send, void* recv, INA_UNPACK PARAMETERS,         \
           int64_t timeout_us) {                                                              \
    return call(context, #NAME, Collective::COLLECTIVE, {send, recv, dtype}, timeout_us,      \
                [&](Arguments& arguments) { arguments INA_UNPACK GIVEN; });                   \
  }                                                                                           \
  int NAME##_async(ina_context* context, const void* send, void* recv, INA_UNPACK PARAMETERS, \
                   ina_request** request) {                                                   \
    return call_async(context, #NAME "_async", Collective::COLLECTIVE, {send, recv, dtype},   \
                      request, [&](Arguments& arguments) { arguments INA_UNPACK GIVEN; });    \
  }

extern "C" {

INA_COLLECTIVE(ina_reduce, kReduce, (size_t count, ina_dtype dtype, ina_op op, int root),
               (.count(count).op(op).root(root)))
INA_COLLECTIVE(ina_broadcast, kBroadcast, (size_t count, ina_dtype dtype, int root),
               (.count(count).root(root)))
INA_COLLECTIVE(ina_reduce_scatter_block, kReduceScatter, (size_t count, ina_dtype dtype, ina_op op),
               (.even(count).op(op)))
INA_COLLECTIVE(ina_reduce_scatter, kReduceScatter,
               (const size_t* counts, ina_dtype dtype, ina_op op),
               (.uneven(counts, nullptr).op(op)))
INA_COLLECTIVE(ina_all_gather, kAllGather, (size_t count, ina_dtype dtype), (.even(count)))
INA_COLLECTIVE(ina_all_gatherv, kAllGather,
               (const size_t* counts, const size_t* displacements, ina_dtype dtype),
               (.uneven(counts, displacements)))
INA_COLLECTIVE(ina_gather, kGather, (size_t count, ina_dtype dtype, int root),
               (.even(count).root(root)))
INA_COLLECTIVE(ina_gatherv, kGather,
               (const size_t* counts, const size_t* displacements, ina_dtype dtype, int root),
               (.uneven(counts, displacements).root(root)))
INA_COLLECTIVE(ina_scatter, kScatter, (size_t count, ina_dtype dtype, int root),
               (.even(count).root(root)))
INA_COLLECTIVE(ina_scatterv, kScatter,
               (const size_t* counts, const size_t* displacements, ina_dtype dtype, int root),
               (.uneven(counts, displacements).root(root)))
INA_COLLECTIVE(ina_all_to_all, kAllToAll, (size_t count, ina_dtype dtype), (.even(count)))
INA_COLLECTIVE(ina_all_to_allv, kAllToAll,
               (const size_t* send_counts, const size_t* send_displacements,
                const size_t* recv_counts, const size_t* recv_displacements, ina_dtype dtype),
               (.counted(send_counts, send_displacements, recv_counts, recv_displacements)))
INA_COLLECTIVE(ina_permute, kPermute, (size_t count, ina_dtype dtype, const int* destinations),
               (.even(count).destinations(destinations)))
INA_COLLECTIVE(ina_send_receive, kPermute,
               (size_t send_count, int destination, size_t recv_count, int source, ina_dtype dtype),
               (.pair(send_count, destination, recv_count, source)))

int ina_request_set_callback(ina_request* request, ina_callback callback, void* user) {
  return guarded([&]() -> int {
    constexpr const char* kFunction = "ina_request_set_callback";
    if (!request)
      return global_failure(INA_ERR_INVALID, std::string(kFunction) + ": request is NULL");
    if (const int status = check_context(request->context, kFunction); status != INA_OK)
      return status;
    Context& context = *request->context->impl;
    if (!callback)
      return context.set_error(INA_ERR_INVALID, std::string(kFunction) + ": callback is NULL");
    if (const int status = context.refuse_in_group(kFunction, request->group); status != INA_OK)
      return status;
    request->callback = callback;
    request->user = user;
    request->call_back(complete);
    return INA_OK;
  });
}

int ina_completion_fd(ina_context* context, int* fd) {
  return guarded([&]() -> int {
    if (const int status = check_context(context, "ina_completion_fd"); status != INA_OK)
      return status;
    if (!fd) return context->impl->set_error(INA_ERR_INVALID, "ina_completion_fd: fd is NULL");
    *fd = -1;
    const auto made = context->impl->completion_fd();
    if (!made) return fail_with(context, made.error());
    *fd = *made;
    return INA_OK;
  });
}

}  // extern "C"
