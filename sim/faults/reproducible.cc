#include "sim/faults/reproducible.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "aggregator/kernels.h"
#include "operations/fixed_point.h"
#include "operations/reproducible.h"
#include "plans/collectives.h"

namespace ina::sim {
namespace {

using scheduler::Block;
using scheduler::BlockTable;
using Random = std::mt19937_64;
using Bytes = std::vector<std::byte>;

constexpr std::byte kGuard{0xa7};
constexpr size_t kGuardBytes = 16;

/// Mostly of magnitudes whose order of reduction shows in the last bits; else any bits at all.
void draw_element(Random& random, DType dtype, std::byte* at) {
  const uint32_t width = wire_bytes(dtype);
  const uint32_t mantissa = dtype == DType::kFloat64   ? 52
                            : dtype == DType::kFloat32 ? 23
                            : dtype == DType::kFloat16 ? 10
                                                       : 7;
  const uint64_t bias = dtype == DType::kFloat64 ? 1023 : dtype == DType::kFloat16 ? 15 : 127;
  uint64_t bits = random();
  if (random() % 64 != 0) {
    const uint64_t sign = bits >> 63 << (8 * width - 1);
    bits = sign | (bias - 4 + random() % 9) << mantissa | (bits & ((uint64_t{1} << mantissa) - 1));
  }
  std::memcpy(at, &bits, width);
}

std::vector<uint64_t> draw_counts(Random& random, uint32_t workers, uint64_t elements) {
  std::vector<uint64_t> counts(workers);
  const bool even = random() % 2 == 0;
  for (uint64_t& count : counts) {
    if (random() % 5 == 0) continue;
    count = even ? elements / workers : random() % (2 * elements / workers + 1);
  }
  return counts;
}

/// Table of one rank. In place, its block is received where it lies in `send`.
std::shared_ptr<const BlockTable> table_of(const PlannedOperation& plan, uint32_t rank, Rank root,
                                           const std::vector<uint64_t>& counts,
                                           uint32_t per_fragment) {
  if (plan.collective == Collective::kReduce)
    return std::make_shared<const BlockTable>(
        scheduler::reduce_blocks(root, plan.elements, per_fragment));
  const BlockTable table = scheduler::reduce_scatter_blocks(counts, per_fragment);
  std::vector<Block> blocks(table.blocks().begin(), table.blocks().end());
  for (Block& block : blocks)
    if (plan.in_place && block.receiver == 1 + rank) block.receive_offset = block.send_offset;
  return std::make_shared<const BlockTable>(blocks, per_fragment, table.fingerprint());
}

/// By the switch's kernels, one rank after the other.
Bytes reduce_in_rank_order(const PlannedOperation& plan, uint32_t workers) {
  const aggregator::Kernels& kernels = aggregator::kernels(plan.dtype, plan.op);
  Bytes row(plan.elements * wire_bytes(accumulator_of(plan.dtype)));
  Bytes result(plan.elements * wire_bytes(plan.dtype));
  kernels.load(row.data(), plan.inputs[0].data(), plan.elements);
  for (uint32_t rank = 1; rank < workers; ++rank)
    kernels.add(row.data(), plan.inputs[rank].data(), plan.elements);
  kernels.finish(result.data(), row.data(), plan.elements, plan.op == Op::kAvg ? workers : 1);
  return result;
}

/// All at once in fixed point, without chunks.
Bytes add_in_fixed_point(const PlannedOperation& plan, uint32_t workers) {
  using namespace client;
  const size_t count = plan.elements, blocks = blocks_of(count);
  const uint32_t headroom = headroom_bits(workers);
  std::vector<int8_t> exponents(blocks, INT8_MIN), own(blocks), specials(blocks);
  for (uint32_t rank = 0; rank < workers; ++rank) {
    block_exponents(plan.dtype, plan.inputs[rank].data(), count, own.data(), specials.data());
    for (size_t b = 0; b < blocks; ++b) exponents[b] = std::max(exponents[b], own[b]);
  }
  std::vector<int32_t> sum(count), classes(count), next(count);
  const auto add = [&](std::vector<int32_t>& to, auto op) {
    std::ranges::transform(to, next, to.begin(), op);
  };
  for (uint32_t rank = 0; rank < workers; ++rank) {
    quantise(plan.dtype, plan.inputs[rank].data(), count, exponents.data(), headroom, next.data());
    add(sum, std::plus());
    classify(plan.dtype, plan.inputs[rank].data(), count, next.data());
    add(classes, std::bit_or());
  }
  clear_specials(classes.data(), count, sum.data());
  Bytes result(count * wire_bytes(plan.dtype));
  dequantise(plan.dtype, sum.data(), count, exponents.data(), headroom,
             plan.op == Op::kAvg ? workers : 1, result.data());
  put_specials(plan.dtype, classes.data(), count, result.data());
  return result;
}

/// The right contents of a rank's buffer afterwards.
Bytes target_of(const PlannedOperation& plan, uint32_t rank, const Bytes& result) {
  const uint32_t width = wire_bytes(plan.dtype);
  Bytes target = plan.in_place ? plan.inputs[rank] : Bytes(plan.received_bytes[rank], kGuard);
  const Block everything{.elements = plan.elements};
  const auto blocks = plan.tables.empty() ? std::span(&everything, 1) : plan.tables[rank]->blocks();
  for (const Block& block : blocks)
    if (block.receiver == 0 || block.receiver == 1 + rank)
      std::copy_n(result.begin() + static_cast<ptrdiff_t>(block.send_offset * width),
                  block.elements * width,
                  target.begin() + static_cast<ptrdiff_t>(block.receive_offset * width));
  return target;
}

uint64_t received_elements(const PlannedOperation& plan, uint32_t rank, Rank root,
                           const std::vector<uint64_t>& counts) {
  if (plan.collective == Collective::kReduceScatter) return counts[rank];
  return plan.collective == Collective::kAllReduce || rank == value(root) ? plan.elements : 0;
}

}  // namespace

PlannedOperation draw_reproducible(Random& random, const OperationLimits& limits) {
  constexpr Collective kReductions[] = {Collective::kAllReduce, Collective::kReduce,
                                        Collective::kReduceScatter};
  constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16};
  constexpr Op kOps[] = {Op::kProduct, Op::kProduct, Op::kSum, Op::kAvg};
  const uint32_t workers = limits.workers;
  PlannedOperation plan;
  plan.reproducible = true;
  plan.collective = kReductions[random() % std::size(kReductions)];
  plan.dtype = kFloats[random() % std::size(kFloats)];
  plan.op = kOps[random() % std::size(kOps)];
  plan.in_place = random() % 3 == 0;
  const uint32_t per_fragment =
      elements_per_fragment(plan.collective, plan.dtype, limits.slot_bytes);
  plan.elements = random() % (size_t{limits.max_fragments} * per_fragment + 1);
  const Rank root{static_cast<uint8_t>(random() % workers)};
  const auto counts = draw_counts(random, workers, plan.elements);
  if (plan.collective == Collective::kReduceScatter)
    plan.elements = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  const uint32_t width = wire_bytes(plan.dtype);
  for (uint32_t rank = 0; rank < workers; ++rank) {
    Bytes input(plan.elements * width + kGuardBytes, kGuard);
    for (size_t e = 0; e < plan.elements; ++e) draw_element(random, plan.dtype, &input[e * width]);
    plan.inputs.push_back(std::move(input));
    plan.received_bytes.push_back(received_elements(plan, rank, root, counts) * width +
                                  kGuardBytes);
    if (plan.collective != Collective::kAllReduce)
      plan.tables.push_back(table_of(plan, rank, root, counts, per_fragment));
  }
  client::OperationSpec spec;
  spec.dtype = plan.dtype;
  spec.op = plan.op;
  const Bytes result = client::Reproducible::handles(spec) ? add_in_fixed_point(plan, workers)
                                                           : reduce_in_rank_order(plan, workers);
  for (uint32_t rank = 0; rank < workers; ++rank)
    plan.targets.push_back(target_of(plan, rank, result));
  return plan;
}

std::optional<std::string> wrong_reproducible(const PlannedOperation& plan, uint32_t rank,
                                              const Bytes& got) {
  const Bytes& target = plan.targets[rank];
  if (got.size() != target.size()) return "a buffer of another size";
  const auto [at, wanted] = std::ranges::mismatch(got, target);
  if (at == got.end()) return std::nullopt;
  return fmt::format("byte {} of a reproducible {} of {} {}: {:#04x} instead of {:#04x}",
                     at - got.begin(), name(plan.op), plan.elements, name(plan.dtype),
                     std::to_integer<unsigned>(*at), std::to_integer<unsigned>(*wanted));
}

}  // namespace ina::sim
