#include "plugins/torch/process_group.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ina/ina.hpp>

#include "plugins/torch/interpreter.h"
#include "plugins/torch/monitored_barrier.h"
#include "plugins/torch/sparse.h"
#include "plugins/torch/threads.h"
#include "plugins/torch/together.h"
#include "plugins/torch/types.h"

namespace ina::plugin {

namespace {

using c10d::OpType;
using namespace std::chrono_literals;
using Use = Blocks::Use;

/// The one tensor that most calls take, in a list.
at::Tensor& only(const char* function, Tensors& tensors) {
  require_count(function, "tensors", tensors.size(), 1);
  require_dense_cpu(function, tensors.front());
  return tensors.front();
}

Tensors& only(const char* function, TensorLists& lists) {
  require_count(function, "lists of tensors", lists.size(), 1);
  return lists.front();
}

/// `input`, or a copy of it if it shares memory with an output.
at::Tensor apart(const at::Tensor& input, const Tensors& outputs) {
  const bool shared = std::any_of(outputs.begin(), outputs.end(),
                                  [&](const at::Tensor& output) { return overlap(input, output); });
  return shared ? input.detach().clone() : input;
}

Tensors apart(const Tensors& inputs, const Tensors& outputs) {
  Tensors found;
  for (const at::Tensor& input : inputs) found.push_back(apart(input, outputs));
  return found;
}

size_t count_of(const at::Tensor& tensor, size_t units = 1) {
  return static_cast<size_t>(tensor.numel()) * units;
}

void require_sizes(const char* function, const Tensors& tensors, int64_t elements) {
  for (const at::Tensor& tensor : tensors)
    TORCH_CHECK(tensor.numel() == elements, "ina: ", function, ": a tensor has ",
                std::to_string(tensor.numel()), " elements, another one ",
                std::to_string(elements));
}

/// The parts of `tensor` along its first dimension, as all_to_all_single has them.
Tensors parts_of(const char* function, const at::Tensor& tensor, const std::vector<int64_t>& sizes,
                 size_t ranks) {
  require_dense_cpu(function, tensor);
  TORCH_CHECK(tensor.dim() > 0, "ina: ", function, " takes no tensors without dimensions");
  std::vector<int64_t> lengths = sizes;
  if (lengths.empty()) {
    TORCH_CHECK(tensor.size(0) % static_cast<int64_t>(ranks) == 0, "ina: ", function, ": ",
                std::to_string(tensor.size(0)), " rows cannot be split between ",
                std::to_string(ranks), " ranks equally");
    lengths.assign(ranks, tensor.size(0) / static_cast<int64_t>(ranks));
  }
  require_count(function, "split sizes", lengths.size(), ranks);
  Tensors parts;
  int64_t at = 0;
  for (const int64_t length : lengths) {
    TORCH_CHECK(length >= 0 && length <= tensor.size(0) - at, "ina: ", function,
                ": the split sizes do not add up to the tensor's ", std::to_string(tensor.size(0)),
                " rows");
    parts.push_back(tensor.narrow(0, at, length));
    at += length;
  }
  TORCH_CHECK(at == tensor.size(0), "ina: ", function, ": the split sizes add up to ",
              std::to_string(at), ", and the tensor has ", std::to_string(tensor.size(0)), " rows");
  return parts;
}

void require_other(const char* function, int rank, int own, int size) {
  TORCH_CHECK(rank >= 0 && rank < size, "ina: ", function, ": there is no rank ",
              std::to_string(rank));
  TORCH_CHECK(rank != own, "ina: ", function, ": rank ", std::to_string(rank), " is this rank");
}

template <class... Lists>
Tensors joined(const Lists&... lists) {
  Tensors all;
  (all.insert(all.end(), lists.begin(), lists.end()), ...);
  return all;
}

}  // namespace

ProcessGroupIna::ProcessGroupIna(std::shared_ptr<Job> job, JobOptions options,
                                 c10::intrusive_ptr<c10d::Store> store, milliseconds timeout,
                                 void (*check)())
    : GroupBase(options.rank, options.size),
      job_(std::move(job)),
      levels_{Level{job_, Continuations::make(0)}},
      pairs_(std::make_shared<Pairs>(std::move(options), store)),
      store_(std::move(store)),
      timeout_(timeout),
      check_(check) {
  group_made();
}

ProcessGroupIna::~ProcessGroupIna() {
  // The order in which Python drops groups at its end may differ between ranks.
  if (python_ends())
    run_without_gil(&leave_all_at_exit);
  else
    shutdown();
}

void ProcessGroupIna::drain(void (*check)()) {
  for (size_t depth = 0; depth < levels().size(); ++depth) {
    wait_for_running(*levels()[depth].job, std::nullopt, check);
    // Continuations may go on at the next depth.
    if (Continuations::depth_of_thread() == 0)
      levels()[depth].continuations->await_all(Clock::now() + timeout_.load(), check);
  }
  pairs_->drain(kLeaveTimeout, check);
}

void ProcessGroupIna::shutdown() {
  run_without_gil([&] { drain(nullptr); });
  leave(kLeaveTimeout);
}

void ProcessGroupIna::leave(milliseconds timeout) {
  if (left_.exchange(true)) return;
  // Python may hold its lock, as when it drops the last reference; the library's threads, for which
  // this waits, need it to drop theirs to tensors.
  run_without_gil([&] {
    // The other ranks may use the store's port again as soon as this one has left.
    {
      const std::lock_guard lock(store_mutex_);
      store_.reset();
    }
    pairs_->leave(timeout);
    for (const Level& level : levels()) level.job->leave(timeout);
    group_left(timeout);
  });
}

Uses ProcessGroupIna::prepare(const char* function, Tensors reads, Tensors writes) {
  require_writable(function, writes);
  Uses uses{std::move(reads), std::move(writes)};
  in_use_.await(uses, check_);
  return uses;
}

std::vector<ProcessGroupIna::Level> ProcessGroupIna::levels() {
  const std::lock_guard lock(levels_mutex_);
  return levels_;
}

ProcessGroupIna::Level ProcessGroupIna::level_of_thread() {
  const size_t depth = Continuations::depth_of_thread();
  auto all = levels();
  if (depth < all.size()) return all[depth];
  const std::lock_guard making(making_mutex_);
  while ((all = levels()).size() <= depth) {
    Level level = make_level(all.size(), all.back().job);
    const std::lock_guard lock(levels_mutex_);
    levels_.push_back(std::move(level));
  }
  return all[depth];
}

/// All ranks call it, in a continuation.
ProcessGroupIna::Level ProcessGroupIna::make_level(size_t depth,
                                                   const std::shared_ptr<Job>& above) {
  c10::intrusive_ptr<c10d::Store> store;
  {
    const std::lock_guard lock(store_mutex_);
    store = store_;
  }
  TORCH_CHECK(store, "ina: the process group has been destroyed");
  const std::string key = "ina/depth/" + std::to_string(depth);
  // The library's own wait for the slowest rank is short.
  if (store->add(key, 1) == getSize()) store->set(key + "/all", std::vector<uint8_t>{1});
  TORCH_CHECK(await_key(*store, key + "/all", Clock::now() + timeout_.load(), check_),
              "ina: not all ranks have started the first operation in a continuation within the "
              "group's timeout");
  std::shared_ptr<Job> job = above;
  try {
    job = above->split(0, getRank());
  } catch (const Exception& error) {  // on all ranks, if the switch has no room for it
    if (error.status() != INA_ERR_REFUSED) throw;
  }
  return {std::move(job), Continuations::make(depth)};
}

WorkPtr ProcessGroupIna::launch(Call call, const Begin& begin) {
  const Level level = level_of_thread();
  OperationPlan plan;
  plan.name = call.name;
  plan.held = std::move(call.held);
  std::erase_if(call.deliveries, [](const auto& deliver) { return !deliver; });
  if (!call.deliveries.empty())
    plan.deliver = [deliveries = std::move(call.deliveries)] {
      for (const auto& deliver : deliveries) deliver();
    };
  plan.timeout = call.timeout > milliseconds(0) ? call.timeout : timeout_.load();
  auto operation = std::make_shared<Operation>(std::move(plan));
  auto work = c10::make_intrusive<WorkIna>(getRank(), call.type, call.title, call.inputs,
                                           std::move(call.outputs), operation, check_);
  work->set_order(level.continuations);
  WorkIna::watch(work);
  ++collectives_;
  try {
    operation->start(level.job, begin);
  } catch (const Exception& error) {
    operation->end(std::current_exception());
    if (error.status() == INA_ERR_PEER_LOST)
      run_without_gil([&] { level.job->await_first_cause(nullptr); });
    throw;
  }
  in_use_.add(call.uses, operation);
  count(work);
  return work;
}

// ---- several operations as one

void ProcessGroupIna::begin_together() {
  const std::lock_guard lock(together_mutex_);
  together_.emplace();
}

void ProcessGroupIna::count(const c10::intrusive_ptr<WorkIna>& work) {
  const std::lock_guard lock(together_mutex_);
  if (together_) together_->push_back(work);
}

WorkPtr ProcessGroupIna::end_together() {
  std::vector<WorkPtr> works;
  {
    const std::lock_guard lock(together_mutex_);
    TORCH_CHECK(together_, "ina: the end of operations that were not begun together");
    works = std::move(*together_);
    together_.reset();
  }
  return make_one(OpType::UNKNOWN, "coalesced", works, timeout_);
}

/// The outputs are those of all `works`, in their order.
WorkPtr ProcessGroupIna::make_one(OpType type, const char* name, const std::vector<WorkPtr>& works,
                                  milliseconds timeout) {
  std::vector<std::shared_ptr<Operation>> parts;
  Tensors outputs;
  for (const WorkPtr& work : works) {
    const auto& part = static_cast<const WorkIna&>(*work);
    parts.push_back(part.operation());
    for (const Tensors& list : part.outputs())
      outputs.insert(outputs.end(), list.begin(), list.end());
  }
  auto work = c10::make_intrusive<WorkIna>(
      getRank(), type, nullptr, Tensors{}, TensorLists{std::move(outputs)},
      together(name, std::move(parts), timeout > milliseconds(0) ? timeout : timeout_.load()),
      check_);
  work->set_order(level_of_thread().continuations);
  return work;
}

WorkPtr ProcessGroupIna::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                         const c10d::AllgatherOptions& options) {
  constexpr const char* kName = "all_gather_into_tensor_coalesced";
  require_count(kName, "output tensors", outputs.size(), inputs.size());
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < inputs.size(); ++i)
    works.push_back(_allgather_base(outputs[i], inputs[i], options));
  return make_one(OpType::ALLGATHER_COALESCED, kName, works, options.timeout);
}

WorkPtr ProcessGroupIna::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  constexpr const char* kName = "reduce_scatter_tensor_coalesced";
  require_count(kName, "output tensors", outputs.size(), inputs.size());
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < inputs.size(); ++i)
    works.push_back(_reduce_scatter_base(outputs[i], inputs[i], options));
  return make_one(OpType::_REDUCE_SCATTER_BASE, kName, works, options.timeout);
}

// ---- sums

/// `flat`: contiguous, input and output. `call.deliveries` must copy it back.
WorkPtr ProcessGroupIna::sum_up(Call call, at::Tensor flat, const c10d::ReduceOp& op) {
  call.held.push_back(flat);
  const ina_dtype dtype = summed_type(flat.scalar_type());
  const ina_op operation = reduction(op);
  return launch(std::move(call), [&](ina_context* context, ina_request** request) {
    return ina_allreduce_async(context, flat.data_ptr(), flat.data_ptr(), count_of(flat), dtype,
                               operation, request);
  });
}

/// Gathers a number of each rank, by rank. Waits for them.
at::Tensor ProcessGroupIna::gather_number(const char* function, int64_t number,
                                          milliseconds timeout) {
  const at::Tensor own = at::full({1}, number, at::kLong), all = at::empty({getSize()}, at::kLong);
  Call call{OpType::ALLGATHER, function, nullptr, {}, {}, {own, all}, {}, timeout};
  launch(std::move(call), [&](ina_context* context, ina_request** request) {
    return ina_all_gather_async(context, own.data_ptr(), all.data_ptr(), 1, INA_INT64, request);
  })->wait();
  return all;
}

/// All ranks get the entries of all, and add them up. They tell each other first how many they
/// have, for which the call waits.
WorkPtr ProcessGroupIna::sum_up_sparse(const at::Tensor& tensor, Tensors& tensors,
                                       const c10d::AllreduceOptions& options) {
  constexpr const char* kName = "all_reduce";
  TORCH_CHECK(reduction(options.reduceOp) == INA_SUM, "ina: ", kName,
              " of sparse tensors makes sums only");
  const SparseEntries own(tensor);
  const at::Tensor numbers = gather_number(kName, own.count(), options.timeout);
  std::vector<size_t> bytes;
  size_t all_bytes = 0;
  for (int rank = 0; rank < getSize(); ++rank) {
    bytes.push_back(static_cast<size_t>(numbers[rank].item<int64_t>()) * own.entry_bytes());
    all_bytes += bytes.back();
  }
  const at::Tensor from = own.packed();
  const at::Tensor to = at::empty({static_cast<int64_t>(all_bytes)}, at::kByte);
  Call call{OpType::ALLREDUCE, kName, "ina:all_reduce", tensors, {tensors},
            {from, to},        {},    options.timeout};
  call.deliveries.push_back([tensor, own, numbers, to] { own.add_up(tensor, numbers, to); });
  return launch(std::move(call), [&](ina_context* context, ina_request** request) {
    return ina_all_gatherv_async(context, from.data_ptr(), to.data_ptr(), bytes.data(), nullptr,
                                 INA_UINT8, request);
  });
}

WorkPtr ProcessGroupIna::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors.front().is_sparse())
    return sum_up_sparse(tensors.front(), tensors, options);
  at::Tensor& tensor = only("all_reduce", tensors);
  Uses uses = prepare("all_reduce", {}, {tensor});
  const at::Tensor flat = Blocks::flat(tensor, Use::kRead);
  Call call{OpType::ALLREDUCE, "all_reduce",   "ina:all_reduce", tensors, {tensors}, {}, {},
            options.timeout,   std::move(uses)};
  if (!flat.is_same(tensor)) call.deliveries.push_back([tensor, flat] { copy_into(tensor, flat); });
  return sum_up(std::move(call), flat, options.reduceOp);
}

WorkPtr ProcessGroupIna::allreduce_into(const at::Tensor& from, const at::Tensor& to,
                                        const c10d::AllreduceOptions& options) {
  constexpr const char* kName = "all_reduce";
  require_type(kName, {from, to}, from);
  require_sizes(kName, {to}, from.numel());
  TORCH_CHECK(in_a_row({from}) && in_a_row({to}), "ina: ", kName, " takes contiguous tensors here");
  const ina_dtype dtype = summed_type(from.scalar_type());
  const ina_op operation = reduction(options.reduceOp);
  Uses uses{{from}, {to}};  // only the switch can write a result buffer
  in_use_.await(uses, check_);
  Call call{OpType::ALLREDUCE, kName, "ina:all_reduce", {from},         {{to}},
            {from, to},        {},    options.timeout,  std::move(uses)};
  return launch(std::move(call), [&](ina_context* context, ina_request** request) {
    return ina_allreduce_async(context, from.data_ptr(), to.data_ptr(), count_of(from), dtype,
                               operation, request);
  });
}

WorkPtr ProcessGroupIna::allreduce_coalesced(Tensors& tensors,
                                             const c10d::AllreduceCoalescedOptions& options) {
  constexpr const char* kName = "all_reduce_coalesced";
  TORCH_CHECK(!tensors.empty(), "ina: ", kName, " of no tensors");
  require_type(kName, tensors, tensors.front());
  Uses uses = prepare(kName, {}, tensors);
  Tensors flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.detach().reshape({-1}));
  const at::Tensor all = at::cat(flat);
  Call call{OpType::ALLREDUCE_COALESCED,
            kName,
            "ina:all_reduce",
            tensors,
            {tensors},
            {},
            {},
            options.timeout,
            std::move(uses)};
  call.deliveries.push_back([tensors, all] {
    int64_t at = 0;
    for (const at::Tensor& tensor : tensors) {
      copy_into(tensor, all.narrow(0, at, tensor.numel()).view(tensor.sizes()));
      at += tensor.numel();
    }
  });
  return sum_up(std::move(call), all, options.reduceOp);
}

WorkPtr ProcessGroupIna::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  at::Tensor& tensor = only("reduce", tensors);
  Uses uses = prepare("reduce", tensors, is_root(options.rootRank) ? tensors : Tensors{});
  const at::Tensor flat = Blocks::flat(tensor, Use::kRead);
  const ina_dtype dtype = summed_type(flat.scalar_type());
  const ina_op operation = reduction(options.reduceOp);
  Call call{OpType::REDUCE, "reduce", "ina:reduce",    tensors,        {tensors},
            {flat},         {},       options.timeout, std::move(uses)};
  if (!flat.is_same(tensor) && is_root(options.rootRank))
    call.deliveries.push_back([tensor, flat] { copy_into(tensor, flat); });
  return launch(std::move(call), [&](ina_context* context, ina_request** request) {
    return ina_reduce_async(context, flat.data_ptr(),
                            is_root(options.rootRank) ? flat.data_ptr() : nullptr, count_of(flat),
                            dtype, operation, static_cast<int>(options.rootRank), request);
  });
}

WorkPtr ProcessGroupIna::scatter_sums(Call call, const Blocks& from, const at::Tensor& to,
                                      const c10d::ReduceOp& op) {
  const at::Tensor flat = Blocks::flat(to, Use::kWrite);
  const ina_dtype dtype = summed_type(flat.scalar_type());
  const ina_op operation = reduction(op);
  call.held = joined(from.held(), Tensors{flat});
  if (!flat.is_same(to)) call.deliveries.push_back([to, flat] { copy_into(to, flat); });
  return launch(std::move(call), [&](ina_context* context, ina_request** request) {
    return ina_reduce_scatter_async(context, from.data(), flat.data_ptr(), from.counts().data(),
                                    dtype, operation, request);
  });
}

WorkPtr ProcessGroupIna::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                        const c10d::ReduceScatterOptions& options) {
  constexpr const char* kName = "reduce_scatter";
  at::Tensor& output = only(kName, outputs);
  Tensors& list = only(kName, inputs);
  require_count(kName, "input tensors", list.size(), size());
  require_type(kName, list, output);
  require_sizes(kName, {output}, list[static_cast<size_t>(getRank())].numel());
  Uses uses = prepare(kName, list, {output});
  // libina takes the blocks one after the other.
  const bool as_they_are =
      in_a_row(list) &&
      std::ranges::none_of(list, [&](const at::Tensor& tensor) { return overlap(tensor, output); });
  const Tensors parts = as_they_are ? list : staging_.copy(list);
  Call call{OpType::REDUCE_SCATTER, kName,          "ina:reduce_scatter", list, {outputs}, {}, {},
            options.timeout,        std::move(uses)};
  return scatter_sums(std::move(call), Blocks(parts, Use::kRead, 1), output, options.reduceOp);
}

WorkPtr ProcessGroupIna::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                              const c10d::ReduceScatterOptions& options) {
  constexpr const char* kName = "reduce_scatter_tensor";
  require_type(kName, {input, output}, output);
  require_sizes(kName, {input}, output.numel() * getSize());
  Uses uses = prepare(kName, {input}, {output});
  const at::Tensor from = Blocks::flat(apart(input, {output}), Use::kRead).view({-1});
  Tensors parts;
  for (int64_t rank = 0; rank < getSize(); ++rank)
    parts.push_back(from.narrow(0, rank * output.numel(), output.numel()));
  Call call{OpType::_REDUCE_SCATTER_BASE,
            kName,
            "ina:_reduce_scatter_base",
            {input},
            {{output}},
            {},
            {},
            options.timeout,
            std::move(uses)};
  return scatter_sums(std::move(call), Blocks(parts, Use::kRead, 1), output, options.reduceOp);
}

WorkPtr ProcessGroupIna::barrier(const c10d::BarrierOptions& options) {
  Call call{OpType::BARRIER, "barrier", "ina:barrier", {}, {}, {}, {}, options.timeout};
  return launch(std::move(call), &ina_barrier_async);
}

// ---- what moves as it is

WorkPtr ProcessGroupIna::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  at::Tensor& tensor = only("broadcast", tensors);
  const bool root = is_root(options.rootRank);
  Uses uses = root ? prepare("broadcast", tensors, {}) : prepare("broadcast", {}, tensors);
  const at::Tensor flat = Blocks::flat(tensor, root ? Use::kRead : Use::kWrite);
  const auto [dtype, units] = moved_type(flat.scalar_type());
  Call call{OpType::BROADCAST, "broadcast",    "ina:broadcast", tensors, {tensors}, {flat}, {},
            options.timeout,   std::move(uses)};
  if (!root && !flat.is_same(tensor))
    call.deliveries.push_back([tensor, flat] { copy_into(tensor, flat); });
  return launch(std::move(call), [&, type = dtype, per_element = units](ina_context* context,
                                                                        ina_request** request) {
    return ina_broadcast_async(context, flat.data_ptr(), flat.data_ptr(),
                               count_of(flat, per_element), type,
                               static_cast<int>(options.rootRank), request);
  });
}

WorkPtr ProcessGroupIna::allgather(TensorLists& outputs, Tensors& inputs,
                                   const c10d::AllgatherOptions& options) {
  constexpr const char* kName = "all_gather";
  at::Tensor& input = only(kName, inputs);
  Tensors& list = only(kName, outputs);
  require_count(kName, "output tensors", list.size(), size());
  require_type(kName, list, input);
  require_sizes(kName, list, input.numel());
  const auto moved = moved_type(input.scalar_type());
  Uses uses = prepare(kName, inputs, list);
  const at::Tensor from = Blocks::flat(apart(input, list), Use::kRead);
  const Blocks to(list, Use::kWrite, moved.units);
  Call call{OpType::ALLGATHER, kName,
            "ina:all_gather",  inputs,
            outputs,           joined(to.held(), Tensors{from}),
            {to.deliver()},    options.timeout,
            std::move(uses)};
  return launch(std::move(call), [&](ina_context* context, ina_request** request) {
    return ina_all_gatherv_async(context, from.data_ptr(), to.data(), to.counts().data(),
                                 to.displacements().data(), moved.dtype, request);
  });
}

WorkPtr ProcessGroupIna::_allgather_base(at::Tensor& output, at::Tensor& input,
                                         const c10d::AllgatherOptions& options) {
  constexpr const char* kName = "all_gather_into_tensor";
  require_type(kName, {input, output}, input);
  require_sizes(kName, {output}, input.numel() * getSize());
  Uses uses = prepare(kName, {input}, {output});
  const auto moved = moved_type(input.scalar_type());
  const at::Tensor to = Blocks::flat(output, Use::kWrite);
  at::Tensor from = Blocks::flat(input, Use::kRead);
  // Its own block there is where it belongs.
  const auto* own = static_cast<const std::byte*>(to.data_ptr()) +
                    static_cast<size_t>(getRank()) * input.nbytes();
  if (from.data_ptr() != own) from = apart(from, {output});
  Call call{OpType::_ALLGATHER_BASE,
            kName,
            "ina:_allgather_base",
            {input},
            {{output}},
            {from, to},
            {},
            options.timeout,
            std::move(uses)};
  if (!to.is_same(output)) call.deliveries.push_back([output, to] { copy_into(output, to); });
  return launch(std::move(call), [&](ina_context* context, ina_request** request) {
    return ina_all_gather_async(context, from.data_ptr(), to.data_ptr(),
                                count_of(from, moved.units), moved.dtype, request);
  });
}

WorkPtr ProcessGroupIna::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                             const c10d::AllgatherOptions& options) {
  constexpr const char* kName = "all_gather_coalesced";
  TORCH_CHECK(!inputs.empty(), "ina: ", kName, " of no tensors");
  require_type(kName, inputs, inputs.front());
  require_count(kName, "output lists", outputs.size(), size());
  const auto moved = moved_type(inputs.front().scalar_type());
  Tensors all;
  for (const Tensors& list : outputs) {
    require_count(kName, "output tensors", list.size(), inputs.size());
    require_type(kName, list, inputs.front());
    for (size_t i = 0; i < list.size(); ++i) require_sizes(kName, {list[i]}, inputs[i].numel());
    all.insert(all.end(), list.begin(), list.end());
  }
  Uses uses = prepare(kName, inputs, std::move(all));
  Tensors flat;
  for (const at::Tensor& input : inputs) flat.push_back(input.detach().reshape({-1}));
  const at::Tensor from = at::cat(flat);
  const at::Tensor to = at::empty({getSize(), from.numel()}, from.options());
  Call call{OpType::ALLGATHER_COALESCED,
            kName,
            "ina:all_gather",
            inputs,
            outputs,
            {from, to},
            {},
            options.timeout,
            std::move(uses)};
  call.deliveries.push_back([outputs, to] {
    for (size_t rank = 0; rank < outputs.size(); ++rank) {
      int64_t at = 0;
      for (const at::Tensor& output : outputs[rank]) {
        copy_into(
            output,
            to[static_cast<int64_t>(rank)].narrow(0, at, output.numel()).view(output.sizes()));
        at += output.numel();
      }
    }
  });
  return launch(std::move(call), [&](ina_context* context, ina_request** request) {
    return ina_all_gather_async(context, from.data_ptr(), to.data_ptr(),
                                count_of(from, moved.units), moved.dtype, request);
  });
}

WorkPtr ProcessGroupIna::gather(TensorLists& outputs, Tensors& inputs,
                                const c10d::GatherOptions& options) {
  constexpr const char* kName = "gather";
  at::Tensor& input = only(kName, inputs);
  const bool root = is_root(options.rootRank);
  Tensors list;
  if (root) {
    list = only(kName, outputs);
    require_count(kName, "output tensors", list.size(), size());
    require_type(kName, list, input);
    require_sizes(kName, list, input.numel());
  } else {
    require_count(kName, "lists of outputs on a rank that is not the root", outputs.size(), 0);
  }
  const auto moved = moved_type(input.scalar_type());
  Uses uses = prepare(kName, inputs, list);
  const at::Tensor from = Blocks::flat(apart(input, list), Use::kRead);
  const Blocks to(list, Use::kWrite, moved.units);
  const std::vector<size_t> counts(size(), count_of(from, moved.units));
  Call call{OpType::GATHER, kName,           "ina:gather",
            inputs,         outputs,         joined(to.held(), Tensors{from}),
            {to.deliver()}, options.timeout, std::move(uses)};
  return launch(std::move(call), [&](ina_context* context, ina_request** request) {
    return ina_gatherv_async(context, from.data_ptr(), to.data(), counts.data(),
                             root ? to.displacements().data() : nullptr, moved.dtype,
                             static_cast<int>(options.rootRank), request);
  });
}

WorkPtr ProcessGroupIna::scatter(Tensors& outputs, TensorLists& inputs,
                                 const c10d::ScatterOptions& options) {
  constexpr const char* kName = "scatter";
  at::Tensor& output = only(kName, outputs);
  const bool root = is_root(options.rootRank);
  Tensors list;
  if (root) {
    list = only(kName, inputs);
    require_count(kName, "input tensors", list.size(), size());
    require_type(kName, list, output);
    require_sizes(kName, list, output.numel());
  } else {
    require_count(kName, "lists of inputs on a rank that is not the root", inputs.size(), 0);
  }
  const auto moved = moved_type(output.scalar_type());
  Uses uses = prepare(kName, list, {output});
  list = apart(list, {output});
  const Blocks from(list, Use::kRead, moved.units);
  const at::Tensor to = Blocks::flat(output, Use::kWrite);
  const std::vector<size_t> counts(size(), count_of(to, moved.units));
  Call call{OpType::SCATTER,
            kName,
            "ina:scatter",
            list,
            {outputs},
            joined(from.held(), Tensors{to}),
            {},
            options.timeout,
            std::move(uses)};
  if (!to.is_same(output)) call.deliveries.push_back([output, to] { copy_into(output, to); });
  return launch(std::move(call), [&](ina_context* context, ina_request** request) {
    return ina_scatterv_async(context, from.data(), to.data_ptr(), counts.data(),
                              root ? from.displacements().data() : nullptr, moved.dtype,
                              static_cast<int>(options.rootRank), request);
  });
}

WorkPtr ProcessGroupIna::exchange(Call call, const Blocks& to, const Blocks& from,
                                  ina_dtype dtype) {
  call.held = joined(to.held(), from.held());
  call.deliveries = {to.deliver()};
  return launch(std::move(call), [&](ina_context* context, ina_request** request) {
    return ina_all_to_allv_async(context, from.data(), to.data(), from.counts().data(),
                                 from.displacements().data(), to.counts().data(),
                                 to.displacements().data(), dtype, request);
  });
}

WorkPtr ProcessGroupIna::alltoall_base(at::Tensor& output, at::Tensor& input,
                                       std::vector<int64_t>& output_splits,
                                       std::vector<int64_t>& input_splits,
                                       const c10d::AllToAllOptions& options) {
  constexpr const char* kName = "all_to_all_single";
  require_type(kName, {input, output}, input);
  const auto moved = moved_type(input.scalar_type());
  Uses uses = prepare(kName, {input}, {output});
  const Tensors to = parts_of(kName, output, output_splits, size());
  const Tensors from =
      parts_of(kName, Blocks::flat(apart(input, {output}), Use::kRead), input_splits, size());
  Call call{OpType::ALLTOALL_BASE, kName,          "ina:all_to_all", {input}, {{output}}, {}, {},
            options.timeout,       std::move(uses)};
  return exchange(std::move(call), Blocks(to, Use::kWrite, moved.units),
                  Blocks(from, Use::kRead, moved.units), moved.dtype);
}

WorkPtr ProcessGroupIna::alltoall(Tensors& outputs, Tensors& inputs,
                                  const c10d::AllToAllOptions& options) {
  constexpr const char* kName = "all_to_all";
  require_count(kName, "output tensors", outputs.size(), size());
  require_count(kName, "input tensors", inputs.size(), size());
  require_type(kName, inputs, inputs.front());
  require_type(kName, outputs, inputs.front());
  const auto moved = moved_type(inputs.front().scalar_type());
  Uses uses = prepare(kName, inputs, outputs);
  Call call{OpType::ALLTOALL, kName,          "ina:all_to_all", inputs, {outputs}, {}, {},
            options.timeout,  std::move(uses)};
  return exchange(std::move(call), Blocks(outputs, Use::kWrite, moved.units),
                  Blocks(apart(inputs, outputs), Use::kRead, moved.units), moved.dtype);
}

// ---- two ranks

std::shared_ptr<Operation> ProcessGroupIna::make_operation(const char* name, Tensors held,
                                                           std::function<void()> deliver,
                                                           const char* advice) {
  struct Self {
    std::weak_ptr<Operation> operation;
  };
  const auto self = std::make_shared<Self>();
  OperationPlan plan;
  plan.name = name;
  plan.held = std::move(held);
  plan.deliver = std::move(deliver);
  plan.timeout = timeout_;
  plan.advice = advice;
  plan.abandon = [self, pairs = pairs_] {
    const auto operation = self->operation.lock();
    return operation && pairs->abandon(operation.get());
  };
  auto operation = std::make_shared<Operation>(std::move(plan));
  self->operation = operation;
  return operation;
}

WorkPtr ProcessGroupIna::send(Tensors& tensors, int rank, int tag) {
  constexpr const char* kName = "send";
  const at::Tensor& tensor = only(kName, tensors);
  require_other(kName, rank, getRank(), getSize());
  const at::Tensor flat = Blocks::flat(tensor, Use::kRead);
  const auto operation = make_operation(kName, {flat}, {}, kSendAdvice);
  auto work = c10::make_intrusive<WorkIna>(getRank(), OpType::SEND, "ina:send", tensors,
                                           TensorLists{}, operation, check_);
  WorkIna::watch(work);
  pairs_->send(rank, {tag, flat, operation});
  count(work);
  return work;
}

WorkPtr ProcessGroupIna::receive(Tensors& tensors, int from, int tag) {
  constexpr const char* kName = "recv";
  const at::Tensor tensor = only(kName, tensors);
  require_writable(kName, tensors);
  const at::Tensor flat = Blocks::flat(tensor, Use::kWrite);
  std::function<void()> deliver;
  if (!flat.is_same(tensor)) deliver = [tensor, flat] { copy_into(tensor, flat); };
  const auto operation = make_operation(kName, {flat}, std::move(deliver));
  const bool any = from == kAnySource;
  auto work = c10::make_intrusive<WorkIna>(getRank(), any ? OpType::RECVANYSOURCE : OpType::RECV,
                                           any ? "ina:recvAnySource" : "ina:recv", tensors,
                                           TensorLists{tensors}, operation, check_);
  auto source = std::make_shared<std::atomic<int>>(from);
  work->set_source(source);
  WorkIna::watch(work);
  pairs_->receive({{tag, flat, operation}, from, std::move(source)});
  count(work);
  return work;
}

WorkPtr ProcessGroupIna::recv(Tensors& tensors, int rank, int tag) {
  require_other("recv", rank, getRank(), getSize());
  return receive(tensors, rank, tag);
}

WorkPtr ProcessGroupIna::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, kAnySource, tag);
}

void ProcessGroupIna::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const milliseconds timeout =
      options.timeout == c10d::kUnsetTimeout ? timeout_.load() : options.timeout;
  c10::intrusive_ptr<c10d::Store> store;
  {
    const std::lock_guard lock(store_mutex_);
    store = store_;
  }
  TORCH_CHECK(store, "ina: monitored_barrier: the process group has been destroyed");
  MonitoredBarrier(*store, monitored_barriers_++, getRank(), getSize())
      .pass(timeout, wait_all_ranks, check_);
}

}  // namespace ina::plugin
