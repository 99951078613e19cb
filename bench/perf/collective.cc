#include "bench/perf/collective.h"

#include <array>

namespace ina::perf {
namespace {

Shape all_to_all(uint64_t whole, int rank, int ranks) {
  const uint64_t block = whole / static_cast<uint64_t>(ranks);
  Shape shape{.send = whole, .recv = whole, .segments = {}};
  for (int source = 0; source < ranks; ++source)
    shape.segments.push_back({static_cast<uint64_t>(source) * block, block, source,
                              static_cast<uint64_t>(rank) * block});
  return shape;
}

Shape blocks_of_all(uint64_t whole, int ranks) {
  const uint64_t block = whole / static_cast<uint64_t>(ranks);
  Shape shape{.send = block, .recv = whole, .segments = {}};
  for (int source = 0; source < ranks; ++source)
    shape.segments.push_back({static_cast<uint64_t>(source) * block, block, source, 0});
  return shape;
}

}  // namespace

std::string_view name(Collective collective) {
  switch (collective) {
    case Collective::kAllreduce:
      return "allreduce";
    case Collective::kReduce:
      return "reduce";
    case Collective::kReduceScatter:
      return "reduce-scatter";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kAllGather:
      return "all-gather";
    case Collective::kGather:
      return "gather";
    case Collective::kScatter:
      return "scatter";
    case Collective::kAllToAll:
      return "all-to-all";
    case Collective::kPermute:
      return "permute";
    case Collective::kSendReceive:
      return "send-receive";
    case Collective::kBarrier:
      return "barrier";
  }
  return "?";
}

bool has_blocks(Collective collective) {
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
      return true;
    default:
      return false;
  }
}

uint64_t whole_elements(Collective collective, uint64_t bytes, size_t width, int ranks) {
  if (collective == Collective::kBarrier) return 0;
  const uint64_t elements = bytes / width;
  const auto blocks = static_cast<uint64_t>(ranks);
  return has_blocks(collective) ? elements / blocks * blocks : elements;
}

Shape shape_of(Collective collective, uint64_t whole, int rank, int ranks, int at_root) {
  const uint64_t block = whole / static_cast<uint64_t>(ranks);
  const bool root = rank == at_root;
  const int before = (rank + ranks - 1) % ranks;
  switch (collective) {
    case Collective::kAllreduce:
      return {whole, whole, {{0, whole, Segment::kResult, 0}}, true};
    case Collective::kReduce:
      if (!root) return {.send = whole, .segments = {}};
      return {whole, whole, {{0, whole, Segment::kResult, 0}}, false};
    case Collective::kReduceScatter:
      return {
          whole, block, {{0, block, Segment::kResult, static_cast<uint64_t>(rank) * block}}, false};
    case Collective::kBroadcast:
      // The root's result is its input.
      if (root) return {.send = whole, .recv = whole, .segments = {}, .to_all = true};
      return {0, whole, {{0, whole, at_root, 0}}, true};
    case Collective::kAllGather: {
      Shape shape = blocks_of_all(whole, ranks);
      shape.to_all = true;
      return shape;
    }
    case Collective::kGather:
      if (root) return blocks_of_all(whole, ranks);
      return {.send = block, .segments = {}};
    case Collective::kScatter:
      return {root ? whole : 0,
              block,
              {{0, block, at_root, static_cast<uint64_t>(rank) * block}},
              false};
    case Collective::kAllToAll:
      return all_to_all(whole, rank, ranks);
    case Collective::kSendReceive:
      if (ranks == 1) return {.send = whole, .segments = {}};
      [[fallthrough]];
    case Collective::kPermute:
      return {whole, whole, {{0, whole, before, 0}}, false};
    case Collective::kBarrier:
      break;
  }
  return {};
}

double bus_factor(Collective collective, int ranks) {
  const double others = ranks - 1;
  if (collective == Collective::kAllreduce) return 2 * others / ranks;
  return has_blocks(collective) ? others / ranks : 1;
}

int call(ina_context* context, const Call& what, const void* send, void* recv) {
  const int rank = ina_rank(context), ranks = ina_world_size(context);
  const uint64_t block = what.whole / static_cast<uint64_t>(ranks);
  const int next = ranks == 1 ? INA_NOBODY : (rank + 1) % ranks;
  const int before = ranks == 1 ? INA_NOBODY : (rank + ranks - 1) % ranks;
  switch (what.collective) {
    case Collective::kAllreduce:
      return ina_allreduce(context, send, recv, what.whole, what.dtype, what.op, what.timeout_us);
    case Collective::kReduce:
      return ina_reduce(context, send, recv, what.whole, what.dtype, what.op, what.root,
                        what.timeout_us);
    case Collective::kReduceScatter:
      return ina_reduce_scatter_block(context, send, recv, block, what.dtype, what.op,
                                      what.timeout_us);
    case Collective::kBroadcast:
      if (rank == what.root && !what.direct)
        recv = const_cast<void*>(send);  // in place, it is only read
      return ina_broadcast(context, send, recv, what.whole, what.dtype, what.root, what.timeout_us);
    case Collective::kAllGather:
      return ina_all_gather(context, send, recv, block, what.dtype, what.timeout_us);
    case Collective::kGather:
      return ina_gather(context, send, recv, block, what.dtype, what.root, what.timeout_us);
    case Collective::kScatter:
      return ina_scatter(context, send, recv, block, what.dtype, what.root, what.timeout_us);
    case Collective::kAllToAll:
      return ina_all_to_all(context, send, recv, block, what.dtype, what.timeout_us);
    case Collective::kPermute: {
      std::array<int, INA_MAX_WORLD_SIZE> destinations;  // only those of ranks are touched
      for (int r = 0; r < ranks; ++r) destinations[static_cast<size_t>(r)] = (r + 1) % ranks;
      return ina_permute(context, send, recv, what.whole, what.dtype, destinations.data(),
                         what.timeout_us);
    }
    case Collective::kSendReceive:
      return ina_send_receive(context, send, recv, what.whole, next, what.whole, before, what.dtype,
                              what.timeout_us);
    case Collective::kBarrier:
      return ina_barrier(context, what.timeout_us);
  }
  return INA_ERR_INVALID;
}

}  // namespace ina::perf
